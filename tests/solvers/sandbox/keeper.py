"""What stands outside and must not be reached: a process with secrets in all the places where a supervisor could have them.

``python keeper.py FOLDER SECRET`` prints its facts as JSON and lives until its standard input closes.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.shmat.restype = ctypes.c_void_p
ADD_KEY, KEYCTL = (248, 250) if os.uname().machine == "x86_64" else (217, 219)


def main():
    folder, secret = Path(sys.argv[1]), sys.argv[2]
    os.chdir(folder / "truth")
    signal.signal(signal.SIGUSR1, lambda *_: None)
    libc.prctl(0x59616D61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)  # where Yama bounds tracing: anyone may trace this one
    memory = ctypes.create_string_buffer(secret.encode())
    facts = {
        "pid": os.getpid(),
        "address": ctypes.addressof(memory),
        "descriptor": os.open("injection.json", os.O_RDONLY),
    }

    facts["tcp"] = serve(socket.AF_INET, ("0.0.0.0", 0), secret)[1]
    facts["tcp6"] = serve(socket.AF_INET6, ("::1", 0), secret)[1] if socket.has_ipv6 else None
    serve(socket.AF_UNIX, "\0" + folder.name, secret)
    facts["abstract"] = folder.name
    facts["socket"] = serve(socket.AF_UNIX, str(folder / "supervisor.sock"), secret)
    facts["other_socket"] = serve(socket.AF_UNIX, str(folder / "runs/other/tools.sock"), secret)
    serve(socket.AF_UNIX, str(folder / "sockets/tools.sock"), "tools")
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    facts["udp"] = datagrams.getsockname()[1]
    threading.Thread(target=echo, args=(datagrams, secret), daemon=True).start()

    facts["shm_name"] = folder.name
    Path("/dev/shm", folder.name).write_text(secret)
    facts["ipc_key"] = key = 0x41000000 + os.getpid()
    segment = libc.shmget(key, 4096, 0o1600)
    ctypes.memmove(libc.shmat(segment, None, 0), secret.encode(), len(secret))
    queue, semaphore = libc.msgget(key, 0o1600), libc.semget(key, 1, 0o1600)
    facts["queue"] = f"/{folder.name}"
    libc.mq_open(facts["queue"].encode(), os.O_RDWR | os.O_CREAT, 0o600, None)
    facts["key"] = folder.name
    found = libc.syscall(ctypes.c_long(ADD_KEY), b"user", folder.name.encode(), secret.encode(), len(secret), -4)
    if found > 0:
        libc.syscall(ctypes.c_long(KEYCTL), 5, found, 0x3F3F0000)
    held = [hold(place) for place in lockable(*sys.argv[3:])]
    threading.Thread(target=open_often, args=("/usr/bin/true",), daemon=True).start()
    print(json.dumps(facts), flush=True)
    try:
        sys.stdin.read()
    finally:
        for descriptor in held:
            os.close(descriptor)
        Path("/dev/shm", folder.name).unlink()
        libc.shmctl(segment, 0, None)
        libc.msgctl(queue, 0, None)
        libc.semctl(semaphore, 0, 0)
        libc.mq_unlink(facts["queue"].encode())
        if found > 0:
            libc.syscall(ctypes.c_long(KEYCTL), 9, found, -4)


def lockable(*paths):
    return ["/usr/bin/env", "/dev/zero", *Path("/proc/self/ns").iterdir(), *paths]


def hold(path):
    """Lock *path* as a whole and by its bytes, as a run beside this one could, and return the descriptor."""
    descriptor = os.open(path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    with suppress(OSError):  # folders and namespaces have no ranges
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return descriptor


def open_often(path):
    while True:
        os.close(os.open(path, os.O_RDONLY))
        time.sleep(0.02)


def serve(family, address, secret):
    try:
        listener = socket.socket(family)
        listener.bind(address)
    except OSError:
        return [None, None]
    listener.listen()
    threading.Thread(target=answer, args=(listener, secret), daemon=True).start()
    return listener.getsockname()


def answer(listener, secret):
    while True:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(secret.encode())


def echo(datagrams, secret):
    while True:
        datagrams.sendto(secret.encode(), datagrams.recvfrom(64)[1])


if __name__ == "__main__":
    main()
