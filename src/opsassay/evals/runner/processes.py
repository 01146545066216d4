"""Child processes of attempts: each leads a session of its own, and is ended with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

GRACE_S = 20.0
"""Seconds that a watched process has for clean-up between SIGTERM and SIGKILL."""
LOOK_S = 0.5
"""Seconds between two checks of a watched process."""

_watched: set[int] = set()
"""Ids of processes that only `run_watched` ends, with time for clean-up."""


def kill_session(pid: int) -> None:
    """Kill process *pid*, the leader of a session, and all other processes in that session."""
    for kill in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)


def kill_sessions() -> None:
    """Kill all sessions led by children of this process, such as sandboxes; those of `run_watched` are left."""
    for child in psutil.Process().children():
        with suppress(psutil.Error, ProcessLookupError):
            own = child.pid not in _watched and psutil.Process(child.pid).is_running()
            if own and _is_session_leader(child.pid):
                kill_session(child.pid)


def run_watched(module: str, order: bytes, log: Path, timeout_s: float, given_up: Callable[[], bool]) -> int | None:
    """Run ``python -m MODULE`` with *order* on standard input and its output in *log*; return the exit code.

    Returns None if it runs longer than *timeout_s*: it gets SIGTERM, so that it can clean up, then SIGKILL. The same
    happens when *given_up* returns True, which raises KeyboardInterrupt.
    """
    command = [sys.executable, "-m", module]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, start_new_session=True)
        _watched.add(process.pid)
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):  # it ended at once, which its exit code tells
                process.stdin.write(order)
                process.stdin.close()
            return _wait_unless_given_up(process, timeout_s, given_up)
        finally:
            _end_group(process)
            _watched.discard(process.pid)


def _wait_unless_given_up(
    process: subprocess.Popen[bytes], timeout_s: float, given_up: Callable[[], bool]
) -> int | None:
    """Return the exit code, None after *timeout_s*; raises KeyboardInterrupt when *given_up* returns True."""
    ends = time.monotonic() + timeout_s
    while not given_up():
        with suppress(subprocess.TimeoutExpired):
            return process.wait(min(LOOK_S, max(0.0, ends - time.monotonic())))
        if time.monotonic() >= ends:
            return None
    raise KeyboardInterrupt


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the process group: SIGTERM, so that it can clean up, then SIGKILL."""
    with suppress(ProcessLookupError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _is_session_leader(pid: int) -> bool:
    """Return whether process *pid* is running and leads a session."""
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False
