"""What of the machine a sealed agent sees, and what it makes of it."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

import opsassay
from evals.commands import agent
from opsassay.cli import run as command_line
from opsassay.core.errors import UserError
from opsassay.evals.diagnosis.setups.agents import setup_of
from opsassay.evals.diagnosis.solve import run_agent
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.runner import mounts as lending
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.solvers.sandbox import seal, sealing_refusal
from opsassay.telemetry.datapack import Datapack
from telemetry.packs import make_tree

SEALS = pytest.mark.skipif(sealing_refusal() is not None, reason=f"this machine cannot seal: {sealing_refusal()}")
GIVE = "print(json.dumps(GOOD))"


@pytest.fixture
def machine(tmp_path):
    """Return a folder with a tree of incidents, a run store and tools, as a user may have them side by side."""
    make_tree(tmp_path / "suite", count=1)
    (tmp_path / "store").mkdir()
    (tmp_path / "tools" / "bin").mkdir(parents=True)
    (tmp_path / "tools" / "bin" / "hello").write_text("#!/bin/sh\necho hello from a tool\n")
    (tmp_path / "tools" / "bin" / "hello").chmod(0o755)
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        if os.access(folder, os.W_OK) and folder.owner() == tmp_path.owner():
            folder.chmod(folder.stat().st_mode | 0o055)  # the agent is another user
    return tmp_path


def refused(machine, *readable):
    path = agent(machine / "agent", GIVE, readable=readable)
    with pytest.raises(UserError, match=r"^[^\n]+$") as error:
        setup_of(str(path), sealing="off")
    assert str(path) in str(error.value)
    return str(error.value)


# Refused before anything runs -------------------------------------------------------------------------------------------


def test_a_folder_that_holds_truth_or_runs_is_refused_by_what_is_in_it(machine):
    assert "tells of incidents or runs" in refused(machine, machine / "suite" / "truth")
    assert "tells of incidents or runs" in refused(machine, machine / "suite")
    assert "tells of incidents or runs" in refused(machine, machine)
    for name in sorted(lending.TELLING):
        folder = machine / "innocent" / "deep"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
        assert name in refused(machine, machine / "innocent")
        assert name in refused(machine, folder / name)
        (folder / name).unlink()


def test_a_link_to_truth_is_what_it_leads_to(machine):
    (machine / "link").symlink_to(machine / "suite" / "truth")
    assert "tells of incidents or runs" in refused(machine, machine / "link")


@pytest.mark.parametrize("what", ["socket", "pipe"])
def test_a_way_out_is_refused(machine, what, monkeypatch):
    if what == "pipe":
        os.mkfifo(machine / "tools" / "out")
    else:
        with socket.socket(socket.AF_UNIX) as door:
            monkeypatch.chdir(machine / "tools")
            door.bind("out")
    assert "a way out" in refused(machine, machine / "tools")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("tools", "no absolute path"),
        ("/opt/../etc", "no absolute path"),
        ("/no/such/folder", "is not there"),
        ("/", "folders of other runs"),
        ("/usr/share", "place of its own"),
        ("/etc/ssh", "place of its own"),
        ("/proc/1", "running kernel"),
        ("/run", "running kernel"),
        ("/tmp", "folders of other runs"),
        (str(Path(opsassay.__file__).parent), "is of OpsAssay"),
        (str(Path(opsassay.__file__).parent / "testbed"), "is of OpsAssay"),
    ],
)
def test_what_is_the_machines_or_ours_is_refused(machine, monkeypatch, name, reason):
    monkeypatch.setattr(lending.tempfile, "gettempdir", lambda: "/tmp")
    if not Path(name).exists() and reason != "is not there" and name.startswith("/") and ".." not in name:
        pytest.skip(f"this machine has no {name}")
    assert reason in refused(machine, name)


def test_a_link_to_the_kernels_files_is_refused(machine):
    (machine / "kernel").symlink_to("/proc/self")
    assert "running kernel" in refused(machine, machine / "kernel")


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="there is no virtual environment")
def test_our_own_environment_is_refused(machine):
    assert "is of OpsAssay" in refused(machine, sys.prefix)


def test_a_folder_without_an_end_is_refused(machine, monkeypatch):
    monkeypatch.setattr(lending, "MOST_ENTRIES", 1)
    assert "more than 1 entries" in refused(machine, machine / "tools")


def test_the_store_and_the_tree_of_this_very_run_are_refused_however_they_look(machine, capsys):
    path = agent(machine / "agent", GIVE, readable=[machine / "store"])
    arguments = ["run", str(machine / "suite"), "-a", str(path), "-c", "sealing=off"]
    assert command_line([*arguments, "-o", str(machine / "store" / "runs-of-today")]) == 2
    assert "is not apart from" in capsys.readouterr().err
    assert not (machine / "store" / "runs-of-today").exists()
    assert command_line(["run", "diagnose", *arguments[1:], "-o", str(machine / "store")]) == 2
    store = RunStore(machine / "store")
    (pack,) = (machine / "suite" / "incidents").iterdir()
    with pytest.raises(UserError, match="is not apart from"):
        run_agent(store, IncidentItem.from_datapack(Datapack.open(pack)), setup_of(str(path), sealing="off"))
    assert list(store.runs()) == []


# Inside -----------------------------------------------------------------------------------------------------------------

TRY = """
import subprocess
tools = Path(os.environ['TOOLS'])
def tried(what):
    try:
        return repr(what())
    except OSError as error:
        return type(error).__name__
