"""From a tree of incidents to verdicts on disk, and again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from opsassay.cli import run as command_line
from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.run import MetricStatus
from opsassay.evals.diagnosis.score import grade_all, grade_run
from opsassay.evals.diagnosis.solve import run_method
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.scoring.aggregate import summarise
from opsassay.scoring.profiles import PROFILES
from opsassay.telemetry.tree import Case, resolve
from telemetry.packs import make_pack, make_tree


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("tree") / "t", count=2).root


@pytest.fixture(scope="module")
def cases(tree: Path) -> list[Case]:
    return resolve(tree)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, cases: list[Case]) -> RunStore:
    store = RunStore(tmp_path_factory.mktemp("store"))
    for case in cases:
        for method in ("loudest", "constant", "evals.solvers:Raises"):
            run_method(store, case.datapack, method)
    return store


@pytest.mark.slow
def test_every_ended_run_gets_a_verdict_beside_it(store: RunStore, cases: list[Case]) -> None:
    verdicts = grade_all(store, cases)
    assert len(verdicts) == 6
    for run_dir in store.runs():
        assert (run_dir / "verdicts" / "default.json").exists()
    by_solver = {v.solver: v for v in verdicts}
    # store answers 500, and so do its callers: loudest says cart (alphabetical), constant says cart too.
    loudest = {name: m.value for name, m in by_solver["loudest"].metrics.items()}
    assert (loudest["any_service"], loudest["sql_exec"], loudest["edge_recall"]) == (0, 1, 0.5)
    of_no_answer = {name: m.status for name, m in by_solver["Raises"].metrics.items()}
    assert {name for name, status in of_no_answer.items() if status != MetricStatus.FAILED} <= {"fault_kind_accuracy"}
    assert summarise(verdicts).height > 0


@pytest.mark.slow
def test_a_verdict_that_is_made_again_is_the_same_to_the_byte(store: RunStore, cases: list[Case]) -> None:
    grade_all(store, cases)
    texts = {path: path.read_bytes() for run in store.runs() for path in (run / "verdicts").iterdir()}
    grade_all(store, cases)
    assert {path: path.read_bytes() for run in store.runs() for path in (run / "verdicts").iterdir()} == texts
    for run in store.runs():
        shutil.rmtree(run / "verdicts")
    grade_all(store, cases)
    assert {path: path.read_bytes() for run in store.runs() for path in (run / "verdicts").iterdir()} == texts


def test_profiles_stand_side_by_side(store: RunStore, cases: list[Case]) -> None:
    run_dir = next(iter(store.runs()))
    case = next(c for c in cases if c.datapack.incident.id == read_run(run_dir).item)
    assert grade_run(run_dir, case, PROFILES["compat"]).profile == "compat"
    grade_run(run_dir, case)
    assert {"default.json", "compat.json"} <= {path.name for path in (run_dir / "verdicts").iterdir()}


@pytest.mark.slow
def test_a_client_that_the_incident_lists_is_left_out_of_the_cascade(tmp_path: Path) -> None:
    (case,) = resolve(make_tree(tmp_path / "t", count=1).root)
    env = {**case.datapack.env, "load_generators": ["frontend"]}
    listed = type(case.datapack)(case.datapack.path, case.datapack.incident, env)
    marked = Case(listed, case.truth, case.annotation, case.truth_path, case.name)
    run_dir = run_method(RunStore(tmp_path / "s"), case.datapack, "loudest")
    assert grade_run(run_dir, case).metrics["path_reachability"].status == MetricStatus.SCORED
    without = grade_run(run_dir, marked).metrics["path_reachability"]  # frontend raised the only alarm
    assert without.status == MetricStatus.NOT_APPLICABLE


def test_a_run_is_not_graded_against_another_recording(store: RunStore, cases: list[Case]) -> None:
    run_dir = next(iter(store.runs()))
    other = next(c for c in cases if c.datapack.incident.id != read_run(run_dir).item)
    with pytest.raises(UserError, match="another recording"):
        grade_run(run_dir, other)


def test_a_case_without_truth_cannot_be_graded(tmp_path: Path) -> None:
    pack = make_pack(tmp_path / "p")
    run_dir = run_method(RunStore(tmp_path / "s"), pack, "constant")
    with pytest.raises(UserError, match="no truth"):
        grade_run(run_dir, Case(pack, None, None, None, "p"))


@pytest.mark.slow
def test_a_batch_goes_on_after_a_run_that_cannot_be_graded(store: RunStore, cases: list[Case]) -> None:
    problems: list[tuple[Path, OpsAssayError]] = []
    verdicts = grade_all(store, cases[:1], on_error=lambda path, error: problems.append((path, error)))
    assert (len(verdicts), len(problems)) == (3, 3)
    assert all("not among the given ones" in str(error) for _, error in problems)
    with pytest.raises(UserError, match="not among"):
        grade_all(store, cases[:1])


@pytest.mark.slow
def test_paths_are_graded_against_a_published_graph_when_that_is_asked(tmp_path: Path, capsys) -> None:
    """Of two incidents one has a published graph, whose only edge is wrong by ours: it counts for its paths alone."""
    root = make_tree(tmp_path / "t", count=2).root
    one, other = resolve(root)
    (other.truth_path / "causal_graph.json").unlink()
    graph = json.loads((one.truth_path / "causal_graph.json").read_text())
    edges = [{**edge, "source": edge["target"], "target": edge["source"]} for edge in graph["edges"]]
    (one.truth_path / "causal_graph.json").write_text(json.dumps({**graph, "edges": edges}))
    for case in resolve(root):
        run_method(RunStore(tmp_path / "runs"), case.datapack, "loudest")
    found = {}
    for truth in ("ours", "published"):
        words = ["score", "run", str(tmp_path / "runs"), "--cases", str(root), "--truth", truth, "--json"]
        assert command_line(words) == 0
        said = capsys.readouterr()
        found[truth] = {item["case"]: item["metrics"] for item in json.loads(said.out)["items"]}
    assert "1 of 2 incidents" in said.err
    for name in (one.name, other.name):
        assert found["ours"][name]["any_service"] == found["published"][name]["any_service"]
    assert found["ours"][one.name]["edge_f1"]["value"] > found["published"][one.name]["edge_f1"]["value"] == 0.0
    assert found["published"][other.name]["edge_f1"]["value"] is None
    kept = {path.name for path in (tmp_path / "runs").rglob("verdicts/*.json")}
    assert kept == {"default.json", "default-published.json"}
