"""The example of a substrate keeps the contract, installed as a package and found through its entry point."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from importlib.metadata import entry_points

import pytest

from opsassay.core.errors import RefusedError
from opsassay.telemetry.tree import Tree
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.substrate import load_substrate
from testbed.substrates.contract import *  # noqa: F403
from testbed.substrates.contract import EXAMPLE as PACKAGE
from testbed.substrates.contract import PAIR, planned

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory):
    """Put the package, with the entry points of its pyproject.toml, where this process finds what is installed."""
    folder = tmp_path_factory.mktemp("installed")
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    shutil.copytree(PACKAGE / "opsassay_threads", folder / "opsassay_threads")
    about = folder / f"opsassay_threads-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def substrate(installed):
    assert [point.value for point in entry_points(group="opsassay.substrates")] == [
        "opsassay_threads.substrate:ThreadSubstrate"
    ]
    return load_substrate("threads")


@pytest.fixture(scope="module")
def pair(substrate):
    with substrate.deployed(PAIR, "pair") as running:
        yield running


@pytest.fixture
def leftovers():
    return lambda name: [thread.name for thread in threading.enumerate() if thread.name.startswith(f"{name}-")]


@pytest.fixture(params=["HTTPRequestDelay", "HTTPResponseAbort", "PodFailure"])
def slow_fault(request):
    parameters = {"HTTPRequestDelay": {"delay_ms": 150}}
    return planned(request.param, **parameters.get(request.param, {}))


def test_a_system_with_stores_is_refused(substrate):
    with pytest.raises(RefusedError, match="threads have none"):
        substrate.deploy(load_system("shop"), "shop")


def test_the_command_of_its_readme_records_an_incident(installed, tmp_path):
    (line,) = re.findall(r"^\$ opsassay (.+)$", (PACKAGE / "README.md").read_text(), flags=re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-m", "opsassay", *shlex.split(line)],
        cwd=shutil.copytree(PACKAGE, tmp_path / "examples" / "substrate").parents[1],
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (id_,) = (path.name for path in (tmp_path / "out" / "incidents").iterdir())
    tree = Tree(tmp_path / "out")
    assert {"front", "back"} <= set(tree.datapack(id_).read("abnormal", "traces")["service_name"])
    assert [fault.type for fault in tree.truth(id_).faults] == ["HTTPRequestDelay"]
