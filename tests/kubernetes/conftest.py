"""One native cluster for all tests that need one; they skip, and say why, where there can be none."""

from __future__ import annotations

import importlib
import json
import secrets
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))  # the cluster's own modules are named from the root of the checkout

from object_server import SmallCluster
from tests.kubernetes.native.cache import Cache
from tests.kubernetes.native.cluster import Cluster

from opsassay.testbed.substrates.kubernetes import substrate
from opsassay.testbed.substrates.kubernetes.actuators import undoing
from opsassay.testbed.substrates.kubernetes.api import client, mirror
from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.api.small_api import served


@pytest.fixture(scope="session")
def cluster():
    """Run a cluster of four workers for the session; one that `python -m tests.kubernetes.native start` started is used."""
    native = Cluster(Cache.default())
    if native.status()["running"]:
        yield native
        return
    native = Cluster(Cache.default(), "pytest")
    if reason := native.unavailable():
        pytest.skip(reason)
    native.stop()
    with native.running():
        yield native


@pytest.fixture(scope="session")
def api(cluster):
    """Return an administrator's connection to the cluster."""
    return Api.connect(cluster.kubeconfig)


@pytest.fixture
def kubectl(cluster):
    """Return a function that runs kubectl as an administrator and returns what it printed."""

    def run(*arguments, check=True, feed=None):
        command = [str(cluster.cache.binaries / "kubectl"), f"--kubeconfig={cluster.kubeconfig}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, input=feed, timeout=120)
        assert not check or done.returncode == 0, done.stderr
        return done.stdout if check else done

    return run


@pytest.fixture
def namespace(api, kubectl, request):
    """Make a namespace for one test and remove it, its pods at once."""
    name = f"{request.function.__name__.replace('_', '-')[:40].rstrip('-').lower()}-{secrets.token_hex(3)}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    kubectl("delete", "namespace", name, "--wait=false")
    kubectl("delete", "pods", "--all", "-n", name, "--grace-period=0", "--force", "--wait=false")


@pytest.fixture(scope="module")
def chaos_mesh(tmp_path_factory):
    """Return the module of the mechanism that `examples/chaos_mesh` brings, with its entry point where pip puts it."""
    package = Path(__file__).parents[2] / "examples" / "chaos_mesh"
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    site = tmp_path_factory.mktemp("site")
    about = site / f"opsassay_chaos_mesh-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = [f"[{group}]\n" + "".join(f"{n} = {place}\n" for n, place in of.items())
              for group, of in project["entry-points"].items()]  # fmt: skip
    (about / "entry_points.txt").write_text("\n".join(points))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(package)
        patch.syspath_prepend(site)
        yield importlib.import_module("opsassay_chaos_mesh.mechanism")


@pytest.fixture
def small_cluster(tmp_path, monkeypatch):
    """Serve a `SmallCluster`, with a kubeconfig in its ``config`` and without long waits between two looks."""
    monkeypatch.setattr(client, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(mirror, "RETRY_S", 0.01)
    for module in (substrate, undoing):
        monkeypatch.setattr(module, "LOOK_EVERY_S", 0.01)
    server = SmallCluster()
    server.texts |= {"/version": {"gitVersion": "v1.20.2"}, "/readyz": "ok"}
    server.config = tmp_path / "config"
    server.login("t")
    with served(server):
        yield server


def until(condition, timeout_s=180.0, every_s=0.2):
    """Wait until *condition* holds and return what it returned; fails with the last thing that it returned."""
    deadline = time.monotonic() + timeout_s
    while not (last := condition()):
        assert time.monotonic() < deadline, f"still {last!r}"
        time.sleep(every_s)
    return last


def web(name, namespace, replicas=2, **container):
    """Return a Deployment of the test web server and its Service."""
    labels = {"app": name}
    described = {
        "name": "web",
        "image": "docker.io/library/opsassay-box:1",
        "imagePullPolicy": "IfNotPresent",
        "args": ["web"],
        "ports": [{"containerPort": 8080}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "5m", "memory": "8Mi"}},
        **container,
    }
    pod = {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "containers": [described]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    wanted = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    metadata = {"name": name, "namespace": namespace}
    exposed = {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}
    return [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": wanted},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": exposed},
    ]


def applied(kubectl, objects):
    """Apply *objects* by kubectl."""
    kubectl("apply", "-f", "-", feed=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
