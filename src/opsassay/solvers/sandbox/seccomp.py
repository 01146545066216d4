"""The seccomp filter of system calls of every process in the sandbox, a BPF program written by hand.

It lists refused calls, not allowed ones, since agents may be in any language: calls that reach into another process,
make or enter a namespace, change mounts, keys, modules, clocks or the kernel, and sockets that no network namespace
bounds (AF_VSOCK reaches the hypervisor). They fail with EPERM; `clone3`, whose flags a filter cannot read, with ENOSYS,
so that C libraries fall back to `clone`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from pathlib import Path

from opsassay.solvers.sandbox import kernel

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x40000000

_CLONE = {"x86_64": 56, "aarch64": 220}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_CLONE3 = 435

_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK (interfaces are listed through it)
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI types for others, TIOCLINUX pastes
_NAMESPACE_FLAGS = (
    kernel.NEW_MOUNTS
    | kernel.NEW_CGROUP
    | kernel.NEW_UTS
    | kernel.NEW_IPC
    | kernel.NEW_USER
    | kernel.NEW_PID
    | kernel.NEW_NETWORK
)

REFUSED: dict[str, tuple[int | None, int | None]] = {}
"""Each refused call in `refused_calls.txt` with its numbers on x86_64 and on aarch64, None where it does not exist."""
for _line in Path(__file__).with_name("refused_calls.txt").read_text(encoding="ascii").splitlines():
    _name, *_numbers = _line.split()
    _x86, _arm = (None if number == "-" else int(number) for number in _numbers)
    REFUSED[_name] = (_x86, _arm)

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF: LD|W|ABS, JMP|JEQ, JGE, JSET, RET
_NUMBER, _ARCH, _ARGUMENT_0, _ARGUMENT_1 = (
    0,
    4,
    16,
    24,
)  # offsets in struct seccomp_data; both machines are little-endian
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_REFUSE = _ERRNO | errno.EPERM
_PR_SET_SECCOMP, _MODE_FILTER = 22, 2


def machine_refusal() -> str | None:
    """Return why there is no seccomp filter for this CPU architecture, None when there is one."""
    machine = os.uname().machine
    if machine in _AUDIT_ARCH and struct.calcsize("P") == 8:
        return None
    return f"there is no filter of system calls for the machine {machine}; use a 64-bit x86_64 or aarch64 one"


def program(machine: str) -> list[tuple[int, int, int, int]]:
    """Return the seccomp filter for *machine* as BPF instructions (code, jump if true, jump if false, operand)."""
    column = list(_AUDIT_ARCH).index(machine)
    lines = [(_LOAD, 0, 0, _ARCH), (_EQUAL, 1, 0, _AUDIT_ARCH[machine]), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":
        lines += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    lines += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]
    for numbers in REFUSED.values():
        number = numbers[column]
        if number is not None:
            lines += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    lines += _for_call(_CLONE[machine], _ARGUMENT_0, [(_ANY_BIT, 0, 1, _NAMESPACE_FLAGS), (_RETURN, 0, 0, _REFUSE)])
    families = [line for family in _FAMILIES for line in ((_EQUAL, 0, 1, family), (_RETURN, 0, 0, _ALLOW))]
    lines += _for_call(_SOCKET[machine], _ARGUMENT_0, [*families, (_RETURN, 0, 0, _REFUSE)])
    inputs = [line for request in _TERMINAL_INPUT for line in ((_EQUAL, 0, 1, request), (_RETURN, 0, 0, _REFUSE))]
    lines += _for_call(_IOCTL[machine], _ARGUMENT_1, inputs)
    return [*lines, (_RETURN, 0, 0, _ALLOW)]


def install() -> None:
    """Apply the seccomp filter to this process and its children for good; needs `no_new_privileges` first."""
    packed = b"".join(struct.pack("HBBI", *line) for line in program(os.uname().machine))
    code = ctypes.create_string_buffer(packed, len(packed))
    header = struct.pack("HxxxxxxP", len(packed) // 8, ctypes.addressof(code))
    zero = ctypes.c_ulong(0)
    if kernel.libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_MODE_FILTER), header, zero, zero):
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")


def _for_call(
    number: int, offset: int, instructions: list[tuple[int, int, int, int]]
) -> list[tuple[int, int, int, int]]:
    """Return BPF lines that run *instructions* on the word at *offset* for system call *number*, else allow it."""
    body = [(_LOAD, 0, 0, offset), *instructions, (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(body), number), *body]
