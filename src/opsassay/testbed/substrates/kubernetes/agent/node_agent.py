"""What runs on a node while a fault of it lasts: a privileged pod that breaks, waits, and takes it back at its deadline.

    python -m opsassay.testbed.substrates.kubernetes.agent node

It was started before anything was broken and lives on the node itself, so that the undo needs neither the API server nor
whoever ordered the fault. Packet faults are those of `local` (`testbed/kernel/`), in the network namespaces of pods; they
go with this process. A kubelet is stopped and continued by signals.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

from opsassay.core.errors import OperationError
from opsassay.core.logs import Log
from opsassay.testbed.kernel.network import peer_of
from opsassay.testbed.substrates.kubernetes.endpoints.key import requires_key
from opsassay.testbed.workload.runtime.burner import fork_burner

_log = Log(__name__)
ORDER_FILE = Path("/etc/opsassay/node/order.json")
PROCESSES = Path("/proc")
LEDGER = Path("/tmp/packets.jsonl")  # noqa: S108 - a pod has a disk of its own
BEGIN_TIMEOUT_S = 30.0


def main() -> None:
    """Run the node agent until it is asked to end or the deadline comes."""
    order = json.loads(ORDER_FILE.read_text())
    asyncio.run(NodeAgent(order, os.environ["ENDPOINT_KEY"]).run())


class NodeAgent:
    """Carries out one *order*: its ``deeds`` until its ``deadline`` (seconds of wall clock), reached at its ``port``."""

    def __init__(self, order: dict[str, Any], key: str) -> None:
        self._order, self._key = order, key
        self._ended = asyncio.Event()
        self._acting = ExitStack()

    async def run(self) -> None:
        """Serve requests until SIGTERM, a request to end, or the deadline; then undo all actions."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._ended.set)
        runner = web.AppRunner(self.application())
        await runner.setup()
        await web.TCPSite(runner, None, self._order["port"]).start()
        left = max(self._order["deadline"] - time.time(), 0.0)
        try:
            await asyncio.wait_for(self._ended.wait(), left)
        except TimeoutError:
            _log.info("the time is over")
        finally:
            await asyncio.to_thread(self._acting.close)
            await runner.cleanup()

    def application(self) -> web.Application:
        """Return the web application with the agent's routes, which need the endpoint key."""
        found = web.Application(middlewares=[requires_key(self._key)])
        found.add_routes([web.get("/", self.report_status), web.post("/begin", self.begin), web.post("/end", self.end)])
        found.add_routes([web.get("/ledger", self.ledger)])
        return found

    async def report_status(self, _: web.Request) -> web.Response:
        """Answer 200, so that the injector knows that the agent runs."""
        return web.json_response({"deadline": self._order["deadline"]})

    async def begin(self, _: web.Request) -> web.Response:
        """Apply every action of the order, and answer; when one fails, undo those before it and answer the error."""
        for deed in self._order["deeds"]:
            try:
                await asyncio.to_thread(self._acting.enter_context, _DEEDS[deed["kind"]](deed))
                _log.info("fault applied", kind=deed["kind"])
            except BaseException as error:
                _log.exception("fault not applied", error, kind=deed["kind"])
                await asyncio.to_thread(self._acting.close)
                raise
        return web.json_response({})

    async def ledger(self, _: web.Request) -> web.Response:
        """Answer with the ledger lines: what the fault did to packets, as JSON lines."""
        return web.Response(body=await asyncio.to_thread(lambda: LEDGER.read_bytes() if LEDGER.exists() else b""))

    async def end(self, _: web.Request) -> web.Response:
        """Undo all actions, answer, and end the agent."""
        await asyncio.to_thread(self._acting.close)
        _log.info("faults undone")
        asyncio.get_running_loop().call_later(0.2, self._ended.set)
        return web.json_response({})


@contextmanager
def frozen_kubelet(_: dict[str, Any]) -> Iterator[None]:
    """Stop the node's kubelet (SIGSTOP) for the block, so that the node becomes NotReady."""
    pid = kubelet_here(PROCESSES)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def burners(action: dict[str, Any]) -> Iterator[None]:
    """Burn ``load_percent`` of each of ``cores`` cores (default: all) for the block.

    The burners are in the CPU group of ``container`` (an id), without one in the node's topmost group.
    """
    groups = groups_of(action["container"], PROCESSES) if "container" in action else [top_group(PROCESSES)]
    pids = [fork_burner(action["load_percent"] / 100.0) for _ in range(action.get("cores") or os.cpu_count() or 1)]
    try:
        for group, pid in itertools.product(groups, pids):
            group.write_text(str(pid))
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):  # the container has ended, and its group with it
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@contextmanager
def killed(action: dict[str, Any]) -> Iterator[None]:
    """Kill the main process of ``container`` (an id) at the start of the block; the kubelet starts it again."""
    os.kill(main_process(action["container"], PROCESSES), signal.SIGKILL)
    yield


