"""A warm process: it has everything imported, and forks supervisors, so that systems start without waiting for imports.

`warm_process` runs one for this process and its children, which find it by the name of its socket in their environment.
It ends with the process that started it, however that ends; the supervisors that it forked live as long as others do.
Without a warm process a fresh supervisor is started.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import secrets
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import IO, Any

import psutil

from opsassay.core.logs import Log, configure
from opsassay.testbed.core.state import MARKER, SystemState

_log = Log(__name__)
WARM = "OPSASSAY_WARM"
"""The variable with the name of the socket, in the kernel's own table of names: nothing lies on the disk."""
MARK_BYTES = 128
"""Room for the mark in the environment of a process; a state folder's path is shorter, since it has a Unix socket."""
LOOK_S = 1.0
_PEER = struct.Struct("3i")
_users: list[subprocess.Popen[bytes]] = []
"""The one warm process of this process, once for each block that uses it now."""
_lock = threading.Lock()


@contextmanager
def warm_process() -> Iterator[None]:
    """Keep a process with all imports ready to fork supervisors during the block; blocks of threads share it."""
    with _lock:
        _users.append(_users[0] if _users else _start())
    try:
        yield
    finally:
        with _lock:
            process = _users.pop()
            if not _users:
                _end(process)


def _start() -> subprocess.Popen[bytes]:
    """Start the warm process, announce it in the environment, and return it, maybe before its imports are done."""
    name = f"opsassay-{secrets.token_hex(16)}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"\0{name}")
    listener.listen(64)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(listener.fileno())],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd="/", pass_fds=(listener.fileno(),),
        env={**{key: value for key, value in os.environ.items() if key != MARKER}, MARKER: "-" * MARK_BYTES},
    )  # fmt: skip
    listener.close()
    os.environ[WARM] = name
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the warm *process* by closing its input, and wait for it."""
    os.environ.pop(WARM, None)
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


class WarmSupervisor:
    """A supervisor that is no child of this process."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return None while the process runs, then 1: only its parent gets the real exit status."""
        if self.returncode is None and not self._process.is_running():
            self.returncode = 1
        return self.returncode

    def kill(self) -> None:
        """Send SIGKILL to the process, if it runs."""
        with suppress(psutil.NoSuchProcess):
            self._process.kill()

    def wait(self) -> int | None:
        """Wait until the process has ended; return 1."""
        self._process.wait()
        return self.poll()


def fork_supervisor(state: SystemState, order: Mapping[str, Any], log: IO[bytes]) -> WarmSupervisor | None:
    """Have the warm process fork a supervisor of *state* with *order*, its output to *log*; None without such one."""
    if not (name := os.environ.get(WARM)):
        return None
    whole = {**order, "environment": {**os.environ, MARKER: str(state.dir)}}
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(f"\0{name}")
            socket.send_fds(connection, [b"-"], [order["lock_fd"], log.fileno()])
            connection.sendall(json.dumps(whole).encode())
            connection.shutdown(socket.SHUT_WR)
            return WarmSupervisor(int(connection.recv(32)))
    except (OSError, ValueError, psutil.NoSuchProcess):  # it has ended; a fresh supervisor finds the folder as it was
        return None


def main() -> None:
    """Be the warm process: fork a supervisor for each request until the parent has ended or closes stdin."""
    listener, owner = socket.socket(fileno=int(sys.argv[1])), os.getppid()
    mark = ctypes.CDLL(None).getenv
    mark.restype = ctypes.c_void_p
    address = mark(MARKER.encode())
    from opsassay.testbed.substrates.local.supervisor import supervise  # orders are taken meanwhile

    configure("warm", "")
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while os.getppid() == owner:
        ready, _, _ = select.select([0, listener.fileno()], [], [], LOOK_S)
        if 0 in ready:
            return
        if ready:
            connection, _ = listener.accept()
            with connection:
                if _is_ours(connection) and os.fork() == 0:
                    _become_supervisor(listener, connection, address, supervise)


def _is_ours(connection: socket.socket) -> bool:
    """Return whether a process of this user is at the other end of *connection*."""
    _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    return bool(uid == os.geteuid())


def _become_supervisor(listener: socket.socket, connection: socket.socket, mark: int, supervise: Any) -> None:
    """Receive the order by *connection* in the forked process, run *supervise* with it, and exit; never returns.

    *mark* is the address of the variable that marks processes of a system; *listener* is closed.
    """
    status = 1
    try:
        listener.close()
        os.setsid()
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        _, (lock, log), _, _ = socket.recv_fds(connection, 1, 2)
        for opened, standard in ((os.open(os.devnull, os.O_RDONLY), 0), (log, 1), (log, 2)):
            os.dup2(opened, standard)
        order = json.loads(b"".join(iter(lambda: connection.recv(1 << 16), b"")))
        environment = order.pop("environment")
        written = environment[MARKER].encode()
        ctypes.memmove(mark, written.ljust(MARK_BYTES, b"\0"), MARK_BYTES)  # what /proc/PID/environ shows
        os.environ.clear()
        os.environ.update(environment)
        connection.sendall(str(os.getpid()).encode())
        connection.close()
        os.close(log)
        supervise({**order, "lock_fd": lock})
        status = 0
    except SystemExit as error:
        status = int(error.code or 0)
    except BaseException as error:  # noqa: BLE001 - its log is where its end is explained
        _log.exception("failed", error)
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
