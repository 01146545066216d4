"""A seal to run small programs in."""

from __future__ import annotations

import pytest

from opsassay.solvers.sandbox import Sandbox, SandboxLimits, python_path, sealing_refusal


@pytest.fixture
def sealed(tmp_path):
    """Return a function that runs a Python program in a seal whose work folder is ``tmp_path / "work"``."""
    if refusal := sealing_refusal():
        pytest.skip(refusal)
    view, work = tmp_path / "view", tmp_path / "work"
    view.mkdir()
    work.mkdir()

    def run(program, *, sockets=None, ports=None, environment=None, readable=None, hidden=(), command=None, **limits):
        limits = SandboxLimits(**{"wall_clock_s": 60, **limits})
        given = {"HOME": "/work", **(environment or {})}
        seal = Sandbox(view, work, sockets or {}, ports or {}, limits, given, readable or {}, hidden)
        return seal.run(command or [python_path(), "-I", "-S", "-c", program])

    return run
