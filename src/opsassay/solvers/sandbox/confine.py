"""The last steps of the agent's process before its command: another user, no capabilities, system call filter, limits."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path
from typing import Any

from opsassay.solvers.sandbox import kernel, seccomp

USER_INSIDE = 1000


REPORT = 3
"""The file descriptor for the report of a failure; it closes when the command starts."""


def become_and_run(plan: dict[str, Any], outer_uid: int | None) -> None:
    """Drop all privileges of this process and execute the command of *plan*; returns only by raising OSError.

    *outer_uid* is the user and group id to take first, None to keep the present ones. Only standard output and error
    stay open, and standard input is empty.
    """
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    kernel.close_from(REPORT + 1)
    os.setsid()
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    if outer_uid is not None:
        os.setgroups([])
        os.setresgid(outer_uid, outer_uid, outer_uid)
        os.setresuid(outer_uid, outer_uid, outer_uid)
    enter_user_namespace(0)
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    kernel.new_session_keyring()
    _set_limits(plan["limits"])
    kernel.drop_bounding_capabilities()
    kernel.drop_capabilities()
    kernel.no_new_privileges()
    os.chdir("/work")
    seccomp.install()
    command, environment = plan["command"], plan["environment"]
    os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is used


def enter_user_namespace(kinds: int) -> None:
    """Enter a new user namespace, in which only this user exists (as USER_INSIDE), and new ones of the CLONE_* *kinds*."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEW_USER | kinds)
    kernel.set_dumpable(dumpable=True)  # a change of user took it, and with it the right to write the maps
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{USER_INSIDE} {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{USER_INSIDE} {gid} 1", encoding="ascii")


def _set_limits(limits: dict[str, Any]) -> None:
    """Set the resource limits of this process, each at most its present hard limit."""
    requested = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_MEMLOCK: 2**20,
        resource.RLIMIT_MSGQUEUE: 2**20,
        resource.RLIMIT_NICE: 0,
        resource.RLIMIT_NOFILE: limits["open_files"],
        resource.RLIMIT_NPROC: limits["processes"],
        resource.RLIMIT_RTPRIO: 0,
        resource.RLIMIT_SIGPENDING: 1024,
    }
    if limits["address_space_bytes"]:
        requested[resource.RLIMIT_AS] = limits["address_space_bytes"]
    if limits["data_bytes"]:
        requested[resource.RLIMIT_DATA] = limits["data_bytes"]
    for kind, most in requested.items():
        _, hard = resource.getrlimit(kind)
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))
