"""What an agent is granted is what its scenario lists, and never a way to secrets, to a node or to the watchers."""

from __future__ import annotations

import base64
import stat
from contextlib import contextmanager

import pytest
import yaml
from pydantic import ValidationError
from tiny_api import tiny_api

from opsassay.core.errors import RefusedError
from opsassay.core.schema.cluster import GRANTABLE, STANDARD, AccessRule, OnCluster
from opsassay.testbed.scenarios import load_scenario, names
from opsassay.testbed.substrates.kubernetes.access import account
from opsassay.testbed.substrates.kubernetes.api.client import Api


def granted(objects):
    """Return (namespace or None, group, resource, verb) of every right in *objects*."""
    return {
        (role["metadata"].get("namespace"), group, resource, verb)
        for role in objects
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("name", names("kubernetes"))
def test_no_scenario_grants_secrets_roles_or_anything_where_the_watchers_are(name):
    rights = granted(account.role_objects("mine", "mine-watch", load_scenario(name).cluster.rules()))
    assert rights
    for namespace, _, resource, verb in rights:
        assert resource.partition("/")[0] not in {"secrets", "serviceaccounts", "roles", "rolebindings", "clusterroles"}
        assert verb not in {"*", "escalate", "bind", "impersonate", "use"}
        assert "*" not in resource
        assert namespace in (None, "mine", "kube-system")
        if namespace is None:
            assert verb in {"get", "list", "watch"} or resource == "nodes"
        if namespace == "kube-system":
            assert resource == "pods"


def test_the_account_lives_with_the_watchers_and_is_bound_where_the_rules_are():
    rules = (*STANDARD, AccessRule(resources=("pods",), verbs=("delete",), namespace="kube-system"))
    objects = account.role_objects("mine", "mine-watch", rules)
    assert objects[0]["kind"] == "ServiceAccount"
    assert objects[0]["metadata"]["namespace"] == "mine-watch"
    bindings = [one for one in objects if one["kind"].endswith("Binding")]
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": "mine-watch"}
    assert [one["subjects"] for one in bindings] == [[subject]] * 3
    assert {one["metadata"].get("namespace") for one in bindings} == {"mine", None, "kube-system"}
    rights = granted(objects)
    assert ("mine", "apps", "deployments", "patch") in rights
    assert ("mine", "networking.k8s.io", "networkpolicies", "delete") in rights
    assert ("mine", "", "pods/exec", "create") in rights
    assert (None, "", "nodes", "patch") not in rights


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"resources": ["secrets"], "verbs": ["get"]}, "never granted"),
        ({"resources": ["nodes/proxy"], "verbs": ["get"]}, "never granted"),
        ({"resources": ["serviceaccounts/token"], "verbs": ["create"]}, "never granted"),
        ({"resources": ["rolebindings"], "verbs": ["create"]}, "never granted"),
        ({"resources": ["*"], "verbs": ["get"]}, "never granted"),
        ({"resources": ["pods"], "verbs": ["*"]}, "Input should be"),
        ({"resources": ["pods"], "verbs": ["impersonate"]}, "Input should be"),
        ({"resources": ["pods"], "verbs": ["get"], "namespace": "{watch}"}, "one of the cluster's own"),
        ({"resources": ["pods"], "verbs": ["get"], "namespace": "shop-watch"}, "one of the cluster's own"),
        ({"resources": ["deployments"], "verbs": ["patch"], "namespace": "kube-system"}, "only pods may be deleted"),
        ({"resources": ["pods"], "verbs": ["create"], "namespace": "kube-system"}, "only pods may be deleted"),
        ({"resources": ["configmaps"], "verbs": ["get"], "namespace": "kube-system"}, "nobody looks into"),
        ({"resources": ["nodes", "pods"], "verbs": ["get"]}, "a rule each"),
        ({"resources": ["nodes"], "verbs": ["delete"]}, "only nodes may be changed"),
        ({"resources": ["persistentvolumes"], "verbs": ["create"]}, "only nodes may be changed"),
    ],
)
def test_a_rule_that_is_a_way_out_is_no_rule(rule, words):
    with pytest.raises(ValidationError, match=words):
        OnCluster.model_validate({"access": [rule]})


