"""What attempts are made with: their table, and system calls by name and by number."""

# An attacker takes what the system offers, not what reads well.
from __future__ import annotations

import ctypes
import errno
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.mmap.restype = libc.shmat.restype = ctypes.c_void_p

X86 = os.uname().machine == "x86_64"
NEWNS, NEWUTS, NEWUSER = 0x20000, 0x4000000, 0x10000000

ATTEMPTS = {}
ROOT, LIMITS = set(), {}


def attempt(function=None, *, root=False, **limits):
    """Take *function* as an attempt; *root*: outside, only root gets through; *limits*: what it is to be stopped by."""

    def take(function):
        ATTEMPTS[function.__name__] = function
        if root:
            ROOT.add(function.__name__)
        LIMITS[function.__name__] = limits
        return function

    return take(function) if function else take


def call(name, *arguments):
    return checked(getattr(libc, name)(*arguments))


def checked(result):
    if result in (-1, None) or (isinstance(result, int) and result == 2**64 - 1):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def raw(x86, arm, *arguments):
    return checked(libc.syscall(ctypes.c_long(x86 if X86 else arm), *arguments))


def let_through(*numbers_and_arguments):
    """Make a system call with nonsense for arguments; any complaint but "not permitted" came from behind the gate."""
    try:
        raw(*numbers_and_arguments)
    except OSError as error:
        if error.errno in (errno.EPERM, errno.EACCES, errno.ENOSYS):
            raise
    return True


def holds(text, facts):
    return facts["secret"] in (text if isinstance(text, str) else text.decode(errors="replace"))
