"""Worlds of given objects behind a real API: what is answered, and that all of it ends with the block."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest

from opsassay.core.errors import UserError
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS, version_in
from opsassay.testbed.substrates.kubernetes.api.object_server import OPTIONAL_GROUPS
from opsassay.testbed.substrates.kubernetes.api.serving import serving_objects
from opsassay.testbed.substrates.kubernetes.api.small_api import SmallApi, served

from .worlds import PODS, WORLD, answer_to, asked, connected, thing


def test_lists_and_items_say_what_they_are(world):
    status, listed = asked(world, "/api/v1/pods")
    assert (status, listed["kind"], listed["apiVersion"]) == (200, "PodList", "v1")
    assert {(item["kind"], item["apiVersion"]) for item in listed["items"]} == {("Pod", "v1")}
    assert [item["metadata"]["namespace"] for item in listed["items"]] == ["default", "shop", "shop"]
    status, roles = asked(world, "/apis/rbac.authorization.k8s.io/v1/clusterroles")
    assert (roles["kind"], roles["apiVersion"]) == ("ClusterRoleList", "rbac.authorization.k8s.io/v1")
    status, role = asked(world, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Areader")
    assert (status, role["kind"], role["metadata"]["name"]) == (200, "ClusterRole", "system:reader")


def test_discovery_leads_to_every_kind(world):
    _, groups = asked(world, "/apis")
    named = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups["groups"]]
    found = {}
    for path in ["/api/v1", *named]:
        _, listed = asked(world, path)
        for resource in listed["resources"]:
            found[resource["kind"]] = (listed["groupVersion"], resource["name"], resource["namespaced"])
            _, collection = asked(world, f"{path}/{resource['name']}")
            assert collection["kind"] == f"{resource['kind']}List"
    assert found == {
        kind: (version_in(group), plural, namespaced)
        for kind, (group, plural, namespaced) in KINDS.items()
        if not group.startswith(OPTIONAL_GROUPS)
    }
    assert asked(world, "/apis/apps")[1]["versions"] == [{"groupVersion": "apps/v1", "version": "v1"}]
    assert asked(world, "/version")[1]["gitVersion"].startswith("v1.")
    assert asked(world, "/healthz") == (200, b"ok")


@pytest.mark.parametrize(
    "path",
    [
        "/openapi/v2", "/openapi/v3", "/", "/api/v2", "/apis/nothing.io", "/apis/apps/v1beta1/deployments",
        "/api/v1/unicorns",
        "/api/v1/namespaces/shop/nodes", "/api/v1/namespaces/shop/pods/web-1/log", "/api/v1/pods/web-1",
        "/api/v1/namespaces/shop/pods/nobody", "/apis/chaos-mesh.org/v1alpha1",
        "/apis/kyverno.io/v1",
    ],
)  # fmt: skip
def test_what_is_not_there_is_a_status(world, path):
    status, said = asked(world, path)
    assert (status, said["kind"], said["apiVersion"], said["status"], said["reason"], said["code"]) == (
        404, "Status", "v1", "Failure", "NotFound", 404,
    )  # fmt: skip


def test_the_same_world_reads_the_same_each_time():
    def read():
        with serving_objects(WORLD) as serving:
            return asked(serving.url, "/api/v1/pods"), asked(serving.url, "/api/v1/namespaces")

    assert read() == read()


def test_a_world_does_not_change_with_what_it_was_made_of():
    objects = [thing("Pod", "web-1", "shop", spec={"containers": []})]
    with serving_objects(objects) as serving:
        objects[0]["spec"]["containers"].append("more")
        assert asked(serving.url, f"{PODS}/web-1")[1]["spec"] == {"containers": []}
    assert objects[0]["metadata"] == {"name": "web-1", "namespace": "shop"}, "nor the other way round"


def test_a_field_with_the_name_of_an_argument_is_a_field():
    with serving_objects(
        [thing("ConfigMap", "a", "shop") | {"name": "x", "self": "y", "key": "z"}], read_only=False
    ) as serving:
        _, found = asked(serving.url, "/api/v1/namespaces/shop/configmaps/a")
        assert [found[field] for field in ("name", "self", "key")] == ["x", "y", "z"]
        made = {"metadata": {"name": "b"}, "name": "x", "namespace": "elsewhere", "body": 1}
        assert asked(serving.url, "/api/v1/namespaces/shop/configmaps", "POST", made)[0] == 201


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ([thing("Unicorn", "a")], "There is no kind of object 'Unicorn'"),
        ([thing("pod", "a")], "did you mean 'Pod'"),
        ([thing("Deployment", "a", version="apps/v1beta1")], "the one that is served here is apps/v1"),
        ([thing("Pod", "a"), thing("Pod", "a", "default")], "two objects Pod default/a"),
        ([{"apiVersion": "v1", "kind": "Pod"}], "Object 0 is none that an API server keeps"),
        ([{"apiVersion": "v1", "kind": "Pod", "metadata": {}}], "metadata.name"),
        ([{"apiVersion": "v1", "kind": "Pod", "metadata": []}], "metadata.name"),
        ([thing("Pod", "a/b")], "'a/b' for a name"),
        ([thing("Pod", "a", 5)], "5 for a name or namespace"),
        ([thing("Pod", "a", spec=datetime.now(UTC))], "not JSON serializable"),
        (["text"], "Object 0 is none"),
    ],
)
def test_objects_that_cannot_be_served_are_refused_in_a_sentence(objects, words):
    with pytest.raises(UserError, match=words) as caught, serving_objects(objects):
        pass
    assert str(caught.value).count("\n") == 0


def test_a_socket_that_cannot_be_made_is_refused_and_nothing_of_others_is_removed(tmp_path):
    there = tmp_path / "there"
    there.write_text("mine")
    for path in (there, tmp_path / "none" / "api.sock", tmp_path / ("x" * 120)):
        with pytest.raises(UserError, match="socket"), serving_objects(WORLD, socket=path):
            pass
    assert there.read_text() == "mine"


def test_a_socket_is_for_its_owner_and_goes_with_the_block(tmp_path):
    path = tmp_path / "api.sock"
    with serving_objects(WORLD, socket=path):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
    with serving_objects(WORLD, socket=path):
        assert asked(path, f"{PODS}/web-1")[0] == 200


def test_fifty_at_once_are_answered(world):
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: asked(world, PODS), range(300)))
    assert {status for status, _ in answers} == {200}
    assert all(listed == answers[0][1] for _, listed in answers)


def test_everything_ends_with_the_block(tmp_path):
    before = set(threading.enumerate())
    for path in (None, tmp_path / "api.sock"):
        began = time.monotonic()
        with serving_objects(WORLD, socket=path) as serving:
            idle = [connected(path or serving.url) for _ in range(20)]
            idle[0].sendall(b"GET /ver")
            asked(path or serving.url, "/healthz")
        assert time.monotonic() - began < 4.0, "nobody is waited for"
        assert set(threading.enumerate()) == before
        for connection in idle:
            with connection:
                try:
                    assert connection.recv(1) == b""
                except ConnectionResetError:
                    continue
        with pytest.raises(OSError, match=r"refused|No such file"):
            connected(path or serving.url)


def test_the_end_comes_although_the_block_fails(tmp_path):
    path = tmp_path / "api.sock"
    with pytest.raises(ZeroDivisionError), serving_objects(WORLD, socket=path):
        raise ZeroDivisionError
    assert not path.exists()


def test_hundreds_of_worlds_are_served_one_after_another():
    """A loop that looks for its end twice a second, as the standard library's does, would need 50 s for this."""
    began = time.monotonic()
    for _ in range(100):
        with serving_objects(WORLD):
            pass
    assert time.monotonic() - began < 5.0


