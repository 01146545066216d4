"""The system calls of the sandbox that Python 3.11 does not offer."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from fcntl import ioctl

NEW_TIME, NEW_MOUNTS, NEW_CGROUP, NEW_UTS = 0x00000080, 0x00020000, 0x02000000, 0x04000000
NEW_IPC, NEW_USER, NEW_PID, NEW_NETWORK = 0x08000000, 0x10000000, 0x20000000, 0x40000000

READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXEC = 1, 2, 4, 8
BIND, RECURSIVE, PRIVATE, DETACH = 1 << 12, 1 << 14, 1 << 18, 2

_CLOSE_RANGE, _MOST_DESCRIPTORS = 436, 2**32 - 1
_MOUNT_SETATTR, _AT_FDCWD, _AT_RECURSIVE = 442, -100, 0x8000
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP, _PR_CAP_AMBIENT = 1, 4, 38, 24, 47
_CLEAR_ALL_AMBIENT = 4
_CAPABILITY_VERSION_3 = 0x20080522
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 0x1

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def unshare(flags: int) -> None:
    """Move this process into new namespaces (CLONE_* *flags*); a new pid namespace holds its later children only."""
    _raise_errno(libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None, flags: int = 0, options: str = "") -> None:
    """Mount *source* on *target* as a file system of *kind*, None for a bind mount or a change; raises OSError."""
    arguments = (source.encode(), target.encode(), kind.encode() if kind else None)
    _raise_errno(libc.mount(*arguments, ctypes.c_ulong(flags), options.encode() or None), f"mount {target}")


def restrict(target: str, attributes: int, *, below: bool = False) -> None:
    """Add mount *attributes* (such as READ_ONLY) to the mount *target*, with *below* to all mounts under it."""
    change = struct.pack("QQQQ", attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if below else 0
    _raise_errno(
        system_call(_MOUNT_SETATTR, _AT_FDCWD, target.encode(), flags, change, len(change)), f"mount_setattr {target}"
    )


def pivot_root(new: str, old: str) -> None:
    """Make the mount *new* the root and move the present root to *old*."""
    _raise_errno(libc.pivot_root(new.encode(), old.encode()), f"pivot_root {new}")


def unmount(target: str) -> None:
    """Detach the mount *target* and those below it; they end with their last user (MNT_DETACH)."""
    _raise_errno(libc.umount2(target.encode(), DETACH), f"umount {target}")


def die_with_parent(signal_number: int) -> None:
    """Have the kernel send *signal_number* to this process when its parent ends; a change of user undoes it."""
    _call_prctl(_PR_SET_PDEATHSIG, signal_number)


def set_dumpable(*, dumpable: bool) -> None:
    """Set whether other processes of the same user may read this one by /proc and ptrace."""
    _call_prctl(_PR_SET_DUMPABLE, int(dumpable))


def no_new_privileges() -> None:
    """Make set-user-id bits and file capabilities ineffective for this process and its children."""
    _call_prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_bounding_capabilities() -> None:
    """Empty the bounding and the ambient capability set; needs CAP_SETPCAP."""
    for number in range(64):
        if libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), *_zero_arguments(3)):
            break  # beyond the last that the kernel knows
    libc.prctl(_PR_CAP_AMBIENT, ctypes.c_ulong(_CLEAR_ALL_AMBIENT), *_zero_arguments(3))


def drop_capabilities() -> None:
    """Empty the effective, permitted and inheritable capability sets."""
    _raise_errno(libc.capset(struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24)), "capset")


def new_session_keyring() -> None:
    """Start a new session keyring without the caller's keys; does nothing on kernels without keyrings."""
    system_call(_KEYCTL[os.uname().machine], _JOIN_SESSION_KEYRING, None)


def close_from(descriptor: int) -> None:
    """Close the file *descriptor* and all with higher numbers."""
    _raise_errno(system_call(_CLOSE_RANGE, descriptor, _MOST_DESCRIPTORS, 0), "close_range")


def raise_loopback() -> None:
    """Bring up the loopback interface of this process's network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sH14x", b"lo", 0)
        (flags,) = struct.unpack_from("H", ioctl(control, _GET_FLAGS, request), 16)
        ioctl(control, _SET_FLAGS, struct.pack("16sH14x", b"lo", flags | _UP))


def system_call(number: int, *arguments: int | bytes | None) -> int:
    """Return the result of system call *number*; -1 is a failure, whose errno `ctypes.get_errno` gives."""
    payload = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return int(libc.syscall(ctypes.c_long(number), *payload))


def _call_prctl(option: int, value: int) -> None:
    """Call prctl(*option*, *value*); raises OSError."""
    _raise_errno(libc.prctl(option, ctypes.c_ulong(value), *_zero_arguments(3)), f"prctl {option}")


def _zero_arguments(count: int) -> list[ctypes.c_ulong]:
    """Return *count* zero arguments for a C call."""
    return [ctypes.c_ulong(0)] * count


def _raise_errno(status: int, what: str) -> None:
    """Raise OSError with the present errno when *status* is negative; *what* names the failed call."""
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
