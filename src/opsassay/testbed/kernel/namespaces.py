"""Anonymous network namespaces, used as open descriptors without names or mounts.

A namespace exists as long as a process in it or a descriptor or socket of it: after the last process of a system the
kernel removes its links, queues and rules.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Collection, Iterable
from fcntl import ioctl
from pathlib import Path
from typing import Any, TypeVar

from opsassay.core.errors import StartError

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
TCP_STATES = {"established": "01", "time_wait": "06"}
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1

Result = TypeVar("Result")


def isolate() -> None:
    """Move this single-threaded process into a new network (if not root, also user) namespace; raises StartError."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        try:
            _call_unshare(CLONE_NEWNET)
        except PermissionError:
            _call_unshare(CLONE_NEWNET | CLONE_NEWUSER)
            Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
            Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="utf-8")
            Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="utf-8")
        raise_interface("lo")
    except OSError as error:
        raise StartError(
            f"The kernel refuses a network namespace, to this user and in a user namespace ({error.strerror}); run as root "
            "(in a container with CAP_SYS_ADMIN), allow user namespaces (sysctl user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), or use the plain level."
        ) from error


def new_namespace() -> int:
    """Return the descriptor of a new network namespace whose loopback is up; the calling process stays where it is."""

    def make() -> int:
        _call_unshare(CLONE_NEWNET)
        raise_interface("lo")
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    return in_thread(make)


def path_of(namespace: int) -> str:
    """Return the /proc path of *namespace*, a descriptor of this process, by which other processes open it."""
    return f"/proc/{os.getpid()}/fd/{namespace}"


def enter(namespace: str | int) -> None:
    """Move the calling thread into the network *namespace* (path or descriptor); its later children are there too."""
    if isinstance(namespace, int):
        _call_setns(namespace, CLONE_NEWNET)
        return
    descriptor = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _call_setns(descriptor, CLONE_NEWNET)
    finally:
        os.close(descriptor)


def join(pid: int, namespace: str | None = None) -> None:
    """Move this single-threaded process into the user namespace of *pid* and its network, or that of *namespace*."""
    theirs = f"/proc/{pid}/ns/user"
    if not os.path.samestat(os.stat(theirs), os.stat("/proc/self/ns/user")):  # noqa: PTH116 - no path object has it
        descriptor = os.open(theirs, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _call_setns(descriptor, CLONE_NEWUSER)
        finally:
            os.close(descriptor)
    enter(namespace or f"/proc/{pid}/ns/net")


def inside(namespace: str | int, function: Callable[[], Result]) -> Result:
    """Run *function* in a thread in the network *namespace* and return its result; sockets that it opens stay there."""

    def entered() -> Result:
        enter(namespace)
        return function()

    return in_thread(entered)


def in_thread(function: Callable[[], Result]) -> Result:
    """Run *function* in a new thread and return its result, or raise its exception."""
    outcome: list[Result] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(function())
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


def rooms_of(pids: Iterable[int]) -> frozenset[int]:
    """Return the inodes of the network namespaces that the processes *pids* are in, except this process's own."""
    return frozenset(filter(None, map(_namespace_inode, pids))) - {_namespace_inode("self")}


def who_is_in(namespaces: Collection[int]) -> list[tuple[int, str]]:
    """Return (pid, name) of every process whose network namespace is one of *namespaces* (inodes), by pid."""
    if not namespaces:
        return []
    found = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _namespace_inode(entry.name) in namespaces]
    return [(pid, name) for pid in sorted(found) if (name := _name_of_process(pid)) is not None]


def _namespace_inode(pid: int | str) -> int | None:
    """Return the inode of the network namespace of *pid*, None when it has ended."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:  # it has ended, or is another user's, or this is no Linux
        return None


def _name_of_process(pid: int) -> str | None:
    """Return the command name of *pid*, None when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def set_local_ports(namespace: str, first: int, last: int) -> None:
    """Let calls out of *namespace* use the local ports from *first* to *last* from now on; raises OSError."""
    inside(namespace, lambda: Path("/proc/sys/net/ipv4/ip_local_port_range").write_text(f"{first} {last}"))


def local_ports(namespace: str) -> dict[str, Any]:
    """Return the range of local ports of *namespace*, and how many TCP connections it has by state."""

    def read() -> dict[str, Any]:
        states = [row.split()[3] for row in Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]]
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return {"range": f"{first} {last}", **{name: states.count(code) for name, code in TCP_STATES.items()}}

    return inside(namespace, read)


def listening_ports(namespace: str) -> set[int]:
    """Return the TCP ports on which something listens in *namespace*."""
    rows = inside(namespace, lambda: Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:])
    fields = (row.split() for row in rows)
    return {int(field[1].rpartition(":")[2], 16) for field in fields if field[3] == "0A"}


def close_connections(namespace: str | None, addresses: Iterable[str]) -> list[str]:
    """Close the TCP connections to *addresses* in *namespace* (None: here); return a note if `ss` is missing."""
    return [note for address in addresses for note in _kill_sockets(namespace, "dst", address)][:1]


def close_served(namespace: str | None, port: int) -> list[str]:
    """Close the TCP connections that a server in *namespace* has accepted at *port*; return notes as above."""
    return _kill_sockets(namespace, "sport", "=", f":{port}")


def _kill_sockets(namespace: str | None, *ss_filter: str) -> list[str]:
    """Close the connections in *namespace* (a path; None: here) that *ss_filter* selects; return a note if it cannot."""
    program = shutil.which("ss")
    if program is None:
        return ["connections that were open stayed open: this machine has no `ss` (package iproute2)"]
    command = [program, "-K", "state", "connected", *ss_filter]
    enclosed = functools.partial(subprocess.run, command, capture_output=True, check=False)
    enclosed() if namespace is None else inside(namespace, enclosed)
    return []


def raise_interface(name: str) -> None:
    """Set the interface *name* up in the network namespace of the calling thread."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", name.encode(), 0)
        (flags,) = struct.unpack_from("H", ioctl(control, SIOCGIFFLAGS, request), 16)
        ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", name.encode(), flags | IFF_UP))


def _call_unshare(flags: int) -> None:
    """Move this thread into new namespaces of the kinds in *flags* (CLONE_NEWNET, CLONE_NEWUSER); raises OSError."""
    _raise_errno(_load_libc().unshare(flags))


def _call_setns(descriptor: int, kind: int) -> None:
    """Move this thread into the namespace open as *descriptor*, of *kind* (CLONE_NEWNET and so on); raises OSError."""
    _raise_errno(_load_libc().setns(descriptor, kind))


def _load_libc() -> ctypes.CDLL:
    """Return the C library of this process, whose calls set `ctypes.get_errno`."""
    return ctypes.CDLL(None, use_errno=True)  # Python 3.12 has os.unshare and os.setns; 3.11 has not


def _raise_errno(status: int) -> None:
    """Raise OSError with the C library's errno unless *status* is 0."""
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