def test_requests_that_are_answered_at_the_same_time_are_not_mistaken_for_each_other():
    together = threading.Barrier(2)

    def echo(*_):
        together.wait(10)  # both have been heard
        return 200, api.request.body

    with served(SmallApi(echo)) as api, ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda number: asked(api.url, "/", "POST", {"n": number}), (1, 2)))
    assert answers == [(200, {"n": 1}), (200, {"n": 2})]


def test_a_server_answers_each_of_many_by_its_own_request():
    with serving_objects([], read_only=False) as serving, ThreadPoolExecutor(20) as pool:
        bodies = [{"metadata": {"name": f"n{number}"}, "data": {"n": str(number)}} for number in range(200)]
        path = "/api/v1/namespaces/default/configmaps"
        assert {code for code, _ in pool.map(lambda body: asked(serving.url, path, "POST", body), bodies)} == {201}
        _, listed = asked(serving.url, path)
        assert {(item["metadata"]["name"], item["data"]["n"]) for item in listed["items"]} == {
            (f"n{number}", str(number)) for number in range(200)
        }


def test_a_watch_has_what_is_there_and_ends():
    with serving_objects(WORLD) as serving:
        raw = answer_to(serving.url, f"GET {PODS}?watch=true HTTP/1.1\r\n\r\n".encode())
        assert raw.count(b'"type": "ADDED"') == 2
        raw = answer_to(serving.url, f"GET {PODS}?watch=1&resourceVersion=7 HTTP/1.1\r\n\r\n".encode())
        assert raw.partition(b"\r\n\r\n")[2] == b"", "nothing happens in it"


def test_a_script_that_hangs_up_sends_nothing():
    with served(SmallApi(lambda *_: None)) as api:
        assert answer_to(api.url, b"GET / HTTP/1.1\r\n\r\n") == b""
