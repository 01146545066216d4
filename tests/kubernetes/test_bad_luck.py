"""What may go wrong on a cluster and is nobody's doing: named, tried again within bounds, recorded, cleaned up."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import socket
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from object_server import NO_ROOM, READY

from conftest import until
from opsassay.cli import cli
from opsassay.core.errors import LostError, OperationError, StartError, UserError
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.json_lines import append_object
from opsassay.core.schema.system import System
from opsassay.core.schema.trajectory import parse_timeline
from opsassay.testbed.recording.observer import Observer
from opsassay.testbed.substrates.kubernetes import probes as probes_module
from opsassay.testbed.substrates.kubernetes import substrate as module
from opsassay.testbed.substrates.kubernetes.actuators import under_test, undoing
from opsassay.testbed.substrates.kubernetes.actuators.changes import Change, injected
from opsassay.testbed.substrates.kubernetes.actuators.offers import Offers
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest
from opsassay.testbed.substrates.kubernetes.api import client
from opsassay.testbed.substrates.kubernetes.api.client import Api, DeniedError
from opsassay.testbed.substrates.kubernetes.api.object_server import ObjectServer
from opsassay.testbed.substrates.kubernetes.api.owners import OWNER
from opsassay.testbed.substrates.kubernetes.manifests.system import Deployed
from opsassay.testbed.substrates.kubernetes.probes import ClusterProbes, Watched, api_health
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

FINALIZER = "Some resources are remaining: widgets.example.com has 1 resource instances."
TINY = load_yaml(Path(__file__).parents[1] / "testbed" / "tiny.yaml", System)


@pytest.fixture
def cluster(small_cluster):
    return small_cluster


@pytest.fixture
def substrate(cluster):
    return KubernetesSubstrate(cluster.config)


@pytest.fixture
def api(cluster):
    return Api.connect(cluster.config)


# --- the API cannot be reached ----------------------------------------------------------------------------------------


def away_for(requests):
    """Return what hangs up on so many requests and then leaves them to the server."""
    left = iter(range(requests))
    return lambda _method, _path: ... if next(left, None) is None else None


def test_a_system_starts_although_the_api_is_away_while_its_pods_start(cluster, substrate):
    rows = []
    cluster.pods = NO_ROOM

    def progress(row):
        if not rows:
            cluster.refuse, cluster.pods = away_for(3 * client.TRIES), READY
            cluster.control()
        rows.append(row.phase)

    assert substrate.deploy(TINY, "mine", on_progress=progress).status().phase == "ready"
    assert (rows[0], rows[-1]) == ("starting", "ready")


def test_a_system_is_removed_although_the_api_was_away_when_it_was_told_to_go(cluster, substrate):
    with substrate.deployed(TINY, "mine"):
        cluster.refuse = away_for(3 * client.TRIES)
    assert cluster.namespaces() == []


def test_what_could_not_be_removed_is_named_with_what_clears_it_later(cluster, substrate, monkeypatch):
    monkeypatch.setattr(module, "REMOVE_TIMEOUT_S", 0.05)
    removing = pytest.raises(
        LostError, match=r"mine, mine-watch may still be there; `opsassay system status --substrate kubernetes`"
    )
    with removing, substrate.deployed(TINY, "mine"):
        cluster.refuse = lambda *_: None
    cluster.refuse = lambda *_: ...
    assert cluster.namespaces() == ["mine", "mine-watch"]
    for name in cluster.namespaces():
        cluster.objects["Namespace", "", name]["metadata"]["annotations"][OWNER] = f"{socket.gethostname()}:1:0"
    assert [(row.name, row.phase) for row in substrate.status()] == [("mine", "cleared")]
    assert cluster.namespaces() == []


def test_what_was_cut_short_before_there_was_a_system_is_shown_and_can_be_removed(cluster, substrate):
    whole = Deployed(TINY, "mine")
    for item in whole.namespaces():
        substrate.api.create(item)
    (row,) = substrate.status()
    assert (row.phase, row.system, row.reason) == ("starting", None, "its namespaces are there, it is not (yet)")
    substrate.remove("mine")
    assert cluster.namespaces() == []


def test_a_namespace_whose_making_was_not_answered_is_known_again(cluster, substrate):
    lost = []

    def hang_up_on_the_first(method, path):
        if method == "POST" and path == "/api/v1/namespaces" and not lost:
            lost.append(path)
            cluster.super_answer()
            return None
        return ...

    cluster.super_answer = lambda: ObjectServer.answer(cluster, "POST", "/api/v1/namespaces", {})
    cluster.refuse = hang_up_on_the_first
    assert substrate.deploy(TINY, "mine").status().phase == "ready"
    assert lost


def test_an_injection_is_given_up_when_the_cluster_is_silent_though_no_watch_has_ended(
    cluster, substrate, api, tmp_path, monkeypatch
):
    monkeypatch.setattr(under_test, "LOST_AFTER_S", 0.5)
    monkeypatch.setattr(under_test, "POLL_EVERY_S", 0.05)
    running = substrate.deploy(TINY, "mine")
    for _, secret in cluster.of("Secret"):
        secret["data"] = {"key": base64.b64encode(b"key").decode()}

    async def live():
        lease, told = asyncio.Event(), {"stats": {}, "gauges": {}, "now": time.time(), "desired": {"until": 0}}
        cluster.refuse = lambda _method, path: (200, told) if "/proxy/" in path else ...
        offers = Offers(frozenset(), None)
        system = ClusterUnderTest(api, "mine", TINY, tmp_path, offers, lease, limit_s=60, image="i")
        async with system:
            await asyncio.sleep(1.0)
            assert system.failure is None, "it answers"
            cluster.refuse = lambda _method, path: None if "/proxy/" in path else ...
            await asyncio.sleep(1.0)
            assert system.failure is None, "it is the pods that do not"
            cluster.refuse = lambda _method, path: None if "/proxy/" in path or path == "/readyz" else ...
            await asyncio.wait_for(lease.wait(), 20)
            return system.failure

    assert running.status().phase == "ready"
    assert "pods of mine could not be followed" in str(asyncio.run(live()))


def test_commands_start_show_and_remove_systems_on_the_cluster_of_kubectl(cluster, monkeypatch):
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(cluster.config))

    def opsassay(*words):
        return CliRunner().invoke(cli, [*words, "--substrate", "kubernetes"], catch_exceptions=False).output

    tiny = str(Path(__file__).parents[1] / "testbed" / "tiny.yaml")
    with pytest.raises(UserError, match=r"The local substrate has no setting .image."):
        CliRunner().invoke(cli, ["system", "up", tiny, "--image", "mine:1"], catch_exceptions=False)
    up = opsassay("system", "up", tiny, "--name", "mine", "--image", "registry.example/runtime:1")
    assert "`opsassay system down mine --substrate kubernetes`" in up
    images = {item["spec"]["template"]["spec"]["containers"][0]["image"] for _, item in cluster.of("Deployment")}
    assert images == {"registry.example/runtime:1"}
    with pytest.raises(UserError, match="may be others' too: name the systems"):
        opsassay("system", "down", "--all")
    cluster.holding = FINALIZER
    cluster.end("mine")
    (row,) = json.loads(opsassay("system", "status", "--json"))["items"]
    assert (row["phase"], row["reason"]) == ("stopping", FINALIZER)
    assert "has 1 resource" in " ".join(re.sub("[┃│]", " ", opsassay("system", "status")).split())
    cluster.holding = ""
    assert opsassay("system", "down", "mine") == "mine is down.\n"
    assert cluster.namespaces() == []


# --- the token has expired --------------------------------------------------------------------------------------------


def test_credentials_that_were_renewed_are_read_again_and_others_are_named(cluster, api):
    def expired(_method, _path):
        return ... if cluster.asked[-1][3].get("authorization") == "Bearer new" else (401, {"message": "Unauthorized"})

    cluster.refuse = expired
    with pytest.raises(DeniedError, match="here does not accept these credentials; they may have expired"):
        api.list("Pod")
    assert len(cluster.asked) == 1, "they are the same: asking again tells nothing"
    cluster.config.write_text("half a kubecon")
    with pytest.raises(DeniedError, match="they may have expired"):
        api.list("Pod")
    cluster.login("new")
    assert api.list("Pod") == []
    assert [one[3]["authorization"] for one in cluster.asked[2:]] == ["Bearer t", "Bearer new"]


# --- a right is denied ------------------------------------------------------------------------------------------------


def test_what_is_denied_halfway_is_named_and_leaves_nothing(cluster, substrate):
    cluster.refuse = lambda _method, path: (403, {"message": "no secrets for you"}) if path.endswith("secrets") else ...
    with pytest.raises(DeniedError, match=r"here does not allow this \(no secrets for you\)"):
        substrate.deploy(TINY, "mine")
    assert cluster.namespaces() == []


def test_who_may_not_see_roles_of_the_cluster_removes_a_system_all_the_same(cluster, substrate):
    cluster.refuse = lambda _method, path: (403, {"message": "no"}) if "clusterrole" in path else ...
    with substrate.deployed(TINY, "mine"):
        assert cluster.namespaces() == ["mine", "mine-watch"]
    assert cluster.namespaces() == []


@pytest.mark.parametrize("allowed", [True, False])
def test_pods_of_a_system_that_is_removed_do_not_take_their_time_where_that_is_allowed(cluster, substrate, allowed):
    pods = ("/api/v1/namespaces/mine/pods", "/api/v1/namespaces/mine-watch/pods")
    hurried = []

    def noted(method, path):
        if method != "DELETE" or path not in pods:
            return ...
        hurried.append((path, cluster.asked[-1][2]["gracePeriodSeconds"]))
        return (200, {}) if allowed else (403, {"message": "no"})

    cluster.refuse = noted
    with substrate.deployed(TINY, "mine"):
        assert hurried == []
    assert sorted(hurried) == sorted((path, "1") for path in pods)
    assert cluster.namespaces() == []


def test_who_may_see_neither_nodes_nor_leases_observes_the_rest(cluster, substrate, api, tmp_path):
    substrate.deploy(TINY, "mine")
    hidden = ("/api/v1/nodes", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases")
    cluster.refuse = lambda _method, path: (403, {"message": "no"}) if path in hidden else ...
    observer = Observer(ClusterProbes(api, Watched(("mine",), {})), tmp_path / "timeline.jsonl", 5.0, 20.0)
    observer.stop()
    asyncio.run(observer.run())
    (tick,) = parse_timeline((tmp_path / "timeline.jsonl").read_text()).ticks
    assert [(o.depth, o.value) for o in tick.observations] == [("D1", 1.0), ("D2", 1.0), ("D4", 1.0)]
    beside = json.loads((tmp_path / "timeline.control-plane.jsonl").read_text())
    assert (beside["ready"], beside["nodes_not_ready"], beside["lease_ages_s"]) == (True, [], {})


def test_half_a_name_that_is_taken_is_refused_and_the_other_half_given_back(cluster, substrate):
    cluster.put("Namespace", "", "mine-watch", status={"phase": "Active"})
    with pytest.raises(UserError, match=r"namespace mine-watch exists on here; stop its system"):
        substrate.deploy(TINY, "mine")
    assert cluster.namespaces() == ["mine-watch"], "it is somebody else's"


# --- a namespace is stuck in Terminating ------------------------------------------------------------------------------


def test_a_namespace_that_does_not_go_is_reported_with_what_holds_it(cluster, substrate, monkeypatch):
    monkeypatch.setattr(module, "REMOVE_TIMEOUT_S", 0.05)
    stuck = pytest.raises(
        OperationError, match=r"mine is stuck in Terminating after 0.05 s: .*widgets.example.com has 1"
    )
    with stuck, substrate.deployed(TINY, "mine"):
        cluster.holding = FINALIZER
    (row,) = substrate.status()
    assert (row.name, row.phase, row.reason) == ("mine", "stopping", FINALIZER)


def test_a_stuck_namespace_of_a_dead_process_does_not_keep_the_others(cluster, substrate, monkeypatch):
    monkeypatch.setattr(module, "REMOVE_TIMEOUT_S", 0.05)
    for name in ("first", "second"):
        substrate.deploy(TINY, name, owned=True)
        cluster.objects["Namespace", "", name]["metadata"]["annotations"][OWNER] = f"{socket.gethostname()}:1:0"
    end = cluster.end
    cluster.end = lambda namespace: (
        setattr(cluster, "holding", FINALIZER * namespace.startswith("first")) or end(namespace)
    )
    rows = {row.name: row for row in substrate.status()}
    assert rows["first"].phase == "stopping"
    assert FINALIZER in rows["first"].reason
    assert rows["second"].phase == "cleared"
    assert cluster.namespaces() == ["first", "first-watch"]


def test_a_name_whose_former_namespace_is_on_its_way_out_is_waited_for_within_bounds(cluster, substrate, monkeypatch):
    leaving = {"phase": "Terminating", "conditions": [{"type": "x", "status": "True", "message": FINALIZER}]}
    cluster.put("Namespace", "", "mine", status=leaving)
    timer = threading.Timer(0.3, lambda: cluster.objects.pop(("Namespace", "", "mine")))
    timer.start()
    with substrate.deployed(TINY, "mine") as running:
        assert running.status().phase == "ready"
    cluster.put("Namespace", "", "mine", status=leaving)
    monkeypatch.setattr(module, "REMOVE_TIMEOUT_S", 0.05)
    with pytest.raises(OperationError, match=r"mine is stuck in Terminating .*widgets"):
        substrate.deploy(TINY, "mine")


# --- pods wait for room -----------------------------------------------------------------------------------------------


def test_pods_without_room_are_named_with_the_schedulers_reason_and_nothing_stays(cluster, substrate, monkeypatch):
    monkeypatch.setattr(module, "START_TIMEOUT_S", 0.2)
    cluster.pods = NO_ROOM
    with pytest.raises(StartError, match=r"mine is not ready after 0.2 s: .*Unschedulable: 0/4 nodes are available"):
        substrate.deploy(TINY, "mine")
    assert cluster.namespaces() == []


def test_an_undo_without_room_means_that_nothing_is_injected(cluster, api, monkeypatch):
    monkeypatch.setattr(undoing, "UNDO_READY_TIMEOUT_S", 0.2)
    cluster.pods = NO_ROOM
    cluster.put("Service", "mine", "auth", spec={"selector": {"app": "auth"}})
    change = Change("Service", "auth", "mine", patch={"spec": {"selector": {"app": "wrong"}}})
    with pytest.raises(StartError, match=r"\(Unschedulable: 0/4 nodes are available\); nothing was injected"):  # noqa: SIM117
        with injected(api, [change], "mine-watch", 60.0):
            pytest.fail("it began")
    assert [key for key in cluster.objects if key[0] != "Service"] == [], "the undo is gone too"
    assert cluster.objects["Service", "mine", "auth"]["spec"]["selector"] == {"app": "auth"}


# --- a watch drops, a node is lost, the control plane is ill ------------------------------------------------------------


@pytest.fixture
def observed(cluster, substrate, api, tmp_path):
    """Return a function that observes the tiny system for one tick and returns its readings and what is beside them."""
    substrate.deploy(TINY, "mine")
    cluster.put("Node", "", "worker1", spec={}, status=READY)
    probes = ClusterProbes(api, Watched(("mine",), {}))
    observer = Observer(probes, tmp_path / "timeline.jsonl", 5.0, 20.0)
    for one in probes.mirrors.values():
        one.start().wait()
    append_object(tmp_path / "timeline.jsonl", {"boot_id": "b", "cadence_s": 5.0, "schema_version": 2})
    turns = itertools.count()

    def tick():
        asyncio.run(observer.tick(next(turns)))
        (*_, last) = parse_timeline((tmp_path / "timeline.jsonl").read_text()).ticks
        beside = (tmp_path / "timeline.control-plane.jsonl").read_text().splitlines()[-1]
        return {o.depth: (o.value, o.failing) for o in last.observations}, json.loads(beside)

    tick.mirrors = probes.mirrors
    yield tick
    for one in probes.mirrors.values():
        one.stop()


def test_a_lost_node_is_in_the_record(cluster, observed):
    assert observed()[1]["nodes_not_ready"] == []
    lost = {"type": "Ready", "status": "Unknown"}
    cluster.objects["Node", "", "worker1"]["status"] = {"conditions": [lost]}
    observed.mirrors["Node"]._list_anew()
    assert observed()[1]["nodes_not_ready"] == ["worker1"]


def test_readings_of_a_watch_that_dropped_are_missing_until_it_is_resumed_and_that_is_counted(cluster, observed):
    assert observed()[0]["D1"] == (1.0, ())
    gone = "/apis/apps/v1/replicasets"
    cluster.refuse = lambda _method, path: None if path == gone else ...
    until(lambda: not observed.mirrors["ReplicaSet"].fresh, 20)
    readings, beside = observed()
    assert readings["D1"] == (None, ("watch:ReplicaSet",))
    assert readings["D2"] == (1.0, ())
    assert beside["watches_resumed"] >= 1
    cluster.refuse = lambda _method, _path: ...
    until(lambda: observed.mirrors["ReplicaSet"].fresh, 20)
    assert observed()[0]["D1"] == (1.0, ())


def test_an_api_that_is_not_reached_gives_no_reading_even_where_no_watch_has_noticed(cluster, observed, monkeypatch):
    for one in observed.mirrors.values():
        one.stop()  # a watch whose other end is silent: it neither ends nor tells anything
        until(lambda one=one: not one._thread.is_alive(), 20)
        one.error = None
    cluster.refuse = lambda _method, path: None if path == "/readyz" else ...
    readings, beside = observed()
    assert readings["D1"][0] is None
    assert readings["D2"] == (None, ("watch:Endpoints",))
    assert readings["D4"] == (None, ("watch:Pod",))
    assert (beside["reached"], beside["ready"], beside["failing"]) == (False, False, ["unreachable"])


def parts(**healthy):
    """Return what the API server says of parts that are no pods."""
    told = {name: [{"type": "Healthy", "status": str(well)}] for name, well in healthy.items()}
    return 200, {"items": [{"metadata": {"name": name}, "conditions": said} for name, said in told.items()]}


@pytest.mark.slow
def test_parts_whose_health_is_said_late_keep_no_reading_waiting_and_are_not_taken_for_failing(
    cluster, observed, monkeypatch
):
    monkeypatch.setattr(probes_module, "PARTS_WAIT_S", 0.2)
    answers = {"wait_s": 0.0, "parts": parts(scheduler=True, etcd=True)}

    def say(_method, path):
        if path != "/api/v1/componentstatuses":
            return ...
        said = answers["parts"]
        time.sleep(answers["wait_s"])
        return said

    cluster.refuse = say
    assert observed()[0]["D4"] == (1.0, ())
    answers["wait_s"] = 3.0
    began = time.monotonic()
    assert observed()[0] == {"D1": (1.0, ()), "D2": (1.0, ()), "D4": (1.0, ())}, (
        "what was said a moment ago still holds"
    )
    assert time.monotonic() - began < 2.5, "the tick did not wait for the answer"
    monkeypatch.setattr(probes_module, "PARTS_GOOD_S", 0.0)
    assert observed()[0] == {"D1": (1.0, ()), "D2": (1.0, ()), "D4": (None, ("componentstatuses",))}
    monkeypatch.setattr(probes_module, "PARTS_GOOD_S", 10.0)
    answers |= {"wait_s": 0.0, "parts": parts(scheduler=False, etcd=True)}
    until(lambda: observed()[0]["D4"] == (pytest.approx(2 / 3), ("scheduler",)), 20)
    answers["parts"] = parts(scheduler=False)
    until(lambda: observed()[0]["D4"] == (pytest.approx(1 / 3), ("etcd", "scheduler")), 20)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (None, (None, ("componentstatuses",))),
        ((503, {"message": "no"}), (None, ("componentstatuses",))),
        ((403, {"message": "no"}), (1.0, ())),
        ((404, {"message": "no"}), (1.0, ())),
    ],
    ids=["hung up", "failed", "not allowed", "no such thing"],
)
def test_parts_of_which_nothing_is_said_give_no_reading_but_where_that_is_how_it_is(
    cluster, observed, answer, expected
):
    cluster.refuse = lambda _method, path: answer if path == "/api/v1/componentstatuses" else ...
    assert observed()[0]["D4"] == expected


def test_health_is_asked_once_and_every_check_that_fails_is_told(cluster, api):
    words = [f"[+]check-{number} ok" for number in range(40)] + [
        "[-]etcd failed: reason withheld",
        "readyz check failed",
    ]
    cluster.refuse = lambda *_: (503, "\n".join(words).encode())
    health = api_health(api)
    assert (health["reached"], health["ready"], health["failing"]) == (True, False, ["etcd"])
    assert len(cluster.asked) == 1
    cluster.refuse = lambda *_: (403, {"message": "not for you"})
    health = api_health(api)
    assert (health["reached"], health["ready"], health["failing"]) == (True, True, [])
