"""Files of the machine: truth, other runs, homes, code, and the view itself."""

# ruff: noqa: PTH102, PTH109, PTH208, PTH211
# An attacker takes what the system offers, not what reads well.
from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import sys
from pathlib import Path

from .base import attempt, holds, raw


@attempt
def truth_by_its_path(facts):
    return holds(Path(facts["truth"]).read_text(), facts)


@attempt
def truth_by_climbing_out_of_the_work_folder(facts):
    return holds((Path("../../../../../../../..") / facts["truth"].lstrip("/")).read_text(), facts)


@attempt
def truth_through_a_symbolic_link(facts):
    os.symlink(facts["truth"], "link")
    return holds(Path("link").read_text(), facts)


@attempt
def truth_through_a_hard_link(facts):
    os.link(facts["truth"], "link")
    return holds(Path("link").read_text(), facts)


@attempt
def another_run(facts):
    return holds(Path(facts["other_run"]).read_text(), facts)


@attempt
def an_earlier_repeat(facts):
    return holds(Path(facts["earlier"]).read_text(), facts)


@attempt
def the_temporary_folder_of_the_machine(facts):
    return Path(facts["root"]).name in os.listdir("/tmp")


@attempt
def home_folders(facts):
    return facts["home_entry"] in os.listdir(facts["home"])


@attempt
def the_code_of_opsassay(facts):
    return "RunStore" in Path(facts["package"], "bench/core/store.py").read_text()


@attempt
def importing_opsassay(facts):
    sys.path.insert(0, str(Path(facts["package"]).parent))
    try:
        import opsassay
    except ImportError as error:
        raise OSError(errno.ENOENT, str(error)) from error
    return opsassay.__version__


@attempt(root=True)
def password_hashes(facts):
    return "root:" in Path("/etc/shadow").read_text()


@attempt
def writing_to_the_view(facts):
    Path(facts["view"], "added").write_text("x")
    return True


@attempt
def changing_a_file_of_the_view(facts):
    with Path(facts["view"], "table.csv").open("r+") as file:
        file.write("x")
    return True


@attempt
def times_of_the_view(facts):
    return Path(facts["view"], "table.csv").stat().st_mtime > 86400


@attempt
def names_of_the_machines_folders(facts):
    told = [
        os.getcwd(),
        *os.environ.values(),
        Path("/proc/self/mountinfo").read_text(),
        Path("/proc/self/cgroup").read_text(),
    ]
    return any(facts["root"] in text for text in told)


@attempt
def the_name_of_the_machine(facts):
    return socket.gethostname() == facts["hostname"]


@attempt(root=True)
def truth_by_a_file_handle(facts):
    handle = ctypes.create_string_buffer(struct.pack("Ii", 128, 0) + bytes(128))
    path = facts["truth"] if Path(facts["truth"]).exists() else "/work"
    raw(303, 264, -100, path.encode(), handle, ctypes.byref(ctypes.c_int()), 0)
    mount = os.open("/", os.O_RDONLY)
    return holds(os.read(raw(304, 265, mount, handle, os.O_RDONLY), 4096), facts)


@attempt(root=True)
def climbing_out_of_a_chroot(facts):
    outside = os.open("/", os.O_RDONLY)
    os.mkdir("cell")
    os.chroot("cell")
    os.fchdir(outside)
    return holds(Path(facts["truth"].lstrip("/")).read_text(), facts)
