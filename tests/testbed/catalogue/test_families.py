"""The catalogue is what its families say, and a package adds a family with no change to this one."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.faults import CATALOGUE, Category
from opsassay.testbed.catalogue.fault import catalogued

FAMILY = """
from opsassay.core.schema.faults import Actuator, Category, Channel, FaultKind, Layer
from opsassay.testbed.catalogue.fault import SERVICE_POD, FamilyTraits, whole
from opsassay.testbed.catalogue.measures import handling_slow

_FAMILY = FamilyTraits(Category.STRESS, Layer.INFRASTRUCTURE, SERVICE_POD, Channel.VERTICAL, Actuator.CGROUP, "no host")
FAMILY = (_FAMILY.fault({name!r}, FaultKind.CPU_STRESS, whole("delay_ms", 7, "a delay"), signature=handling_slow),)
"""
ASK = """
import json
from opsassay.core.schema.faults import CATALOGUE
from opsassay.core.schema.plan import PlannedFault
from opsassay.testbed.catalogue.fault import catalogued
plan = PlannedFault.model_validate({"fault": "DiskStress", "target": {"service": "x"}})
print(json.dumps([list(CATALOGUE)[-1], len(CATALOGUE), plan.parameters, catalogued("DiskStress").signature.__name__]))
"""


def ask_with_package(folder, name):
    """Run ASK where a package is installed whose family has the type *name*."""
    (folder / "more_faults.py").write_text(FAMILY.format(name=name))
    about = folder / "more_faults-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: more-faults\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[opsassay.faults]\nmore = more_faults:FAMILY\n")
    path = f"import sys; sys.path.insert(0, {str(folder)!r})\n"
    return subprocess.run([sys.executable, "-c", path + ASK], capture_output=True, text=True, check=False)


def test_every_type_has_what_an_injection_needs():
    for name in CATALOGUE:
        fault = catalogued(name)
        assert fault.row is CATALOGUE[name]
        assert fault.signature.__doc__
        assert (fault.impairment is not None) == (fault.row.category is Category.NETWORK)
    assert catalogued("DNSChaos") is catalogued("DNSError")
    with pytest.raises(NotFoundError, match="did you mean 'PodKill'"):
        catalogued("PodKil")


def test_a_package_adds_a_type_that_plans_can_name(tmp_path):
    done = ask_with_package(tmp_path, "DiskStress")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["DiskStress", 32, {"delay_ms": 7}, "handling_slow"]


def test_a_name_that_is_there_already_is_refused(tmp_path):
    done = ask_with_package(tmp_path, "CPUStress")
    assert "Two families have a fault type 'CPUStress'" in done.stderr
