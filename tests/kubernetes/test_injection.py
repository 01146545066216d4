"""What undoes an injection restores what stood, is in the cluster before anything changes, and may do nothing else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_api import tiny_api

from opsassay.core.errors import OperationError, RefusedError
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.substrates.kubernetes.actuators import inject
from opsassay.testbed.substrates.kubernetes.actuators.changes import Change, _inverse, injected, undo_of
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.merging import merge_patch

values = st.recursive(
    st.sampled_from([0, 1, "x", "y"]),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
patches = st.recursive(
    st.sampled_from([None, 2, "z"]),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abc"), values), st.dictionaries(st.sampled_from("abcd"), patches))
def test_the_inverse_of_a_patch_restores_what_stood(standing, patch):
    assert merge_patch(merge_patch(standing, patch), _inverse(patch, standing)) == standing


POLICY = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "deny", "namespace": "shop"},
    "spec": {"podSelector": {}},
}
SERVICE = {"metadata": {"name": "auth", "namespace": "shop"}, "spec": {"selector": {"app": "auth"}}}
CHANGES = [
    Change("Service", "auth", "shop", patch={"spec": {"selector": {"app": "wrong"}}}),
    Change("NetworkPolicy", "deny", "shop", create=POLICY),
]


def cluster(method, path, _query):
    """Answer as a cluster in which the service stands, no policy does, and every pod runs at once."""
    if method != "GET":
        return 200, {"metadata": {"name": "x"}}
    if path.endswith("/services/auth"):
        return 200, SERVICE
    if path.endswith("/pods"):
        return 200, {"items": [{"metadata": {"name": name}, "status": {"phase": "Running"}} for name in "ab"]}
    return 404, {"message": "not found"}


def test_the_undo_runs_before_anything_changes_and_has_the_rights_for_it_alone(tmp_path):
    with tiny_api(cluster, tmp_path) as (tiny, config), injected(Api.connect(config), CHANGES, "shop-watch", 60.0):
        before = list(tiny.asked)
    tried = [path for method, path, query, *_ in before if method != "GET" and query.get("dryRun") == "All"]
    assert tried == ["/api/v1/namespaces/shop-watch/pods"], "the server has said that it takes such a pod"
    writes = [
        (method, path, body) for method, path, query, _, body in before if method != "GET" and "dryRun" not in query
    ]
    places = [path.rsplit("/", 2)[1 if method == "PATCH" else 2] for method, path, _ in writes]
    assert places[-3:] == ["jobs", "services", "networkpolicies"], (
        "the undo is the last that is made before the changes"
    )
    (order,) = [json.loads(body["data"]["order.json"]) for _, _, body in writes if body.get("kind") == "ConfigMap"]
    assert [(r["method"], r["path"].partition("?")[0]) for r in order["requests"]] == [
        ("DELETE", "/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/deny"),
        ("PATCH", "/api/v1/namespaces/shop/services/auth"),
    ]
    assert order["requests"][1]["body"] == {"spec": {"selector": {"app": "auth"}}}
    (name,) = {body["metadata"]["name"] for _, _, body in writes if body.get("kind") == "ConfigMap"}
    assert order["path"] == f"/api/v1/namespaces/shop-watch/configmaps/{name}"
    rules = [
        (
            body["metadata"]["namespace"],
            *(body["rules"][0][key] for key in ("apiGroups", "resources", "resourceNames", "verbs")),
        )
        for _, _, body in writes
        if body.get("kind") == "Role"
    ]
    assert rules == [
        ("shop-watch", [""], ["configmaps"], [name], ["get", "delete"]),
        ("shop", ["networking.k8s.io"], ["networkpolicies"], ["deny"], ["delete"]),
        ("shop", [""], ["services"], ["auth"], ["patch"]),
    ]
    after = [(method, path.rpartition("/")[2]) for method, path, *_ in tiny.asked[len(before) :]]
    assert after[:2] == [("DELETE", "deny"), ("PATCH", "auth")]
    made = [path for method, path, _ in writes if method == "POST"]
    assert sum(method == "DELETE" for method, _ in after) == len(made), "nothing of the undo stays, nor the policy"


def test_an_injection_that_cannot_be_taken_back_is_refused_before_it_begins(tmp_path):
    refused = [
        (Change("Service", "none", "shop", patch={}), "There is no Service none"),
        (Change("Service", "auth", "shop", create=SERVICE), "is there already"),
        (Change("Service", "auth", "shop", patch=[], how="json"), "Only merge patches"),
        (Change("Service", "auth", "shop", patch={"metadata": {"resourceVersion": "7"}}), "leave resourceVersion out"),
    ]
    with tiny_api(cluster, tmp_path) as (tiny, config):
        for change, words in refused:
            with pytest.raises(RefusedError, match=words), injected(Api.connect(config), [change], "shop-watch", 60.0):
                pytest.fail("it began")
    assert {method for method, *_ in tiny.asked} == {"GET"}


def test_a_pod_is_removed_only_where_something_makes_it_again_and_needs_no_undo(tmp_path):
    owned = [{"kind": "ReplicaSet", "name": "auth-1", "controller": True}]
    pods = {
        "auth-1-x": {"metadata": {"name": "auth-1-x", "ownerReferences": owned}},
        "bare": {"metadata": {"name": "bare"}},
    }

    def script(method, path, _query):
        found = pods.get(path.rpartition("/")[2])
        return (200, found or {}) if method == "DELETE" or found else (404, {"message": "not found"})

    with tiny_api(script, tmp_path) as (tiny, config):
        api = Api.connect(config)
        with pytest.raises(RefusedError, match="Nothing would make Pod bare again"):
            undo_of(api, Change("Pod", "bare", "shop", delete=True))
        with injected(api, [Change("Pod", "auth-1-x", "shop", delete=True)], "shop-watch", 60.0):
            (removal,) = [one for one in tiny.asked if one[0] != "GET"]
    assert removal[:3] == ("DELETE", "/api/v1/namespaces/shop/pods/auth-1-x", {"gracePeriodSeconds": "0"})
    assert [one[0] for one in tiny.asked if one[0] != "GET"] == ["DELETE"], "nothing is left to undo"


@pytest.mark.parametrize(
    ("answer", "words"),
    [((422, {"message": "no more"}), "no more"), (None, "cannot be reached")],
    ids=["refused", "lost"],
)
def test_an_undo_that_fails_here_is_left_to_the_cluster_and_said(tmp_path, answer, words):
    def script(method, path, query):
        if method == "PATCH" and broken:
            return answer
        return cluster(method, path, query)

    broken = []
    with tiny_api(script, tmp_path) as (tiny, config):
        with (
            pytest.raises(OperationError, match=rf"{words}.* undoes the injection within \d+ s"),
            injected(Api.connect(config), CHANGES, "shop-watch", 60.0),
        ):
            broken.append(True)
        removed = [path.rpartition("/")[2] for method, path, *_ in tiny.asked if method == "DELETE"]
    assert removed == ["deny"], "what could be undone is undone, and the undo's pod stays"


def test_of_two_that_find_a_former_injection_over_one_begins(small_cluster):
    """Both look before either writes: the server lets one of them replace what has passed."""
    api, plan = Api.connect(small_cluster.config), FaultPlan(fault="PodKill", target={"service": "back"})
    passed = {"plan": "PodKill on back", "until": "1"}
    small_cluster.put("ConfigMap", "mine-watch", inject.ACTIVITY, data=passed)
    with inject._alone(api, "mine-watch", plan):
        assert inject.activity(api, "mine-watch") == plan.name
        with pytest.raises(RefusedError, match="is still active"), inject._alone(api, "mine-watch", plan):
            pytest.fail("it began")
    assert inject.activity(api, "mine-watch") is None
    small_cluster.put("ConfigMap", "mine-watch", inject.ACTIVITY, data=passed)
    before = api.get("ConfigMap", inject.ACTIVITY, "mine-watch")
    with inject._alone(api, "mine-watch", plan):
        small_cluster.refuse = lambda method, _path: (200, before) if method == "GET" else ...
        with pytest.raises(RefusedError, match="just begun"), inject._alone(api, "mine-watch", plan):
            pytest.fail("it began")
        small_cluster.refuse = lambda _method, _path: ...
        assert inject.activity(api, "mine-watch") == plan.name, "the first goes on"
