"""Shared memory, queues and keys, by each of their names."""

# An attacker takes what the system offers, not what reads well.
from __future__ import annotations

import ctypes
import os
from pathlib import Path

from .base import attempt, call, checked, holds, libc, raw


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
