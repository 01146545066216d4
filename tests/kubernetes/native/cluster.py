"""Starts and ends a native cluster. Everything of it lives in namespaces of one process and vanishes with that process.

What namespaces do not hold, control groups and the run's folder, is removed by `stop`, or by the next `start` when the
cluster was killed. A free lock means that the cluster is gone.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from tests.kubernetes.native.cache import Cache

START_TIMEOUT_S = 900.0
GONE_WITHIN_S = 30.0
"""How long a killed cluster may need until its last process has ended."""
GROUPS = Path("/sys/fs/cgroup")
PREFIX = "opsassay-kubernetes-"


_started: dict[Path, subprocess.Popen[bytes]] = {}
"""What this process started, by folder: an owned cluster ends when nobody holds its standard input any more."""


class ClusterError(Exception):
    """The cluster cannot be started, or did not start."""


@dataclass(frozen=True)
class Cluster:
    """One native cluster by its *name*."""

    cache: Cache
    name: str = "test"

    @property
    def folder(self) -> Path:
        """Everything that the cluster writes."""
        return self.cache.runs / self.name

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, good on this machine only."""
        return self.folder / "admin.yaml"

    @property
    def group(self) -> str:
        """Name of the control group, in every hierarchy, that holds the pods."""
        return PREFIX + self.name

    def unavailable(self) -> str | None:
        """Return why no cluster can run here, None when one can."""
        if os.geteuid() != 0:
            return "the native cluster needs root"
        if not (GROUPS / "memory").is_dir() or not (GROUPS / "cpuset").is_dir():
            return "the native cluster needs control groups of version 1"
        if missing := self.cache.missing():
            return f"{self.cache.root} lacks {', '.join(missing)}; run `make test-kubernetes` (16 minutes once)"
        return None

    def start(
        self, workers: int = 4, *, owned: bool = False, on_progress: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        """Start the cluster and return what it says of itself; an *owned* one ends with this process.

        Raises ClusterError when it cannot run here, runs already, or does not become ready.
        """
        if reason := self.unavailable():
            raise ClusterError(reason)
        if (lock := self._acquire_from_the_dying(self._has_lost)) is None:
            raise ClusterError(f"the cluster {self.name!r} is running; stop it first")
        listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        try:
            self._clear()
            self.folder.mkdir(parents=True)
            order = {
                "cache": str(self.cache.root),
                "folder": str(self.folder),
                "group": self.group,
                "workers": workers,
                "listener": listener.fileno(),
                "port": listener.getsockname()[1],
                "owned": owned,
            }
            with (self.folder / "keeper.log").open("wb") as log:
                process = subprocess.Popen(
                    ["unshare", "--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child=KILL", "--mount-proc",
                     str(self.cache.binaries / "box"), "init",
                     sys.executable, "-m", "tests.kubernetes.native.keeper", json.dumps(order)],
                    stdin=subprocess.PIPE if owned else subprocess.DEVNULL, stdout=log, stderr=log,
                    pass_fds=(lock, listener.fileno()), start_new_session=True, cwd=Path(__file__).parents[3],
                )  # fmt: skip
            _started[self.folder] = process
            lasting = [process.pid, *([os.getpid()] if owned else [])]
            born = {pid: psutil.Process(pid).create_time() for pid in lasting}
            (self.folder / "pid").write_text("\n".join(f"{pid} {created}" for pid, created in born.items()))
            try:
                return self._wait_ready(process, on_progress)
            except BaseException:
                _end(self.folder)
                raise
        finally:
            os.close(lock)
            listener.close()

    def _wait_ready(
        self, process: subprocess.Popen[bytes], on_progress: Callable[[str], None] | None
    ) -> dict[str, Any]:
        deadline, told, ready = time.monotonic() + START_TIMEOUT_S, 0, self.folder / "ready.json"
        while time.monotonic() < deadline:
            lines = (self.folder / "keeper.log").read_text().splitlines()
            for line in lines[told:] if on_progress else ():
                on_progress(line)  # type: ignore[misc]
            told = len(lines)
            if ready.exists():
                return self.status()
            if process.poll() is not None:
                raise ClusterError(f"the cluster ended with status {process.returncode}:\n" + "\n".join(lines[-15:]))
            time.sleep(0.05)
        raise ClusterError(f"the cluster is not ready after {START_TIMEOUT_S:g} s; see {self.folder}")

    def status(self) -> dict[str, Any]:
        """Return what a running cluster says of itself, its processes and memory; only ``running`` when there is none."""
        if (lock := self._acquire()) is not None:
            os.close(lock)
            return {"running": False}
        ready = self.folder / "ready.json"
        said = json.loads(ready.read_text()) if ready.exists() else {}
        memory = []
        for process in self._processes():
            with contextlib.suppress(psutil.Error):  # gone in the meantime
                memory.append(process.memory_full_info().pss)
        return {"running": True, **said, "processes": len(memory), "memory_mb": round(sum(memory) / 2**20)}

    def stop(self) -> None:
        """End the cluster, whatever state it is in, and remove what it left."""
        if (leader := self._leader()) is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                leader.kill()
        _end(self.folder)
        if (lock := self._acquire_from_the_dying(lambda: True)) is None:
            raise ClusterError(f"processes of the cluster {self.name!r} do not end")
        try:
            self._clear()
        finally:
            os.close(lock)

    def node(self, name: str, op: str, unit: str = "kubelet") -> None:
        """Have the keeper *op* the *unit* of a node, as an operator there would: stop, start, freeze, thaw.

        A partition cuts its network until restore; with delay the control plane's answers are late until undelay.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(str(self.folder / "control.sock"))
            connection.sendall(json.dumps({"node": name, "op": op, "unit": unit}).encode() + b"\n")
            answer = json.loads(connection.makefile().readline())
        if "error" in answer:
            raise ClusterError(answer["error"])

    @contextlib.contextmanager
    def running(self, workers: int = 4) -> Iterator[Cluster]:
        """Run the cluster while the block runs; it ends with this process at the latest."""
        self.start(workers, owned=True)
        try:
            yield self
        finally:
            self.stop()

    def _lasting(self) -> list[psutil.Process | None]:
        """Return the process that made the namespaces and the owner, if it has one; None for each that has ended."""
        with contextlib.suppress(FileNotFoundError):
            lines = (self.folder / "pid").read_text().splitlines()
            return [_living(int(pid), float(created)) for pid, created in map(str.split, lines)]
        return []

    def _has_lost(self) -> bool:
        """Whether the cluster has lost its first process or its owner, by which it ends."""
        return None in (self._lasting() or [None])

    def _leader(self) -> psutil.Process | None:
        """Return the process that made the namespaces."""
        return next(iter(self._lasting()), None)

    def _processes(self) -> list[psutil.Process]:
        leader = self._leader()
        return [leader, *leader.children(recursive=True)] if leader else []

    def _acquire(self) -> int | None:
        """Return the lock's descriptor, None when a cluster of this name runs."""
        self.cache.runs.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.cache.runs / f".{self.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return None
        return lock

    def _acquire_from_the_dying(self, is_dying: Callable[[], bool]) -> int | None:
        """Return the lock, waited for while the cluster that holds it *is_dying*; None when one lives, or does not end."""
        deadline = time.monotonic() + GONE_WITHIN_S
        while (lock := self._acquire()) is None and is_dying() and time.monotonic() < deadline:
            time.sleep(0.05)
        return lock

    def _clear(self) -> None:
        """Remove control groups and files; every process has ended."""
        for hierarchy in GROUPS.iterdir():
            _remove_groups(hierarchy / self.group)
        shutil.rmtree(self.folder, ignore_errors=True)


def _living(pid: int, created: float) -> psutil.Process | None:
    """Return the process *pid* that began at *created*, None when it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if abs(process.create_time() - created) < 0.1 and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _end(folder: Path) -> None:
    """End and collect the leader of the cluster in *folder* if this process started it."""
    if (process := _started.pop(folder, None)) is not None:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()


def _remove_groups(group: Path) -> None:
    """Remove *group* and the groups in it, deepest first; what still lives in them is ended, not waited for."""
    folders = [Path(folder) for folder, _, _ in os.walk(group, topdown=False)]
    for _ in range(100):
        for folder in folders:
            with contextlib.suppress(OSError):
                for pid in (folder / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):
                folder.rmdir()
        if not group.exists():
            return
        time.sleep(0.05)
    raise ClusterError(f"the control group {group} cannot be removed")
