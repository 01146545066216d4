"""The filter of system calls is well formed, and its numbers are those of the kernel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opsassay.solvers.sandbox.seccomp import REFUSED, program


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_lands_on_an_instruction(machine):
    lines = program(machine)
    assert len(lines) < 4096
    for place, (code, if_true, if_false, _) in enumerate(lines):
        if code & 0x07 == 0x05:
            assert place + 1 + max(if_true, if_false) < len(lines)
            assert max(if_true, if_false) < 256
    assert lines[-1] == (0x06, 0, 0, 0x7FFF0000)


def test_the_filter_refuses_by_number_what_the_headers_call_so():
    """The numbers of this machine's own kernel headers are the oracle, where they are installed."""
    names = {"x86_64": "x86_64-linux-gnu/asm/unistd_64.h", "aarch64": "asm-generic/unistd.h"}
    header = Path("/usr/include", names.get(os.uname().machine, "none"))
    if not header.exists():
        pytest.skip(f"no kernel headers: {header}")
    numbers = dict(
        line.split()[1:3]
        for line in header.read_text().splitlines()
        if line.startswith("#define __NR") and len(line.split()) > 2
    )
    column = ["x86_64", "aarch64"].index(os.uname().machine)
    known = {name: number[column] for name, number in REFUSED.items() if f"__NR_{name}" in numbers}
    assert len(known) > 50
    assert known == {name: int(numbers[f"__NR_{name}"]) for name in known}
