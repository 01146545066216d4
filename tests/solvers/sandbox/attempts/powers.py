"""More than it was given: other users, namespaces, mounts, devices, knobs and doors of the kernel."""

# ruff: noqa: PTH109, PTH208
# An attacker takes what the system offers, not what reads well.
from __future__ import annotations

import ctypes
import os
import socket
import stat
import struct
import subprocess
from pathlib import Path

from .base import NEWNS, NEWUSER, NEWUTS, attempt, call, let_through, raw


@attempt(root=True)
def becoming_root(facts):
    os.setgid(0)
    os.setuid(0)
    return Path("/proc/self/uid_map").read_text().split()[1] == "0"


@attempt
def a_user_namespace(facts):
    call("unshare", NEWUSER)
    return True


@attempt
def a_user_namespace_by_clone(facts):
    child = raw(56, 220, ctypes.c_ulong(NEWUSER | 17), None, None, None, None)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True


@attempt
def a_user_namespace_by_clone3(facts):
    arguments = struct.pack("Q" * 11, NEWUSER, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)
    child = raw(435, 435, arguments, ctypes.c_ulong(len(arguments)))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return True


@attempt(root=True)
def mounting(facts):
    in_a_copy_of_the_mounts(facts)
    call("mount", b"x", os.getcwd().encode(), b"tmpfs", ctypes.c_ulong(0), None)
    return True


@attempt(root=True)
def mounting_anew_with_writing(facts):
    in_a_copy_of_the_mounts(facts)
    call("mount", None, b"/", None, ctypes.c_ulong(0x1020), None)
    Path("/written-by-an-attempt").touch()
    Path("/written-by-an-attempt").unlink()
    return True


@attempt(root=True)
def taking_a_mount_away(facts):
    in_a_copy_of_the_mounts(facts)
    call("umount2", b"/proc", 2)
    return True


@attempt(root=True)
def opening_a_tree_of_mounts(facts):
    return raw(428, 428, -100, b"/", 1) >= 0


@attempt(root=True)
def a_set_user_id_program(facts):
    user = {} if facts["sealed"] else {"user": 65534, "group": 65534, "extra_groups": []}
    told = subprocess.run([facts["set_user_id"]], capture_output=True, text=True, check=True, **user)
    return "euid=0" in told.stdout


@attempt(root=True)
def a_device_node(facts):
    os.mknod("zero", 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    return os.read(os.open("zero", os.O_RDONLY), 1) == b"\0"


@attempt(root=True)
def the_log_of_the_kernel(facts):
    os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    return True


@attempt(root=True)
def the_log_of_the_kernel_by_system_call(facts):
    return raw(103, 116, 10, None, 0) >= 0


@attempt
def devices_in_sysfs(facts):
    return bool(os.listdir("/sys/class"))


@attempt
def control_groups(facts):
    return "cgroup" in Path("/proc/self/mountinfo").read_text().replace(facts["root"], "") and os.listdir(
        "/sys/fs/cgroup"
    )


@attempt(root=True)
def the_handler_of_crashes(facts):
    os.close(os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
    return True


@attempt(root=True)
def the_trigger_of_sysrq(facts):
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))
    return True


@attempt(root=True)
def another_name_for_the_machine(facts):
    if not facts["sealed"]:
        call("unshare", NEWUTS)
    socket.sethostname("mine")
    return True


@attempt(root=True)
def a_real_time_process(facts):
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return True


@attempt(root=True)
def a_module_for_the_kernel(facts):
    return let_through(175, 105, None, ctypes.c_ulong(0), b"")


@attempt(root=True)
def another_kernel(facts):
    return let_through(246, 104, ctypes.c_ulong(0), ctypes.c_ulong(0), None, ctypes.c_ulong(0xFFFF))


@attempt(root=True)
def a_restart_of_the_machine(facts):
    return let_through(169, 142, 0, 0, 0, None)  # with the wrong magic numbers, which are looked at last


@attempt(root=True)
def swap_space(facts):
    return let_through(167, 224, b"/no/such/file", 0)


@attempt(root=True)
def accounting_of_processes(facts):
    return let_through(163, 89, b"/no/such/file")


@attempt(root=True)
def a_program_in_the_kernel(facts):
    attributes = struct.pack("IIII", 2, 4, 4, 1) + bytes(112)  # an array of one
    return raw(321, 280, 0, attributes, len(attributes)) >= 0


@attempt(root=True)
def watching_all_files(facts):
    return raw(300, 262, 0, os.O_RDONLY) >= 0


@attempt(root=True)
def counters_of_the_processor(facts):
    attributes = struct.pack("IIQQQQ", 1, 112, 0, 0, 0, 0) + bytes(72)
    return raw(298, 241, attributes, 0, -1, -1, ctypes.c_ulong(0)) >= 0


@attempt(root=True)
def faults_of_pages_in_our_hands(facts):
    return raw(323, 282, 0) >= 0


@attempt
def rings_of_system_calls(facts):
    parameters = ctypes.create_string_buffer(120)
    return raw(425, 425, 1, parameters) >= 0


def in_a_copy_of_the_mounts(facts):
    """Outside, leave the machine's own mounts alone."""
    if not facts["sealed"]:
        call("unshare", NEWNS)
        call("mount", b"none", b"/", None, ctypes.c_ulong(1 << 14 | 1 << 18), None)
