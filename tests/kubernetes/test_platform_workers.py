"""Workers of the platform as pods of the Deployment that `opsassay system render worker` prints.

No image is built here: pods run the one of the testbed, and find the packages of this checkout on volumes of their nodes,
which are this machine. The server and its PostgreSQL are processes at the gateway of the cluster's network.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
import yaml
from click.testing import CliRunner
from tests.server.conftest import Running, finished

from conftest import applied, until
from opsassay.cli.system.render import worker as command
from opsassay.server import embedded
from opsassay.testbed.kernel.private_root import unprivileged
from opsassay.testbed.workload.postgresql import postgresql_programs

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1200)]
ROOT, GATEWAY, PORT = Path(__file__).parents[2], "10.77.0.1", 8400
CLONE_NEWNET = 0x40000000


@contextlib.contextmanager
def inside(cluster):
    """Have this thread in the network of the cluster's gateway; what it starts there stays there."""
    leader = (cluster.folder / "pid").read_text().split()[0]
    with Path("/proc/thread-self/ns/net").open() as own, Path(f"/proc/{leader}/ns/net").open() as theirs:
        assert ctypes.CDLL(None).setns(theirs.fileno(), CLONE_NEWNET) == 0
        try:
            yield
        finally:
            assert ctypes.CDLL(None).setns(own.fileno(), CLONE_NEWNET) == 0


@pytest.fixture
def database(cluster, tmp_path):
    """A PostgreSQL that pods reach; its URL."""
    programs, data, password = postgresql_programs(), tmp_path / "postgresql", "no-secret"
    embedded._initialise_cluster(programs, data, password)
    with (data / "pg_hba.conf").open("a") as allowed:
        allowed.write("host all all 10.0.0.0/8 scram-sha-256\n")
    options = [f"listen_addresses={GATEWAY}", "unix_socket_directories=", "max_connections=100"]
    words = [word for option in options for word in ("-c", option)]
    command = [*unprivileged(programs.parent, data), str(programs / "postgres"), "-D", str(data), *words]
    url = f"postgresql://{embedded.USER}:{password}@{GATEWAY}/"
    with inside(cluster):
        server = subprocess.Popen(command, cwd="/", stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        until(lambda: made(cluster, url))
        yield url + embedded.DATABASE
    finally:
        embedded._shut_down(server, data)


def made(cluster, url):
    place = url + "postgres"
    with contextlib.suppress(psycopg.OperationalError), inside(cluster), psycopg.connect(place, autocommit=True) as one:
        return one.execute(f"CREATE DATABASE {embedded.DATABASE}")
    return None


@pytest.fixture
def server(cluster, database, tmp_path):
    """The platform's server, without workers of its own."""
    words = ("--workers", "0", "--bind", GATEWAY, "--name", "opsassay-server", "--database", database)
    with inside(cluster):
        running = Running(tmp_path / "state", *words, port=PORT)
    yield running
    running.end()


def volume(namespace, name, folder):
    """Return a claim *name* of a *folder* of this machine, and the volume behind it."""
    spec, size = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}, {"storage": "1Gi"}
    behind = f"{namespace}-{name}"
    claimed = {"volumeName": behind, "resources": {"requests": size}}
    place = {"capacity": size, "hostPath": {"path": str(folder)}, "claimRef": {"namespace": namespace, "name": name}}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": behind}, "spec": {**spec, **place}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace},
         "spec": {**spec, **claimed}},
    ]  # fmt: skip


