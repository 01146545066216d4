"""Other processes: their folders, memory, descriptors and signals, and what the runner hands on by mistake."""

# ruff: noqa: PTH123
# An attacker takes what the system offers, not what reads well.
from __future__ import annotations

import ctypes
import errno
import os
import resource
import struct
import time
from pathlib import Path

from .base import attempt, call, holds, raw


@attempt(root=True)
def the_root_of_process_one(facts):
    return holds(Path("/proc/1/root" + facts["truth"]).read_text(), facts)


@attempt
def the_root_of_the_parent(facts):
    return holds(Path(f"/proc/{os.getppid()}/root{facts['truth']}").read_text(), facts)


@attempt
def the_folder_of_the_supervisor(facts):
    return holds(Path(f"/proc/{facts['pid']}/cwd/injection.json").read_text(), facts)


@attempt
def the_environment_of_every_process(facts):
    return any(holds(text, facts) for text in of_every_process("environ"))


@attempt
def the_command_line_of_every_process(facts):
    return any(holds(text, facts) for text in of_every_process("cmdline"))


@attempt
def the_environment_of_the_parent(facts):
    return bool(Path(f"/proc/{os.getppid()}/environ").read_bytes())


@attempt
def the_descriptors_of_the_supervisor(facts):
    return holds(Path(f"/proc/{facts['pid']}/fd/{facts['descriptor']}").read_text(), facts)


@attempt
def the_memory_of_the_supervisor(facts):
    with open(f"/proc/{facts['pid']}/mem", "rb", 0) as memory:
        memory.seek(facts["address"])
        return holds(memory.read(len(facts["secret"])), facts)


@attempt
def the_memory_of_the_supervisor_by_system_call(facts):
    buffer = ctypes.create_string_buffer(len(facts["secret"]))
    here = struct.pack("PN", ctypes.addressof(buffer), len(buffer))
    there = struct.pack("PN", facts["address"], len(buffer))
    raw(310, 270, facts["pid"], here, ctypes.c_ulong(1), there, ctypes.c_ulong(1), ctypes.c_ulong(0))
    return holds(buffer.raw, facts)


@attempt
def tracing_the_supervisor(facts):
    seize = 0x4206
    call("ptrace", ctypes.c_long(seize), ctypes.c_long(facts["pid"]), None, None)
    return True


@attempt
def tracing_anything_at_all(facts):
    child = os.fork()
    if child == 0:
        time.sleep(20)
    try:
        call("ptrace", ctypes.c_long(0x4206), ctypes.c_long(child), None, None)
    finally:
        os.kill(child, 9)
    return True


@attempt
def a_descriptor_out_of_the_supervisor(facts):
    copy = raw(438, 438, os.pidfd_open(facts["pid"]), facts["descriptor"], 0)
    return holds(os.pread(copy, 4096, 0), facts)


@attempt
def a_signal_to_the_supervisor(facts):
    os.kill(facts["pid"], 10)
    return True


@attempt
def a_signal_to_everyone(facts):
    os.kill(-1, 0)
    return True


@attempt
def limits_of_the_supervisor(facts):
    return resource.prlimit(facts["pid"], resource.RLIMIT_NOFILE)


@attempt
def the_namespaces_of_the_supervisor(facts):
    namespace = os.open(f"/proc/{facts['pid']}/ns/net", os.O_RDONLY)
    try:
        call("setns", namespace, 0)
    except OSError as error:
        return error.errno == errno.EPERM  # whose link can be opened can be told: who is where is known
    return True


@attempt
def inherited_descriptors(facts):
    for descriptor in range(3, 256):
        try:
            if holds(os.pread(descriptor, 4096, 0), facts):
                return True
        except OSError:
            continue
    return False


@attempt
def the_standard_input_of_the_runner(facts):
    return holds(os.read(0, 4096), facts)


@attempt
def the_environment_of_the_runner(facts):
    return any(holds(value, facts) for value in os.environ.values())


def of_every_process(name):
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                yield (folder / name).read_bytes()
            except OSError:
                continue