told = {
    'tool': tried(lambda: subprocess.run([tools / 'bin' / 'hello'], capture_output=True, text=True).stdout),
    'truth by a link': tried(lambda: [path.read_text() for path in (tools / 'truth').glob('*/truth.json')]),
    'runs by a link': tried(lambda: os.listdir(tools / 'runs')),
    'up and over': tried(lambda: os.listdir(tools / '..' / 'suite')),
    'writing': tried(lambda: (tools / 'mine').write_text('x')),
    'changing': tried(lambda: (tools / 'bin' / 'hello').open('a')),
    'beside': sorted(os.listdir(tools / '..')) if tools.parent.exists() else [],
}
print(json.dumps(told), file=sys.stderr)
print(json.dumps(GOOD))
"""


def told_by(machine, sealing):
    """Return what an agent reached from the tools that it sees, with links to truth and runs put among them."""
    tools, out = machine / "tools", machine / "out"
    (tools / "truth").symlink_to(machine / "suite" / "truth")
    (tools / "runs").symlink_to(out)
    path = agent(machine / "agent", TRY, readable=[tools])
    written = json.loads(path.read_text()) | {"environment": {"TOOLS": str(tools)}}
    path.write_text(json.dumps(written))
    (pack,) = (machine / "suite" / "incidents").iterdir()
    run_dir = run_agent(
        RunStore(out), IncidentItem.from_datapack(Datapack.open(pack)), setup_of(str(path), sealing=sealing)
    )
    assert read_run(run_dir).error is None
    return read_run(run_dir), json.loads((run_dir / "solver.log").read_text().splitlines()[-1])


@SEALS
def test_sealed_it_uses_what_it_is_lent_and_reaches_nothing_by_it(machine):
    run, told = told_by(machine, "required")
    assert run.isolation == "sealed"
    assert told["tool"] == repr("hello from a tool\n")
    assert told["truth by a link"] == "[]"
    assert told["runs by a link"] == told["up and over"] == "FileNotFoundError"
    assert {told["writing"], told["changing"]} <= {"OSError", "PermissionError"}
    assert told["beside"] == ["tools"]
    assert not (machine / "tools" / "mine").exists()


def test_without_the_seal_the_same_attempts_get_through(machine):
    run, told = told_by(machine, "off")
    assert run.isolation == "unsealed"
    assert '"faults"' in told["truth by a link"]
    assert "attempts.jsonl" in told["runs by a link"]
    assert "suite" in told["beside"]
    assert (machine / "tools" / "mine").exists()


def test_a_folder_above_the_package_is_refused(machine, monkeypatch):
    package = machine / "tools" / "opsassay"
    package.mkdir()
    (package / "scenarios.yaml").write_text("the oracle: restart orders")
    monkeypatch.setattr(lending, "own_hidden", lambda: [package])
    for readable in (machine / "tools", package, package / "scenarios.yaml"):
        assert "is of OpsAssay or its Python, or holds them" in refused(machine, readable)


@SEALS
def test_what_is_hidden_is_empty_even_in_a_mount(machine, monkeypatch):
    package = machine / "tools" / "opsassay"
    package.mkdir()
    (package / "scenarios.yaml").write_text("the oracle: restart orders")
    look = f"print(os.listdir({str(package)!r}), os.listdir({str(package.parent)!r}), file=sys.stderr)"
    path = agent(machine / "agent", f"{look}; print(json.dumps(GOOD))", readable=[package.parent])
    monkeypatch.setattr(seal, "own_hidden", lambda: [package])
    (pack,) = (machine / "suite" / "incidents").iterdir()
    setup = setup_of(str(path), sealing="required")
    run_dir = run_agent(RunStore(machine / "store"), IncidentItem.from_datapack(Datapack.open(pack)), setup)
    assert (run_dir / "solver.log").read_text().splitlines()[-1].startswith("[] [")
