"""The supervisor: a process outside the sandbox that starts it, watches it and cleans up.

It reads its plan as one line of JSON from standard input and writes its report, one JSON object, to the descriptor that
the plan names. It ends the sandbox when standard input closes, when the runner's process ends, and at the time limit.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from opsassay.solvers.sandbox import init, members, relay
from opsassay.solvers.sandbox.collect import copy_out

PRIVATE_USERS = 0x70000000
"""User ids from here on belong to no account or container; each supervisor uses two, computed from its pid."""

BUILDING_S = 30.0
"""Seconds that building the root may take."""

ENDING_S = 10.0
"""Seconds that the kernel may take to end all processes of the sandbox."""

_CAP_SYS_ADMIN = 21


def main() -> None:
    """Read a plan from standard input, run it in a sandbox, and write the report as JSON to the runner's pipe."""
    os.umask(0o022)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    plan = json.loads(_read_first_line())
    try:
        payload = SandboxSupervisor(plan).watch()
    except Exception as error:  # noqa: BLE001 - the last frame of a process; the runner tells it
        payload = {"failed": f"{type(error).__name__}: {error}"}
    with suppress(OSError):  # the runner is gone
        os.write(plan["report"], json.dumps(payload).encode())


class SandboxSupervisor:
    """One sandbox from its start to its end."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.payload: dict[str, Any] = {}
        self.init: int | None = None
        self.init_pid = 0
        self.work: int | None = None
        self.began = time.monotonic()
        self.deadline = self.began + BUILDING_S

    def watch(self) -> dict[str, Any]:
        """Start the sandbox, wait for its end, collect its work folder, and return the report."""
        plan = self.plan
        runner = os.pidfd_open(os.getppid())
        if os.getppid() != plan["runner"]:
            return {"failed": "the runner ended"}
        privileged = _is_privileged()
        plan["outer_uid"] = PRIVATE_USERS + 2 * os.getpid() if privileged else None
        if privileged:
            for stream in (1, 2):
                os.fchown(stream, plan["outer_uid"], plan["outer_uid"])  # for commands that open /dev/stdout
        group = plan["group"]
        try:
            channel, opener = self._start_namespaces(runner)
            self._answer_messages(channel, opener, runner)
            self._kill_all(opener)
            self.payload["seconds"] = time.monotonic() - self.began
            if members.killed_for_memory(group):
                self.payload["limit"] = "memory_bytes"
            if self.work is not None and "abandoned" not in self.payload:
                self.payload["left"] = copy_out(self.work, Path(plan["work"]), plan["limits"]["collect_bytes"])
        finally:
            members.remove(group)
        return self.payload

    def _start_namespaces(self, runner: int) -> tuple[socket.socket, int]:
        """Fork the process that makes the namespaces; return (our end of its channel, its pid); *runner* is a pidfd."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opener = os.fork()
        if opener == 0:
            try:
                ours.close()
                for descriptor in (runner, self.plan["report"]):
                    os.close(descriptor)
                os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
                init.open_namespaces(self.plan, theirs)
            finally:
                os._exit(0)
        theirs.close()
        return ours, opener

    def _answer_messages(self, channel: socket.socket, opener: int, runner: int) -> None:
        """Handle messages until the sandbox (pid *opener*), its time or the runner (pidfd *runner*) has ended."""
        ended = os.pidfd_open(opener)
        poller = select.poll()
        for descriptor in (0, runner, ended, channel.fileno()):
            poller.register(descriptor, select.POLLIN)
        while True:
            left_s = self.deadline - time.monotonic()
            ready = {descriptor for descriptor, _ in poller.poll(max(0.0, left_s) * 1000)}
            if channel.fileno() in ready:
                message, descriptors, _, _ = socket.recv_fds(channel, 2**16, 256)
                if message:
                    self._handle_message(json.loads(message), descriptors, channel)
                else:
                    poller.unregister(channel.fileno())
            elif ended in ready:
                return
            elif 0 in ready or runner in ready:
                self.payload["abandoned"] = True
                return
            elif left_s <= 0:
                if "status" not in self.payload:
                    built = self.work is not None
                    self.payload.update({"limit": "wall_clock_s"} if built else {"failed": "it was not built in time"})
                return

    def _handle_message(self, message: dict[str, Any], descriptors: list[int], channel: socket.socket) -> None:
        """Act on a message (with file *descriptors*) of the sandbox's first process: its pid, it is built, its end."""
        if "init" in message:
            self.init_pid = message["init"]
            with suppress(ProcessLookupError):
                self.init = os.pidfd_open(self.init_pid)
        elif "built" in message:
            self.work = descriptors[0]
            members.enrol(self.plan["group"], self.init_pid)  # not before: what was built is not the agent's memory
            self._start_relays(descriptors[1:])
            self.began = time.monotonic()
            self.deadline = self.began + self.plan["limits"]["wall_clock_s"]
            channel.send(b"go")
        else:
            self.payload.update(message)
            self.deadline = time.monotonic() + ENDING_S

    def _start_relays(self, listeners: list[int]) -> None:
        """Forward each listening socket of the sandbox to the Unix socket that the plan names for it."""
        sockets = self.plan["sockets"]
        paths = [*sockets.values(), *(sockets[name] for name in self.plan["ports"].values())]
        for descriptor, path in zip(listeners, paths, strict=True):
            relay.start(socket.socket(fileno=descriptor), path)

    def _kill_all(self, opener: int) -> None:
        """Kill all processes of the sandbox and wait until they are gone; *opener* is their parent's pid."""
        if self.init is None:
            os.kill(opener, signal.SIGKILL)
        else:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.init, signal.SIGKILL)
            poller = select.poll()
            poller.register(self.init, select.POLLIN)
            poller.poll(ENDING_S * 1000)
        os.waitpid(opener, 0)


def _read_first_line() -> bytes:
    """Return the first line of standard input, read without buffering; exits with 1 at its end."""
    line = b""
    while not line.endswith(b"\n"):
        chunk = os.read(0, 2**16)
        if not chunk:
            raise SystemExit(1)  # the runner ended before it had said what to do
        line += chunk
    return line


def _is_privileged() -> bool:
    """Whether this process is root and has CAP_SYS_ADMIN."""
    if os.geteuid() != 0:
        return False
    status = Path("/proc/self/status").read_text(encoding="ascii")
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> _CAP_SYS_ADMIN & 1)
