"""More than it may use: processes, memory, disk, files."""

# ruff: noqa: PTH123
# An attacker takes what the system offers, not what reads well.
from __future__ import annotations

import os
import time
from pathlib import Path

from .base import attempt


@attempt(processes=30)
def a_fork_bomb(facts):
    children = []
    try:
        for _ in range(60):
            children.append(os.fork())
            if children[-1] == 0:
                time.sleep(20)
                os._exit(0)
    finally:
        for child in children:
            os.kill(child, 9)
    return True


@attempt(memory_bytes=96 * 2**20)
def a_memory_bomb(facts):
    return len(bytes(range(256)) * (2**20)) == 2**28


@attempt(memory_bytes=96 * 2**20)
def a_memory_bomb_in_many_processes(facts):
    for _ in range(4):
        if os.fork() == 0:
            kept = b"x" * (64 * 2**20)
            time.sleep(0.3)
            os._exit(len(kept) and 0)
    return sum(os.wait()[1] == 0 for _ in range(4)) == 4


@attempt(work_bytes=8 * 2**20)
def filling_the_disk(facts):
    for number in range(4):
        Path(f"fill{number}").write_bytes(bytes(2**22))
    return True


@attempt(work_bytes=8 * 2**20)
def filling_the_temporary_folder(facts):
    for number in range(4):
        path = Path("/tmp", f"opsassay-fill-{os.getpid()}-{number}")
        path.write_bytes(bytes(2**22))
        if not facts["sealed"]:
            path.unlink()
    return True


@attempt(work_files=200)
def countless_files(facts):
    for number in range(400):
        Path(f"file{number}").touch()
    return True


@attempt(file_bytes=2**20)
def one_huge_file(facts):
    with open("huge", "wb") as file:
        file.truncate(2**40)
    return True


@attempt(open_files=32)
def countless_descriptors(facts):
    return len([os.open("/dev/null", os.O_RDONLY) for _ in range(64)]) == 64


@attempt(memory_bytes=96 * 2**20)
def memory_without_a_name(facts):
    descriptor = os.memfd_create("x")
    for _ in range(32):
        os.write(descriptor, bytes(2**23))
    return True