@contextmanager
def packets(action: dict[str, Any]) -> Iterator[None]:
    """Apply ``impairment`` to the ``streams`` of the pod with ``uid`` for the block; see `testbed/workload/packets.py`."""
    import threading

    from opsassay.testbed.kernel.probe import probe_machine
    from opsassay.testbed.workload.packets import choose, work

    namespace = f"{PROCESSES}/{process_of(action['uid'], PROCESSES)}/ns/net"
    in_kernel = action["impairment"]["kind"] in probe_machine().impairments
    config = {
        **action,
        "namespace": namespace,
        "peer_interface": peer_of(namespace),
        "means": "kernel" if in_kernel else "queue",
        "ledger": str(LEDGER),
    }
    ended, end = os.pipe()
    active, failure = threading.Event(), list[BaseException]()

    def run() -> None:
        """Impair the packets until the block ends; runs in a thread."""
        try:
            work(choose(config), ended, active.set)
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            failure.append(error)
            active.set()

    worker = threading.Thread(target=run, daemon=True)
    worker.start()
    try:
        if not active.wait(BEGIN_TIMEOUT_S) or failure:
            reason = failure[0] if failure else f"nothing was caught in {BEGIN_TIMEOUT_S:g} s"
            raise OperationError(f"the packets of {action['pod']} could not be caught: {reason}")
        yield
    finally:
        os.close(end)
        worker.join()
        os.close(ended)


_DEEDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "kubelet": frozen_kubelet, "burners": burners, "packets": packets, "kill": killed,
}  # fmt: skip


def kubelet_here(processes: Path) -> int:
    """Return the pid of this node's kubelet among *processes*, the node's /proc folder; raises OperationError."""
    own = (processes / "self/ns/net").stat()
    for folder in processes.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            if (folder / "comm").read_text().strip() == "kubelet" and (folder / "ns/net").stat() == own:
                return int(folder.name)
        except OSError:
            continue  # it has ended, or is the kernel's
    raise OperationError("no kubelet of this node is visible: it may run under another name")


def top_group(processes: Path) -> Path:
    """Return the members file of the topmost CPU group of process 1 of *processes* (/proc); raises OperationError."""
    root = processes / "1/root/sys/fs/cgroup"
    for found in (root / "cgroup.procs", root / "cpu/cgroup.procs", root / "cpu,cpuacct/cgroup.procs"):
        if found.exists():
            return found
    raise OperationError("the control groups of this node are not visible")


def main_process(container: str, processes: Path) -> int:
    """Return the pid, in *processes* (/proc), of the first process of *container* (an id); raises OperationError."""
    found = list[int]()
    for folder in processes.iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                found += [int(folder.name)] if container in (folder / "cgroup").read_text() else []
    if not found:
        raise OperationError("no process of the container is on this node any more")
    return min(found, key=lambda pid: _started(processes / str(pid)))


def _started(process: Path) -> int:
    """Return when *process*, a folder of /proc, was started, in ticks since the boot."""
    return int((process / "stat").read_text().rpartition(")")[2].split()[19])


def groups_of(container: str, processes: Path) -> list[Path]:
    """Return the members files of the groups that limit and count the CPU of *container* (an id); raises OperationError.

    *processes* is the node's /proc folder.
    """
    process, top = processes / str(main_process(container, processes)), processes / "1/root/sys/fs/cgroup"
    lines = [line.split(":", 2) for line in (process / "cgroup").read_text().splitlines()]
    own = [(names, path) for _, names, path in lines if {"cpu", "cpuacct"} & set(names.split(","))]
    own = own or [("", path) for _, names, path in lines if not names]
    found = [top / names / path.lstrip("/") / "cgroup.procs" for names, path in own]
    if not found or not all(one.exists() for one in found):
        raise OperationError("the control group of the container is not visible")
    return found


def process_of(uid: str, processes: Path) -> int:
    """Return the pid, in *processes* (/proc), of a process in the network of the pod *uid*; raises OperationError."""
    names, own = (uid, uid.replace("-", "_")), (processes / "self/ns/net").stat()
    for folder in processes.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            groups, theirs = (folder / "cgroup").read_text(), (folder / "ns/net").stat()
        except OSError:
            continue
        if any(name in groups for name in names) and theirs.st_ino != own.st_ino:
            return int(folder.name)
    raise OperationError(f"no process of the pod {uid} is on this node any more")
