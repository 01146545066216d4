"""A namespace that exists, on a server that keeps objects: read, tried, kept, changed and put back."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml

from opsassay.core.errors import NotFoundError, RefusedError, UserError
from opsassay.core.schema.cluster import STANDARD, AccessRule
from opsassay.testbed.scenarios.generated.namespace import RECIPES
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.drawing import draw
from opsassay.testbed.substrates.kubernetes.manifests.system import MANAGED, watch_of
from opsassay.testbed.substrates.kubernetes.scenario import attached, standing
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

SHOP = Path(__file__).parent / "existing" / "shop.yaml"
PROBES = ("front-http:80", "orders:8080")


@pytest.fixture
def shop(small_cluster, monkeypatch):
    """Put the shop on the small cluster, with what answers its probes; return the server."""
    monkeypatch.setattr(standing, "ROLLED_OUT_WITHIN_S", 0.0)
    monkeypatch.setattr(attached, "GONE_WITHIN_S", 0.1)
    small_cluster.put("Namespace", "", "shop", status={"phase": "Active"})
    for one in yaml.safe_load_all(SHOP.read_text()):
        small_cluster.keep((one["kind"], "shop", one["metadata"]["name"]), one)
    for name in ("worker1", "worker2", "worker3"):
        metadata = {"labels": {"kubernetes.io/hostname": name}}
        small_cluster.put("Node", "", name, metadata=metadata, spec={})
    small_cluster.texts |= {f"/api/v1/namespaces/shop/services/{one}/proxy/healthz": "ok" for one in PROBES}
    return small_cluster


@pytest.fixture
def api(shop):
    return Api.connect(shop.config)


def test_a_draw_changes_nothing_and_reads_no_secret(shop, api):
    before = copy.deepcopy(shop.objects)
    drawn = draw(api, "shop")
    assert len(drawn.scenarios) == len(RECIPES)
    assert drawn.notes == []
    assert shop.objects == before
    writes = [one for one in shop.asked if one.method != "GET"]
    assert writes
    assert all("dryRun" in one.query for one in writes)
    assert not [one for one in shop.asked if "/secrets" in one.path]


def test_a_right_that_is_missing_costs_the_class_that_needs_it_with_a_sentence(shop, api):
    forbidden = {"kind": "Status", "message": "quotas are forbidden"}
    shop.refuse = lambda method, path: (403, forbidden) if "resourcequotas" in path and method == "POST" else ...
    drawn = draw(api, "shop")
    assert "quotas are forbidden" in drawn.left_out["Quota"]
    assert len(drawn.scenarios) == len(RECIPES) - 1
    shop.refuse = lambda _, path: (403, forbidden) if path.endswith("/nodes") else ...
    drawn = draw(api, "shop")
    assert drawn.left_out["CordonedNode"] == "this user may not list Node objects"
    assert len(drawn.notes) == 1


def test_an_undo_that_is_refused_leaves_its_class_out(shop, api):
    forbidden = {"kind": "Status", "message": "deletion is forbidden"}
    shop.refuse = lambda method, path: (403, forbidden) if "networkpolicies/" in path and method == "DELETE" else ...
    assert "deletion is forbidden" in draw(api, "shop").left_out["NetworkPolicy"]


def test_what_is_no_namespace_or_nothing_that_can_be_asked_is_one_sentence(shop, api):
    with pytest.raises(NotFoundError, match="shop"):
        draw(api, "shoop")
    shop.texts.clear()
    shop.texts |= {"/version": {"gitVersion": "v1.20.2"}}
    with pytest.raises(UserError, match="answers a GET with 200"):
        draw(api, "shop")
    shop.put("Namespace", "", "empty", status={"phase": "Active"})
    with pytest.raises(UserError, match="has no deployment"):
        draw(api, "empty")


def test_everything_that_was_changed_made_or_removed_is_put_back_object_by_object(shop, api):
    shop.put("Pod", "shop", "by-hand", metadata={}, spec={"containers": []})
    before, objects = standing.standing(api, "shop"), copy.deepcopy(shop.objects)
    assert standing.differences(api, "shop", before) == []
    api.delete("Deployment", "orders", "shop")
    api.delete("Service", "front-http", "shop")
    api.delete("Pod", "by-hand", "shop")
    api.patch("ConfigMap", "front-settings", {"data": {"UPSTREAM": None, "more": "1"}}, "shop", patch_type="merge")
    api.patch("Deployment", "front", {"spec": {"replicas": 0, "paused": True}}, "shop", patch_type="merge")
    api.patch("Node", "worker2", {"spec": {"unschedulable": True}}, patch_type="merge")
    api.create({"kind": "NetworkPolicy", "metadata": {"name": "new", "namespace": "shop"}, "spec": {}})
    shop.put("ReplicaSet", "shop", "front-2", metadata={}, spec={"template": {}})
    assert len(standing.differences(api, "shop", before)) == 8
    standing.put_back(api, "shop", before)
    assert standing.differences(api, "shop", before) == []
    for key, item in objects.items():
        if key[1] == "shop" and key[0] not in ("Pod", "Secret"):
            ours = {"metadata": 0, "status": 0}
            assert shop.objects[key] | ours == item | ours, key


def test_what_is_kept_in_parts_is_read_back_and_a_part_that_is_missing_is_noticed(shop, api, monkeypatch):
    monkeypatch.setattr(standing, "PART_BYTES", 100)
    before = standing.standing(api, "shop")
    standing.keep_standing(api, before, "shop", MANAGED)
    assert standing.read_kept(api, "shop") == before
    api.delete("Secret", "before-001", "shop")
    assert standing.read_kept(api, "shop") is None


def test_a_scenario_may_not_grant_what_cannot_be_put_back(api):
    before = standing.standing(api, "shop")
    with pytest.raises(RefusedError, match="persistentvolumeclaims"):
        standing.require_kept(STANDARD, before, "shop")
    with pytest.raises(RefusedError, match="pods/exec"):
        standing.require_kept([AccessRule(resources=("pods/exec",), verbs=("create",))], before, "shop")


def attached_shop(shop, api):
    return KubernetesSubstrate(shop.config, "here").attached(draw(api, "shop").system)


def test_beside_a_namespace_stands_what_was_listed_and_at_the_end_nothing(shop, api):
    before = {key: copy.deepcopy(item) for key, item in shop.objects.items() if "shop" in (key[1], key[2])}
    with attached_shop(shop, api) as running:
        assert running.watched(["orders"]).protected == {"orders": "http://orders.shop:8080/healthz"}
        made = {key for key in shop.objects if key[1] == watch_of("shop") or key[2] == watch_of("shop")}
        kinds = {kind for kind, *_ in made}
        assert kinds == {"Namespace", "Secret", "ConfigMap", "Deployment", "Service", "Pod"}
        api.delete("Deployment", "orders", "shop")
    assert {key for key in shop.objects if "shop" in (key[1], key[2])} >= before.keys()
    assert not [key for key in shop.objects if watch_of("shop") in (key[1], key[2])]


def test_the_next_look_at_the_cluster_puts_back_what_a_killed_owner_has_left(shop, api, monkeypatch):
    with monkeypatch.context() as patch, attached_shop(shop, api):
        api.patch("Deployment", "front", {"spec": {"replicas": 0}}, "shop", patch_type="merge")
        patch.setattr(attached, "leave", lambda *_: None)
    substrate = KubernetesSubstrate(shop.config, "here")
    assert substrate.names() == ["shop"]
    shop.objects["Namespace", "", "shop-watch"]["metadata"]["annotations"]["opsassay/owner"] = owner_that_died()
    (status,) = substrate.status()
    assert status.phase == "cleared"
    assert shop.objects["Deployment", "shop", "front"]["spec"]["replicas"] == 2
    assert substrate.names() == []


def owner_that_died():
    import socket

    return f"{socket.gethostname()}:999999999:1.00"


@pytest.mark.slow
def test_a_namespace_is_never_removed_with_the_system_that_it_is(shop, api):
    substrate = KubernetesSubstrate(shop.config, "here")
    with attached_shop(shop, api):
        substrate.remove("shop")
        assert ("Namespace", "", "shop") in shop.objects
        assert ("Deployment", "shop", "front") in shop.objects
    with pytest.raises(UserError, match="runs already"):
        substrate.deploy(draw(api, "shop").system, "shop")
