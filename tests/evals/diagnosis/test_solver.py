from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from opsassay.evals.diagnosis.workers.sources import hash_of, solver_of, sources_of
from opsassay.solvers.methods.loudest import Loudest

CODE = """
class Mine:
    name, source, cost, configuration = "mine", "here", "none", {}
    def diagnose(self, view):
        return None
"""


def method_hash(method):
    return hash_of(solver_of(method), sources_of(method))


def test_name_configuration_and_version_are_told() -> None:
    solver = solver_of(Loudest(slow_ratio=3.0))
    assert (solver.name, solver.kind, solver.version) == ("loudest", "method", "0.1.0")
    assert solver.configuration == {"slow_ratio": 3.0, "claim_at_sigma": 5.0, "claim_at_count": 5}


def test_another_configuration_is_another_solver() -> None:
    assert method_hash(Loudest()) == method_hash(Loudest())
    assert method_hash(Loudest()) != method_hash(Loudest(slow_ratio=3.0))


def test_an_edited_source_is_another_solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "edited_method.py"
    hashes = []
    for comment in ("# one", "# two"):
        file.write_text(CODE + comment)
        module = importlib.import_module("edited_method")
        hashes.append(method_hash(module.Mine()))
        del sys.modules["edited_method"]
    assert hashes[0] != hashes[1]
