"""What runs on a node takes back what it did at its deadline; it finds the kubelet and the pods that are meant."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time

import aiohttp
import psutil
import pytest

from opsassay.core.errors import OperationError
from opsassay.testbed.substrates.kubernetes.actuators.node_faults import agent_objects
from opsassay.testbed.substrates.kubernetes.agent import node_agent
from opsassay.testbed.substrates.kubernetes.agent.node_agent import NodeAgent, kubelet_here, process_of, top_group

UID = "0b5d1c3e-1111-2222-3333-444455556666"


@pytest.fixture
def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.fixture
def processes(tmp_path):
    """Lay out a /proc of four processes: two share the network of the reader, two have one each."""
    here, pod, other = (tmp_path / f"net{number}" for number in range(3))
    for network in (here, pod, other):
        network.touch()

    def process(name, network, comm, groups):
        folder = tmp_path / "proc" / name
        (folder / "ns").mkdir(parents=True)
        (folder / "comm").write_text(comm + "\n")
        (folder / "cgroup").write_text(groups)
        os.link(network, folder / "ns/net")

    process("self", here, "python", "")
    process("10", other, "kubelet", "0::/system.slice")
    process("11", here, "kubelet", "0::/system.slice")
    process("12", here, "containerd-shim", f"0::/kubepods/pod{UID}")
    process("13", pod, "pause", f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/x")
    (tmp_path / "proc" / "sys").mkdir()
    return tmp_path / "proc"


def test_the_kubelet_of_this_node_and_a_process_in_the_pods_own_network_are_found(processes):
    assert kubelet_here(processes) == 11
    assert process_of(UID, processes) == 13
    with pytest.raises(OperationError, match="no process of the pod"):
        process_of("another", processes)


@pytest.fixture
def top(processes):
    """Lay out the topmost CPU group, version 1, as the first process sees it."""
    folder = processes / "1/root/sys/fs/cgroup/cpu"
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").touch()
    return folder / "cgroup.procs"


def test_the_topmost_group_of_the_node_is_found_by_the_version_that_it_has(processes, top):
    assert top_group(processes) == top
    version_2 = processes / "1/root/sys/fs/cgroup/cgroup.procs"
    version_2.touch()
    assert top_group(processes) == version_2
    version_2.unlink()
    top.unlink()
    with pytest.raises(OperationError, match="control groups of this node are not visible"):
        top_group(processes)


def ask(port, method, path, key="secret"):
    async def send():
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, f"http://127.0.0.1:{port}/{path}", headers={"X-Endpoint-Key": key}) as answer,
        ):
            return answer.status

    return send()


def children():
    return {p.pid for p in psutil.Process().children() if p.status() != psutil.STATUS_ZOMBIE}


@pytest.mark.slow
@pytest.mark.parametrize("told", [True, False], ids=["when it is told", "at its deadline"])
def test_an_agent_takes_back_what_it_did(unused_port, processes, top, monkeypatch, told):
    monkeypatch.setattr(node_agent, "PROCESSES", processes)
    order = {
        "deadline": time.time() + (60 if told else 3),
        "port": unused_port,
        "deeds": [{"kind": "burners", "cores": 2, "load_percent": 1}],
    }

    before = children()  # what other tests keep

    def burning():
        return children() - before

    async def live():
        agent = asyncio.create_task(NodeAgent(order, "secret").run())
        while True:
            try:
                assert await ask(unused_port, "POST", "begin", "guessed") == 404
                break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)
        assert not burning()
        assert await ask(unused_port, "POST", "begin") == 200
        assert len(burning()) == 2
        assert int(top.read_text()) in burning(), "it burns beside the pods, not as one of them"
        if told:
            assert await ask(unused_port, "POST", "end") == 200
        await asyncio.wait_for(agent, 30)
        return time.time()

    ended = asyncio.run(live())
    assert not burning()
    assert (ended < order["deadline"]) == told


def test_the_agent_is_put_on_its_node_whatever_is_wrong_with_that():
    order, pod = agent_objects("node-1", "shop-watch", "worker2", {"port": 1}, "image:1")
    assert order["data"] == {"order.json": '{"port": 1}'}
    assert pod["metadata"]["namespace"] == "shop-watch"
    spec = pod["spec"]
    assert (spec["nodeName"], spec["tolerations"]) == ("worker2", [{"operator": "Exists"}])
    assert (spec["hostPID"], spec["hostNetwork"]) == (True, True)
    assert spec["containers"][0]["securityContext"]["privileged"]


@pytest.fixture
def container(processes):
    """Add a container of two processes, sleepers of this machine, to /proc; return them, the first one first."""
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    for sleeper, ticks in zip(sleepers, (50, 70), strict=True):
        folder = processes / str(sleeper.pid)
        folder.mkdir()
        folder.joinpath("stat").write_text(f"{sleeper.pid} (a b) S {' '.join(['0'] * 18)} {ticks} 0")
        folder.joinpath("cgroup").write_text("3:cpuacct:/pods/c0ffee\n2:cpu:/pods/c0ffee\n1:memory:/pods/c0ffee\n")
    yield sleepers
    for sleeper in sleepers:
        sleeper.kill()
        sleeper.wait()


def test_the_first_process_of_a_container_is_killed_and_no_other(processes, container, monkeypatch):
    monkeypatch.setattr(node_agent, "PROCESSES", processes)
    with node_agent.killed({"container": "c0ffee"}):
        assert container[0].wait(10) == -signal.SIGKILL
    assert container[1].poll() is None
    with pytest.raises(OperationError, match="no process of the container"), node_agent.killed({"container": "other"}):
        pass


def test_burners_join_the_groups_that_limit_and_count_the_cpu_of_a_container(processes, container, monkeypatch):
    monkeypatch.setattr(node_agent, "PROCESSES", processes)
    top = processes / "1/root/sys/fs/cgroup"
    with pytest.raises(OperationError, match="is not visible"):
        node_agent.groups_of("c0ffee", processes)
    members = [top / controller / "pods/c0ffee/cgroup.procs" for controller in ("cpuacct", "cpu")]
    for file in members:
        file.parent.mkdir(parents=True)
        file.touch()
    with node_agent.burners({"container": "c0ffee", "load_percent": 1, "cores": 1}):
        (joined,) = {int(file.read_text()) for file in members}
        assert psutil.pid_exists(joined)
    assert not psutil.pid_exists(joined)
    for sleeper in container:
        (processes / str(sleeper.pid) / "cgroup").write_text("0::/pods/c0ffee\n")
    (top / "pods/c0ffee").mkdir(parents=True)
    (top / "pods/c0ffee/cgroup.procs").touch()
    assert node_agent.groups_of("c0ffee", processes) == [top / "pods/c0ffee/cgroup.procs"]
