"""The real kubectl reads a world of given objects as it reads a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
import yaml

from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS
from opsassay.testbed.substrates.kubernetes.api.object_server import OPTIONAL_GROUPS
from opsassay.testbed.substrates.kubernetes.api.serving import serving_objects
from opsassay.testbed.substrates.kubernetes.api.small_api import write_kubeconfig

from .worlds import WORLD


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory):
    """Return what runs kubectl on a server of *objects* and returns what it did."""
    program = os.environ.get("OPSASSAY_TEST_KUBECTL") or shutil.which("kubectl")
    if program is None:
        pytest.skip(
            "no kubectl is on PATH (OPSASSAY_TEST_KUBECTL may name one); the server was not read by a real client"
        )
    home = tmp_path_factory.mktemp("home")

    def run(served, *words, feed=None):
        config = write_kubeconfig(home / f"{served.url.rpartition(':')[2]}.yaml", served.url)
        environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
        command = [program, f"--kubeconfig={config}", *words]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, input=feed, timeout=60
        )

    return run


@pytest.fixture(scope="module")
def world():
    with serving_objects(WORLD) as served:
        yield served


@pytest.fixture
def printed(kubectl, world):
    def run(*words):
        done = kubectl(world, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def names(listed):
    return [item["metadata"]["name"] for item in listed["items"]]


def test_every_object_comes_back_as_it_was_given(printed):
    kinds = {one["kind"] for one in WORLD}
    listed = json.loads(printed("get", ",".join(KINDS[kind][1] for kind in sorted(kinds)), "-A", "-o", "json"))
    found = {(item["kind"], item["metadata"]["name"]): item for item in listed["items"]}
    assert len(found) == len(WORLD)
    for given in WORLD:
        item = found[given["kind"], given["metadata"]["name"]]
        metadata = item.pop("metadata")
        assert given["metadata"].items() <= metadata.items()
        assert set(metadata) - set(given["metadata"]) <= {"uid", "resourceVersion", "creationTimestamp", "namespace"}
        assert item == {key: value for key, value in given.items() if key != "metadata"}


def test_a_namespace_a_name_and_labels_select(printed):
    assert names(yaml.safe_load(printed("get", "pods", "-n", "shop", "-o", "yaml"))) == ["db-1", "web-1"]
    one = json.loads(printed("get", "pod", "web-1", "-n", "shop", "-o", "json"))
    assert (one["kind"], one["apiVersion"], one["metadata"]["namespace"]) == ("Pod", "v1", "shop")
    for selector, expected in (
        ("app=web", ["web-1"]),
        ("app!=web", ["loose", "db-1"]),
        ("app in (web, db),tier", ["web-1"]),
        ("!app", ["loose"]),
    ):
        assert names(json.loads(printed("get", "po", "-A", "-l", selector, "-o", "json"))) == expected, selector
    fields = ("--field-selector", "metadata.name=web-1,status.phase!=Pending")
    assert names(json.loads(printed("get", "pods", "-A", *fields, "-o", "json"))) == ["web-1"]


def test_a_field_that_no_server_selects_by_is_refused(kubectl, world):
    done = kubectl(world, "get", "pods", "-A", "--field-selector", "spec.colour=red")
    assert done.returncode == 1
    assert "BadRequest" in done.stderr
    assert "field label not supported: spec.colour" in done.stderr


def test_tables_have_the_columns_of_a_cluster(printed):
    pods = printed("get", "pods", "-A").splitlines()
    assert pods[0].split() == ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert [line.split()[:5] for line in pods[1:]] == [
        ["default", "loose", "0/1", "Pending", "0"],
        ["shop", "db-1", "0/1", "<unknown>", "0"],
        ["shop", "web-1", "1/1", "Running", "3"],
    ]
    everything = printed("get", "all", "-n", "shop", "-o", "wide")
    assert "deployment.apps/web   1/2     2            1" in everything
    assert "cronjob.batch/nightly   0 3 * * *" in everything
    spaces = [line.split()[:2] for line in printed("get", "namespaces").splitlines()[1:]]
    assert spaces == [["default", "Active"], ["kube-system", "Active"], ["shop", "Active"]]


@pytest.mark.slow
def test_every_kind_is_printed_described_and_named(printed):
    for one in WORLD:
        name, namespace = one["metadata"]["name"], one["metadata"].get("namespace", "default")
        row = printed("get", one["kind"].lower(), name, "-n", namespace, "--no-headers")
        assert row.split()[0] == name
        assert "<invalid>" not in row
    for kind, name in (
        ("pod", "web-1"),
        ("deployment", "web"),
        ("rolebinding", "readers"),
        ("networkpolicy", "isolation"),
    ):
        assert printed("describe", kind, name, "-n", "shop").split()[:2] == ["Name:", name]
    resources = printed("api-resources", "--no-headers")
    assert {line.split()[-1] for line in resources.splitlines()} == {
        kind for kind, (group, *_) in KINDS.items() if not group.startswith(OPTIONAL_GROUPS)
    }


def test_what_is_not_there_is_not_found_as_on_a_cluster(kubectl, world):
    absent = kubectl(world, "get", "pod", "nobody", "-n", "shop")
    assert (absent.returncode, absent.stderr.strip()) == (1, 'Error from server (NotFound): pods "nobody" not found')
    grouped = kubectl(world, "get", "deployment", "nobody", "-n", "shop")
    assert grouped.stderr.strip() == 'Error from server (NotFound): deployments.apps "nobody" not found'
    strange = kubectl(world, "get", "unicorns")
    assert strange.stderr.strip() == 'error: the server doesn\'t have a resource type "unicorns"'
    empty = kubectl(world, "get", "pods", "-n", "elsewhere")
    assert (empty.returncode, empty.stderr.strip()) == (0, "No resources found in elsewhere namespace.")


@pytest.mark.parametrize(
    "words",
    [
        ("delete", "pod", "web-1", "-n", "shop"),
        ("create", "namespace", "mine"),
        ("label", "pod", "web-1", "-n", "shop", "team=other"),
        ("scale", "deployment", "web", "-n", "shop", "--replicas=9"),
        ("patch", "clusterrole", "system:reader", "-p", '{"rules":[]}'),
    ],
)
def test_a_write_to_a_world_that_is_only_read_is_refused(kubectl, world, printed, words):
    before = printed("get", "pods,deployments,clusterroles,namespaces", "-A", "-o", "json")
    done = kubectl(world, *words)
    assert done.returncode == 1
    assert "(Forbidden)" in done.stderr or "(NotFound)" in done.stderr, "scale asks for a part that is not there"
    assert printed("get", "pods,deployments,clusterroles,namespaces", "-A", "-o", "json") == before


def test_a_world_that_may_be_written_keeps_what_kubectl_writes(kubectl):
    with serving_objects(WORLD, read_only=False) as served:

        def run(*words, feed=None):
            done = kubectl(served, *words, feed=feed)
            assert done.returncode == 0, done.stderr
            return done.stdout

        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}}
        run("create", "--validate=false", "-f", "-", feed=json.dumps(space))
        run("label", "pod", "web-1", "-n", "shop", "tier-", "team=a")
        run("patch", "deployment", "web", "-n", "shop", "-p",
            '{"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}}')  # fmt: skip
        run("delete", "pod", "db-1", "-n", "shop")
        assert "mine" in run("get", "namespaces")
        (pod,) = json.loads(run("get", "pods", "-n", "shop", "-o", "json"))["items"]
        assert pod["metadata"]["labels"] == {"app": "web", "team": "a"}
        (container,) = json.loads(run("get", "deploy", "web", "-n", "shop", "-o", "json"))["spec"]["template"]["spec"][
            "containers"
        ]
        assert (container["image"], container["ports"]) == ("web:2", [{"containerPort": 8080}])
