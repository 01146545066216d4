"""Solvers of every temper in real worker processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.run import RunStatus
from opsassay.core.schema.task import Arm
from opsassay.evals.diagnosis.solve import run_method
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run
from opsassay.telemetry.content import content_hash
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import resolve
from telemetry.packs import make_pack, make_public, make_tree


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Datapack:
    return make_pack(tmp_path_factory.mktemp("pack") / "p", error_in="cart")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "store")


def test_a_good_run_is_kept_with_all_that_identifies_it(store: RunStore, pack: Datapack) -> None:
    run_dir = run_method(store, pack, "loudest", seed=3, arm=Arm.of({"prompt": "plain"}), timeout_s=60)
    run, diagnosis = read_run(run_dir), read_diagnosis(run_dir)
    assert run_dir == store.root / "runs" / run.cell / "1"
    assert (run.status, run.error, run.attempt) == (RunStatus.DONE, None, 1)
    assert (run.item, run.item_hash) == (pack.incident.id, content_hash(pack.path))
    assert (run.solver.name, run.solver.configuration["slow_ratio"], run.solver.version) == ("loudest", 2.0, "0.1.0")
    assert (run.seed, run.arm, run.limits) == (3, "plain", {"wall_clock_s": 60})
    assert run.ended_ns is not None
    assert run.ended_ns > run.started_ns > 0
    assert diagnosis is not None
    assert diagnosis.root_causes[0].service == "cart"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["loudest", "max-z"])
def test_the_same_incident_gives_the_same_bytes_in_another_process(
    store: RunStore, pack: Datapack, method: str
) -> None:
    first = run_method(store, pack, method)
    second = run_method(store, pack, method, again=True)
    assert first != second
    assert (first / "diagnosis.json").read_bytes() == (second / "diagnosis.json").read_bytes()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("solver", "error"),
    [
        ("Raises", "ZeroDivisionError: by hand"),
        ("Complains", "The table has no legs; give it some."),
        ("Exits", "exit code 3"),
        ("Vanishes", "without an answer"),
        ("Dies", "killed by SIGKILL"),
        ("AnswersText", "not a Diagnosis but str"),
        ("AnswersNoNumber", "NaN"),
        ("WritesGarbage", "no JSON"),
        ("WritesList", "no object"),
        ("WritesUnknownKind", "root_causes.0.fault_kind"),
        ("WritesALot", "larger than"),
        ("LinksItsAnswer", "without an answer"),
    ],
)
def test_a_bad_run_is_recorded_and_never_raised(store: RunStore, pack: Datapack, solver: str, error: str) -> None:
    run_dir = run_method(store, pack, f"evals.solvers:{solver}")
    run = read_run(run_dir)
    assert run.status is RunStatus.FAILED
    assert error in (run.error or "")
    assert read_diagnosis(run_dir) is None


def test_the_traceback_of_a_crash_is_kept(store: RunStore, pack: Datapack) -> None:
    run_dir = run_method(store, pack, "evals.solvers:Raises")
    assert "ZeroDivisionError" in (run_dir / "solver.log").read_text()


def test_a_solver_that_hangs_is_killed(store: RunStore, pack: Datapack) -> None:
    run = read_run(run_method(store, pack, "evals.solvers:Hangs", timeout_s=1))
    assert (run.status, run.error) == (RunStatus.TIMEOUT, "no answer after 1 s")


def test_processes_that_a_solver_leaves_behind_are_killed(store: RunStore, pack: Datapack) -> None:
    run_dir = run_method(store, pack, "evals.solvers:LeavesAChild")
    assert read_run(run_dir).status is RunStatus.DONE
    child = int((run_dir / "solver.log").read_text())
    give_up = time.monotonic() + 10  # it has been killed; on a busy machine it takes its time to die
    while lives(child) and time.monotonic() < give_up:
        time.sleep(0.02)
    assert not lives(child)


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_what_a_solver_does_to_its_view_changes_nothing(store: RunStore, pack: Datapack) -> None:
    before = content_hash(pack.path)
    assert read_run(run_method(store, pack, "evals.solvers:Vandal")).status is RunStatus.DONE
    assert content_hash(pack.path) == before


def spied(store: RunStore, pack: Datapack) -> dict[str, object]:
    diagnosis = read_diagnosis(run_method(store, pack, "evals.solvers:Spy"))
    assert diagnosis is not None
    return diagnosis.protocol


def test_a_spy_finds_no_way_to_the_truth(store: RunStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = make_tree(tmp_path / "secret-tree", count=1)
    monkeypatch.setenv("WHERE_THE_TRUTH_IS", str(tree.truth_dir))
    monkeypatch.chdir(tree.root)
    (case,) = resolve(tree.root)
    assert case.truth is not None
    seen = spied(store, case.datapack)
    told = json.dumps(seen)
    for secret in ("secret-tree", "truth.json", "WHERE_THE_TRUTH_IS", str(store.root), "HTTPResponseAbort"):
        assert secret not in told
    assert seen["inodes_shared"] == []
    assert seen["links"] == {}
    assert Path(str(seen["view"])).parent != case.datapack.path.parent


def test_a_spy_on_the_public_form_sees_neither_injection_nor_the_telling_folder(
    store: RunStore, tmp_path: Path
) -> None:
    (case,) = resolve(make_public(tmp_path / "store-response-abort", graph={"nodes": []}))
    assert case.truth is not None
    seen = spied(store, case.datapack)
    assert "incident.json" in seen["other"]  # type: ignore[operator]
    assert not {"injection.json", "causal_graph.json"} & set(seen["other"])  # type: ignore[call-overload]
    assert "store-response-abort" not in json.dumps(seen)


def test_the_view_is_gone_afterwards(store: RunStore, pack: Datapack) -> None:
    assert not Path(str(spied(store, pack)["cwd"])).exists()


def test_an_unknown_method_claims_nothing(store: RunStore, pack: Datapack) -> None:
    with pytest.raises(NotFoundError, match="loudest"):
        run_method(store, pack, "loudset")
    assert not store.root.exists()


# Resume ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_finished_cell_is_not_run_again_unless_asked(store: RunStore, pack: Datapack) -> None:
    first = run_method(store, pack, "evals.solvers:Honest")
    assert run_method(store, pack, "evals.solvers:Honest") == first
    assert [e["event"] for e in store.attempts()] == ["begun", "ended"]
    second = run_method(store, pack, "evals.solvers:Honest", again=True)
    assert second == first.with_name("2")
    assert [(e["event"], e["attempt"]) for e in store.attempts()][2:] == [("begun", 2), ("ended", 2)]


def test_a_failure_is_a_result_and_not_rolled_again(store: RunStore, pack: Datapack) -> None:
    first = run_method(store, pack, "evals.solvers:Raises")
    assert run_method(store, pack, "evals.solvers:Raises") == first


@pytest.mark.slow
def test_another_seed_or_recording_is_another_cell(store: RunStore, pack: Datapack, tmp_path: Path) -> None:
    other = make_pack(tmp_path / "other")
    runs = [
        run_method(store, pack, "evals.solvers:Honest"),
        run_method(store, pack, "evals.solvers:Honest", seed=1),
        run_method(store, other, "evals.solvers:Honest"),
    ]
    assert len({path.parent for path in runs}) == len(runs)


_RUNNER = """
import sys
from pathlib import Path
from opsassay.evals.diagnosis.solve import run_method
from opsassay.evals.runner.store import RunStore
from opsassay.telemetry.datapack import Datapack
run_method(RunStore(Path(sys.argv[1])), Datapack.open(Path(sys.argv[2])), "evals.solvers:Hangs", timeout_s=600)
"""


@pytest.mark.slow
def test_a_killed_runner_takes_its_worker_along_and_its_cell_is_run_again(store: RunStore, pack: Datapack) -> None:
    runner = subprocess.Popen(
        [sys.executable, "-c", _RUNNER, str(store.root), str(pack.path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    children: list[psutil.Process] = []
    while not any(store.runs()):  # what it is was asked of the worker before the run was begun
        assert runner.poll() is None
        time.sleep(0.05)
        children = psutil.Process(runner.pid).children()
    assert any("opsassay.evals.diagnosis.workers.template" in part for part in children[0].cmdline())
    runner.kill()
    runner.wait()
    assert psutil.wait_procs(children, timeout=60)[1] == []
    (stale,) = store.runs()
    assert read_run(stale).status is RunStatus.RUNNING
    again = run_method(store, pack, "evals.solvers:Hangs", timeout_s=1)
    assert again == stale.with_name("2")
    assert read_run(stale).status is RunStatus.ABORTED
    assert [(e["attempt"], e["event"]) for e in store.attempts()] == [
        (1, "begun"), (1, "ended"), (2, "begun"), (2, "ended"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_runner_killed_before_the_log_names_its_run_leaves_a_log_that_names_it(
    store: RunStore, pack: Datapack
) -> None:
    killed = (
        "import os, signal\nRunStore._log_attempt = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\nrun_method("
    )
    code = killed.join(_RUNNER.rsplit("run_method(", 1))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    ended = subprocess.run([sys.executable, "-c", code, str(store.root), str(pack.path)], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    (stale,) = store.runs()
    assert read_run(stale).status is RunStatus.RUNNING
    assert store.attempts() == []
    again = run_method(store, pack, "evals.solvers:Hangs", timeout_s=1)
    assert again == stale.with_name("2")
    assert read_run(stale).status is RunStatus.ABORTED
    lines = store.attempts()
    assert [(e["attempt"], e["event"]) for e in lines] == [(1, "begun"), (1, "ended"), (2, "begun"), (2, "ended")]
    assert lines[0]["time_ns"] == read_run(stale).started_ns
