"""A command of somebody else's ends alike with and without the seal: its clock, its output, its start."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import replace

import pytest

from opsassay.evals.runner.commands import places_of, run_command
from opsassay.solvers.sandbox import Sandbox, SandboxLimits, python_path, sealing_refusal

BOTH = [
    pytest.param(False, id="unsealed"),
    pytest.param(
        True, id="sealed", marks=pytest.mark.skipif(sealing_refusal() is not None, reason=str(sealing_refusal()))
    ),
]


@pytest.fixture
def seal(tmp_path):
    for name in ("view", "work"):
        (tmp_path / name).mkdir()
    return Sandbox(tmp_path / "view", tmp_path / "work", {}, {}, SandboxLimits(wall_clock_s=60), {"MINE": "1"})


def program(code):
    return [python_path(), "-I", "-S", "-c", code]


@pytest.mark.parametrize("sealed", BOTH)
def test_of_what_is_printed_the_end_is_kept_and_nothing_lies_on_disk(seal, tmp_path, sealed):
    small = replace(seal, limits=replace(seal.limits, output_bytes=1000))
    code = "import sys\nfor _ in range(200): sys.stdout.write('x' * 100_000); sys.stderr.write('y' * 100_000)\nprint('end')"
    ended = run_command(program(code), small, sealed=sealed)
    assert (ended.exit_code, ended.limit) == (0, None)
    assert ended.stdout_tail == "x" * 996 + "end\n"
    assert ended.stderr_tail == "y" * 1000
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("sealed", BOTH)
def test_time_signals_and_exit_codes_are_told_alike(seal, sealed):
    short = replace(seal, limits=replace(seal.limits, wall_clock_s=2.0))
    late = run_command(program("import time; print('began', flush=True); time.sleep(600)"), short, sealed=sealed)
    assert (late.limit, late.signal, late.stdout_tail) == ("wall_clock_s", "SIGKILL", "began\n")
    assert late.reason == "killed at the limit of 2 s of wall clock"
    died = run_command(program("import os; os.kill(os.getpid(), 11)"), seal, sealed=sealed)
    assert (died.exit_code, died.signal, died.reason) == (None, "SIGSEGV", "killed by SIGSEGV")
    assert run_command(program("raise SystemExit(3)"), seal, sealed=sealed).reason == "ended with exit code 3"
    missing = run_command(["/no/such/command"], seal, sealed=sealed)
    assert (missing.exit_code, missing.started) == (127, False)
    assert "cannot" in missing.reason


@pytest.mark.parametrize("sealed", BOTH)
def test_it_sees_the_environment_that_it_is_given_and_no_other(seal, monkeypatch, sealed):
    monkeypatch.setenv("OPENAI_API_KEY", "the-real-key")
    ended = run_command(program("import os; print(*sorted(os.environ))"), seal, sealed=sealed)
    assert set(ended.stdout_tail.split()) - {"LC_CTYPE", "LD_LIBRARY_PATH"} == {"MINE", "PATH"}


@pytest.mark.slow
def test_a_process_that_leaves_the_session_and_holds_the_output_is_not_waited_for(seal):
    code = (
        "import os, time\n"
        "if os.fork() == 0:\n    os.setsid(); print(os.getpid(), flush=True); time.sleep(60)\n"
        "else:\n    time.sleep(1)"
    )
    began = time.monotonic()
    ended = run_command(program(code), seal, sealed=False)
    try:
        assert ended.exit_code == 0
        assert time.monotonic() - began < 30
    finally:
        os.kill(int(ended.stdout_tail), signal.SIGKILL)


def test_places_are_those_inside_when_it_is_sealed(tmp_path):
    view, work, files = (tmp_path / name for name in ("v", "w", "f"))
    inside = places_of(view, work, files, sealed=True)
    assert inside["prompt"] == "/work/prompt.md"
    assert {inside["view"], inside["agent"]} == {"/view", "/opt/opsassay-agent"}
    beside = places_of(view, work, files, sealed=False)
    assert (beside["python"], beside["work"]) == (sys.executable, str(work))
