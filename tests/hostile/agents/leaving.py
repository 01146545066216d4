"""What a collector leaves in the kernel for the next one: ``leaving.py PLACE TOKEN`` says whether it is there, and leaves it.

Prints ``true`` when an earlier one left it. What needs a process that goes on is a process in the background.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import time

PLACE, TOKEN = sys.argv[1:3]
KEY = int(TOKEN[-7:], 16)
ADD_KEY, KEYCTL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def stay():
    """Go on in the background, as a daemon of the same group."""
    if os.fork():
        os._exit(0)
    for descriptor in (0, 1, 2):
        os.dup2(os.open("/dev/null", os.O_RDWR), descriptor)
    time.sleep(60)


def bound(family, address):
    """Return whether something is listening at *address*; listen there in the background if not."""
    with socket.socket(family) as client:
        try:
            client.connect(address)
            return True
        except OSError:
            listener = socket.socket(family)
            listener.bind(address)
            listener.listen()
    print("false", flush=True)
    return stay()


def file(path):
    there = os.path.exists(path)
    with open(path, "w"):
        return there


def segment():
    there = libc.shmget(KEY, 4096, 0) >= 0
    libc.shmget(KEY, 4096, 0o1666)
    return there


def semaphore():
    there = libc.semget(KEY, 1, 0) >= 0
    libc.semget(KEY, 1, 0o1666)
    return there


def queue():
    there = libc.msgget(KEY, 0) >= 0
    libc.msgget(KEY, 0o1666)
    return there


def key():
    name, ring = f"key-{TOKEN}".encode(), -4  # of the user
    if libc.syscall(ctypes.c_long(KEYCTL), 10, ring, b"user", name, 0) > 0:
        return True
    return libc.syscall(ctypes.c_long(ADD_KEY), b"user", name, b"left", 4, ring) < 0 and None


def process():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as stream:
                line = stream.read()
        except OSError:
            continue
        if int(pid) not in (os.getpid(), os.getppid()) and f"process\0{TOKEN}".encode() in line:
            return True
    print("false", flush=True)
    return stay()


def lock():
    import fcntl

    held = os.open(sys.argv[3], os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    print("false", flush=True)
    return stay()


PLACES = {
    "a file in /tmp": lambda: file(f"/tmp/{TOKEN}"), "a file in /dev/shm": lambda: file(f"/dev/shm/{TOKEN}"),
    "a System V segment": segment, "a System V semaphore": semaphore, "a System V queue": queue, "a key of the kernel": key,
    "a process": process, "a lock on a program": lock,
    "a port": lambda: bound(socket.AF_INET, ("127.0.0.1", 20000 + KEY % 10000)),
    "an abstract socket": lambda: bound(socket.AF_UNIX, f"\0{TOKEN}"),
}  # fmt: skip

if __name__ == "__main__":
    found = PLACES[PLACE]()
    print("refused" if found is None else str(found).lower())
