"""Shared memory, queues and keys, by each of their names."""

# An attacker takes what the system offers, not what reads well.
from __future__ import annotations

import ctypes
import fcntl
import os
import time
from pathlib import Path

from .base import attempt, call, checked, holds, let_through, libc, raw

OPENED, ACCESSED = 0x20, 0x1


@attempt
def shared_memory_by_name(facts):
    return holds(Path("/dev/shm", facts["shm_name"]).read_text(), facts)


@attempt
def shared_memory_of_system_v(facts):
    segment = call("shmget", facts["ipc_key"], 0, 0)
    return holds(ctypes.string_at(checked(libc.shmat(segment, None, 0)), len(facts["secret"])), facts)


@attempt
def a_queue_of_system_v(facts):
    return call("msgget", facts["ipc_key"], 0) >= 0


@attempt
def a_semaphore_of_system_v(facts):
    return call("semget", facts["ipc_key"], 0, 0) >= 0


@attempt
def a_queue_of_posix(facts):
    return call("mq_open", facts["queue"].encode(), os.O_RDONLY | os.O_NONBLOCK) >= 0


@attempt
def a_key_of_the_kernel(facts):
    found = raw(250, 219, 10, -4, b"user", facts["key"].encode(), 0)
    buffer = ctypes.create_string_buffer(256)
    raw(250, 219, 11, found, buffer, 256)
    return holds(buffer.raw, facts)


@attempt
def a_lock_on_a_program(facts):
    return somebody_holds("/usr/bin/env")


@attempt
def a_lock_on_the_interpreter(facts):
    return somebody_holds(facts["interpreter"])


@attempt
def a_lock_on_a_mounted_file(facts):
    return somebody_holds(facts["set_user_id"])


@attempt
def a_lock_on_a_mounted_folder(facts):
    return somebody_holds(facts["mounted_folder"])


@attempt
def a_lock_on_a_device(facts):
    return somebody_holds("/dev/zero")


@attempt
def a_lock_on_a_namespace(facts):
    return any(somebody_holds(path) for path in Path("/proc/self/ns").iterdir())


@attempt
def a_lock_by_ranges_on_a_program(facts):
    asked = fcntl.fcntl(os.open("/usr/bin/env", os.O_RDONLY), fcntl.F_GETLK, RANGE_TO_WRITE)
    return asked[:2] != UNLOCKED


@attempt
def watching_who_starts_a_program(facts):
    watch = call("inotify_init1", os.O_NONBLOCK)
    call("inotify_add_watch", watch, b"/usr/bin", OPENED | ACCESSED)
    for _ in range(40):
        time.sleep(0.05)
        try:
            if b"true\0" in os.read(watch, 65536):
                return True
        except BlockingIOError:
            pass
    return False


@attempt
def requests_that_the_whole_machine_counts(facts):
    return let_through(206, 0, 0, 0)


def somebody_holds(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


RANGE_TO_WRITE = fcntl.F_WRLCK.to_bytes(2, "little") + bytes(30)
UNLOCKED = fcntl.F_UNLCK.to_bytes(2, "little")