def deployment(namespace):
    """Return what `opsassay system render worker` prints, with this machine's packages and user in place of an image's."""
    words = ["--server", f"http://opsassay-server:{PORT}", "--replicas", "2", "--namespace", namespace]
    printed = CliRunner().invoke(command, words)
    assert printed.exit_code == 0, printed.output
    rendered = yaml.safe_load(printed.output)
    pod = rendered["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container["image"] = "opsassay-runtime:0.1.0"
    container["env"] += [{"name": "PATH", "value": f"{sys.prefix}/bin:/bin"}, {"name": "PYTHONPATH", "value": ""}]
    pod["securityContext"] = {"runAsUser": os.geteuid()}
    for name, place in (("checkout", ROOT), ("packages", sys.prefix)):
        container["volumeMounts"].append({"name": name, "mountPath": str(place), "readOnly": True})
        pod["volumes"].append({"name": name, "persistentVolumeClaim": {"claimName": name}})
    return rendered


def address(namespace):
    """Return the service of the server, which is no pod."""
    metadata, ports = {"name": "opsassay-server", "namespace": namespace}, [{"port": PORT}]
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}},
        {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata,
         "subsets": [{"addresses": [{"ip": GATEWAY}], "ports": ports}]},
    ]  # fmt: skip


@pytest.fixture
def workers(cluster, server, database, namespace, kubectl):
    """The workers as pods; a function that tells how many have registered."""
    folders = {"opsassay-state": server.state, "checkout": ROOT, "packages": Path(sys.prefix)}
    volumes = [one for name, folder in folders.items() for one in volume(namespace, name, folder)]
    kubectl("create", "secret", "generic", "opsassay", f"--from-literal=database={database}", "-n", namespace)
    applied(kubectl, [*volumes, *address(namespace), deployment(namespace)])

    def registered():
        with inside(cluster), psycopg.connect(database) as connection:
            return connection.execute("SELECT count(*) FROM procrastinate_workers").fetchone()[0]

    yield registered
    kubectl("delete", "pv", *(f"{namespace}-{name}" for name in folders), "--wait=false")


def test_pods_take_cells_and_what_a_killed_one_held_is_taken_over_and_scored_once(
    cluster, server, workers, namespace, kubectl
):
    until(lambda: workers() == 2, 600)
    with inside(cluster):
        owner = server.user("ada")
        form = {"name": "chancer", "kind": "built_in", "domains": ["finops"], "source": "chance"}
        agent = owner.ask("POST", "/api/agents", form)["id"]
        benchmark = finished(owner, owner.request(agent, "bill"), 600)
    assert [cell["agent"] for cell in benchmark["cells"]] == ["Finished"] * 3, benchmark["cells"]
    assert {cell["worker"].rsplit("-", 2)[0] for cell in benchmark["cells"]} <= pods(kubectl, namespace)

    kubectl("scale", "deployment/opsassay-worker", "--replicas=3", "-n", namespace)
    until(lambda: workers() == 3, 600)
    part = {"tasks": ["category-cost", "top-applications"], "repeats": 12}
    (server.state / "task_sets" / "many.yaml").write_text(yaml.safe_dump({"domain": "finops", "part": part}))
    with inside(cluster):
        asked = owner.request(agent, "many")
        held = until(
            lambda: [cell for cell in owner.benchmark(asked)["cells"] if cell["worker"] and not cell["run"]], 300
        )
    process_of(held[0]["worker"]).kill()
    with inside(cluster):
        cells = {cell["id"]: cell for cell in finished(owner, asked, 300)["cells"]}
        results = [e["subject"] for e in owner.ask("GET", "/api/events?limit=10000")["items"] if e["kind"] == "result"]
    assert {cell["bundle"] for cell in cells.values()} == {"Terminated"}
    assert len({cell["run"] for cell in cells.values()}) == 24
    assert sorted(subject for subject in results if subject.startswith(asked)) == sorted(cells)


def pods(kubectl, namespace):
    return {
        pod["metadata"]["name"] for pod in json.loads(kubectl("get", "pods", "-n", namespace, "-o", "json"))["items"]
    }


def process_of(worker):
    """Return the process on this machine that is the *worker* of a pod."""
    pod = worker.rsplit("-", 2)[0]
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.cmdline()[2:4] == ["server", "worker"] and process.environ().get("HOSTNAME") == pod:
                return process
    raise AssertionError(f"no process is the worker {worker}")
