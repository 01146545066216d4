"""The table of past faults does not rot: each text is where it says, once, and each test file is there."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from suite_faults import FAULTS, OUTSIDE_CI, SUITES

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_can_be_put_back(fault):
    assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.text) == 1
    assert fault.changed != fault.text
    assert (ROOT / fault.tests).is_file()


def test_the_table_has_twenty_faults_of_different_names():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) == 20


def test_the_suites_select_what_the_makefile_does():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(OUTSIDE_CI)", OUTSIDE_CI)
    for target, selection in SUITES:
        recipe = makefile.partition(f"\n{target.removeprefix('make ')}:")[2].partition("\n\n")[0]
        assert f'-m "{selection}"' in recipe or f"-m {selection} " in recipe, target