def test_pods_of_every_resource_that_may_be_granted_have_their_group():
    assert {account.GROUPS.get(one.partition("/")[0], "") for one in GRANTABLE} >= {"apps", "networking.k8s.io", ""}
    assert set(account.GROUPS) <= {one.partition("/")[0] for one in GRANTABLE}


@contextmanager
def cluster(folder, *ways, impersonates=True):
    """Serve a cluster that admits ordinary pods and those with *ways* to a node; yield it and a kubeconfig."""

    def answer(_method, path, query):
        if path.endswith("/token"):
            return 201, {"status": {"token": "t-1"}}
        assert query == {"dryRun": "All"}, "nothing is made"
        if not impersonates:
            return 403, {"message": "users is forbidden: cannot impersonate resource"}
        way = tiny.asked[-1][4]["metadata"]["name"].removeprefix("opsassay-way-")
        return (201, {}) if way in (*ways, "none") else (403, {"message": f"{way} pods are forbidden"})

    with tiny_api(answer, folder) as (tiny, config):
        yield tiny, config


def test_the_kubeconfig_holds_the_agents_token_and_nothing_of_the_administrators(tmp_path):
    with cluster(tmp_path) as (tiny, config):
        api = Api.connect(config)
        token = account.issue_token(api, "mine-watch", 60)
        path = account.write_kubeconfig(api, "mine", token, tmp_path / "agent")
    (_, asked, _, _, body), *_ = tiny.asked
    assert asked == "/api/v1/namespaces/mine-watch/serviceaccounts/operator/token"
    assert body["spec"]["expirationSeconds"] == 600, "no server issues less"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    written = yaml.safe_load(path.read_text())
    assert written["users"] == [{"name": "operator", "user": {"token": "t-1"}}]
    assert written["contexts"][0]["context"]["namespace"] == "mine"
    assert "abc" not in path.read_text(), "the administrator's token"


def test_the_authority_of_the_server_is_lent(tmp_path):
    class Known:
        server, verifies = "https://10.0.0.1", True

        def authority(self):
            return b"certificate"

    path = account.write_kubeconfig(Known(), "mine", "t", tmp_path / "agent")
    (entry,) = yaml.safe_load(path.read_text())["clusters"]
    assert base64.b64decode(entry["cluster"]["certificate-authority-data"]) == b"certificate"


def test_a_cluster_that_admits_ways_to_its_nodes_lets_no_agent_in(tmp_path):
    with cluster(tmp_path, *(way.lower() for way in account.PATHS_TO_A_NODE)) as (tiny, config):
        with pytest.raises(RefusedError, match="hostPath, privileged, hostNetwork, hostPID, a way"):
            account.require_closed(Api.connect(config), "mine", "image:1")
        asked = [(headers["Impersonate-User"], path) for _, path, _, headers, _ in tiny.asked]
    assert set(asked) == {("system:serviceaccount:kube-system:replicaset-controller", "/api/v1/namespaces/mine/pods")}
    bodies = {body["metadata"]["name"]: body["spec"] for *_, body in tiny.asked}
    assert bodies["opsassay-way-hostpath"]["volumes"] == [{"name": "host", "hostPath": {"path": "/"}}]
    assert bodies["opsassay-way-privileged"]["containers"][0]["securityContext"] == {"privileged": True}


def test_one_way_that_is_open_is_enough_and_it_is_named(tmp_path):
    with cluster(tmp_path, "hostpid") as (_, config):
        assert account.paths_to_a_node(Api.connect(config), "mine", "image:1") == ["hostPID"]


def test_a_cluster_that_refuses_them_does(tmp_path):
    with cluster(tmp_path) as (_, config):
        account.require_closed(Api.connect(config), "mine", "image:1")


def test_refusals_of_whoever_may_not_ask_for_the_controller_tell_nothing(tmp_path):
    with (
        cluster(tmp_path, impersonates=False) as (_, config),
        pytest.raises(RefusedError, match=r"is not known.*an ordinary one: .*cannot impersonate"),
    ):
        account.require_closed(Api.connect(config), "mine", "image:1")
