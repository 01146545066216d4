from __future__ import annotations

import threading
from pathlib import Path

import pytest

from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.run import Metric, MetricStatus, Run, RunStatus, Solver, Verdict
from opsassay.evals.runner.store import RunStore, cell_hash, read_run, read_verdicts, write_verdict


def run_of(cell: str = "c") -> Run:
    return Run(cell=cell, attempt=0, item="i", item_hash="h", system="s", solver=Solver(name="m"), solver_hash="x")


def verdict(value: float) -> Verdict:
    metrics = {"f1": Metric(value=value, status=MetricStatus.SCORED)}
    return Verdict(run="c/1", item="i", system="s", solver="m", profile="default", metrics=metrics)


def test_the_cell_depends_on_each_of_its_parts() -> None:
    base = ("item", "solver", "arm", 0)
    others = [("item2", "solver", "arm", 0), ("item", "b", "arm", 0), ("item", "solver", "b", 0), (*base[:3], 1)]
    assert len({cell_hash(*base), *(cell_hash(*other) for other in others)}) == 5
    assert cell_hash("a", "b|c", "d", 0) != cell_hash("a|b", "c", "d", 0)


def test_attempts_that_begin_at_once_get_different_folders(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    begun: list[Path] = []
    threads = [threading.Thread(target=lambda: begun.append(store.begin(run_of())[0])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(int(path.name) for path in begun) == list(range(1, 9))
    assert sorted(read_run(path).attempt for path in begun) == list(range(1, 9))
    assert len(store.attempts()) == 8


def test_whoever_follows_the_log_finds_the_run_that_a_line_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[str, RunStatus]] = []
    written = RunStore._log_attempt

    def seen(store: RunStore, event: str, run: Run, **further: object) -> None:
        written(store, event, run, **further)
        last = store.attempts()[-1]
        found.append((event, read_run(store.runs_dir / last["cell"] / str(last["attempt"])).status))

    monkeypatch.setattr(RunStore, "_log_attempt", seen)
    store = RunStore(tmp_path)
    path, run = store.begin(run_of())
    store.end(path, run.model_copy(update={"status": RunStatus.DONE}))
    assert found == [("begun", RunStatus.RUNNING), ("ended", RunStatus.DONE)]


def test_attempts_are_listed_by_number(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for _ in range(11):
        store.begin(run_of())
    assert [path.name for path in store.attempts_of("c")] == [str(n) for n in range(1, 12)]


def test_only_a_result_finishes_a_cell(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    for status in (RunStatus.ABORTED, RunStatus.TIMEOUT, RunStatus.DONE):
        path, run = store.begin(run_of())
        assert store.finished("c") in (None, tmp_path / "runs" / "c" / "2")
        store.end(path, run.model_copy(update={"status": status}), Diagnosis())
    assert store.finished("c") == tmp_path / "runs" / "c" / "2"


def test_a_torn_last_line_is_dropped_and_swallows_no_later_one(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.begin(run_of("a"))
    log = tmp_path / "attempts.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole + whole[: len(whole) // 2])
    assert [entry["cell"] for entry in store.attempts()] == ["a"]
    store.begin(run_of("b"))
    assert [entry["cell"] for entry in store.attempts()] == ["a", "b"]


def test_the_log_is_only_ever_appended_to(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    earlier = b""
    for _ in range(3):
        path, run = store.begin(run_of())
        store.end(path, run.model_copy(update={"status": RunStatus.FAILED, "error": "e"}))
        now = (tmp_path / "attempts.jsonl").read_bytes()
        assert now.startswith(earlier)
        earlier = now


def test_an_empty_store_has_no_runs(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "none")
    assert (list(store.runs()), store.attempts(), store.finished("c")) == ([], [], None)


def test_a_verdict_is_never_overwritten(tmp_path: Path) -> None:
    first = write_verdict(tmp_path, verdict(1.0))
    text = first.read_bytes()
    assert first.name == "default.json"
    assert write_verdict(tmp_path, verdict(1.0)) == first
    other = write_verdict(tmp_path, verdict(0.5))
    assert other.name.startswith("default.")
    assert other != first
    assert write_verdict(tmp_path, verdict(0.5)) == other
    assert first.read_bytes() == text
    assert {v.metrics["f1"].value for v in read_verdicts(tmp_path)} == {1.0, 0.5}
    assert len(list((tmp_path / "verdicts").iterdir())) == 2
