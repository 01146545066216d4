"""The attempts of `test_attempts` against a seal that a user without privileges makes, in a user namespace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import pytest

from opsassay.solvers.sandbox import sealing_refusal
from solvers.sandbox.attempts import ATTEMPTS, ROOT
from solvers.sandbox.controls import DEPENDS_ON_THE_MACHINE, NEEDS_A_MEMORY_GROUP, SHARED_WITHOUT_ROOT

ROOT_FOLDER = Path(__file__).parents[3]
PARTS = 2
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture(scope="module")
def readable():
    """Return a folder with the code and the attempts that nobody may read, wherever the checkout is."""
    with tempfile.TemporaryDirectory(prefix="opsassay-nobody-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for part in ("src", "tests/solvers/sandbox"):
            shutil.copytree(ROOT_FOLDER / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        yield folder


@pytest.fixture(scope="module")
def told(readable):
    """Return what came of all attempts, made by nobody in an interpreter that nobody may use."""
    if os.geteuid() != 0:
        pytest.skip("this is not root: test_attempts.py has shown the seal without privileges")
    if refusal := sealing_refusal():
        pytest.skip(refusal)
    version = (sys.version_info.major, sys.version_info.minor)
    python = shutil.which("python{}.{}".format(*version), path="/usr/bin:/usr/local/bin")
    if python is None or shutil.which("setpriv") is None:
        pytest.skip("nobody has no interpreter of this version in /usr/bin or /usr/local/bin, or there is no setpriv")
    told = {"attempts": {}}
    for part in each_part(python, readable):
        if "refusal" in part:
            pytest.skip(part["refusal"])
        told = part | {"attempts": told["attempts"] | part["attempts"]}
    return told


def each_part(python, readable):
    """Return what each process, all at the same time, made of its part of the attempts."""
    with ExitStack() as attackers:
        started = [
            attackers.enter_context(
                subprocess.Popen(
                    [*NOBODY, python, "-m", "solvers.sandbox.world", str(part), str(PARTS)],
                    cwd="/",
                    env={
                        "PATH": "/usr/bin:/bin",
                        "HOME": "/nonexistent",
                        "PYTHONPATH": f"{readable}/src:{readable}/tests",
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                )
            )
            for part in range(PARTS)
        ]
        for attacker in started:
            attackers.callback(attacker.kill)
        printed = [attacker.communicate(timeout=280) for attacker in started]
    assert all(attacker.returncode == 0 for attacker in started), printed
    return [json.loads(out) for out, _ in printed]


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTEMPTS)
def test_the_seal_holds(told, name):
    if name in NEEDS_A_MEMORY_GROUP and not told["memory_is_held"]:
        pytest.skip(
            f"not held: {name!r} needs a control group for memory, which nobody cannot make; see docs/sealing.md"
        )
    if name in SHARED_WITHOUT_ROOT:
        pytest.skip(f"not held: {name!r}, only root can make devices; see docs/sealing.md")
    sealed, _ = told["attempts"][name]
    assert sealed.get("reached") is False, sealed


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTEMPTS)
def test_without_the_seal_it_gets_through(told, name):
    if name in ROOT:
        pytest.skip(f"no control for {name!r}: only root gets through, and does in test_attempts.py")
    _, control = told["attempts"][name]
    if control.get("reached") is False and name in DEPENDS_ON_THE_MACHINE:
        pytest.skip(f"no control for {name!r} here: {DEPENDS_ON_THE_MACHINE[name]} ({control.get('held')})")
    assert control.get("reached") is True, control
