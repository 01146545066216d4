"""What scripts may rely on: keys of --json, exit codes, one sentence on standard error. In this process, on made packs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from opsassay import __version__
from opsassay.cli import run
from opsassay.cli.tree import command_in
from opsassay.core.schema.faults import CATALOGUE
from telemetry.packs import make_public, make_tree


@pytest.fixture
def call(capsys):
    """Return a function that runs the command line and gives (exit code, standard output, standard error)."""

    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def items(call):
    """Return a function that runs a command with --json and gives (items, whole object)."""

    def items(*arguments, code=0):
        found, out, err = call(*arguments, "--json")
        assert found == code, err
        whole = json.loads(out)
        assert whole["command"] == command_in([*map(str, arguments)])
        assert whole["schema_version"] == 1
        return whole["items"], whole

    return items


def test_the_version_is_printed(call):
    assert __version__ in call("--version")[1]


def test_faults_lists_31_types_with_what_this_machine_can_do(items):
    rows, whole = items("system", "faults")
    assert [row["type"] for row in rows] == list(CATALOGUE)
    assert set(whole["isolation"]) == {"namespaced", "plain"}
    for row in rows:
        assert {"type", "kind", "category", "injectable", "reason"} <= set(row)
        assert set(row["injectable"]) == {"namespaced", "plain"}
        assert all(row["reason"].get(level) for level, can in row["injectable"].items() if not can)
    can = {row["type"] for row in rows if row["injectable"]["plain"]}
    assert set(CATALOGUE) - can == {"NetworkDuplicate"}
    assert {row["type"] for row in rows if row["emulated"]} == {name for name in CATALOGUE if name.startswith("JVM")}


@pytest.mark.slow
def test_annotate_diagnose_grade_report_export_import(items, call, tmp_path):
    tree = make_tree(tmp_path / "tree", count=2)
    annotated, _ = items("incident", "annotate", tree.root)
    assert len(annotated) == 2
    keys = {"datapack", "label", "roots", "edges", "alarms", "rejected_by", "seconds"}
    assert all(keys <= set(item) for item in annotated)

    diagnosed, _ = items("run", "diagnose", tree.root, "-m", "max-z", "-m", "constant")
    assert len(diagnosed) == 4
    for item in diagnosed:
        assert {"case", "system", "method", "ranking", "correct", "seconds"} <= set(item)
        assert item["correct"] in (True, False)
        assert all(set(row) == {"service", "score"} for row in item["ranking"])

    graded, whole = items("score", "run", tree.root)
    assert whole["profile"] == "default"
    assert len(graded) == 4
    for item in graded:
        assert {"run", "system", "metrics"} <= set(item)
        for metric in item["metrics"].values():
            assert metric["status"] in ("scored", "not_applicable", "failed")
            assert (metric["value"] is not None) == (metric["status"] == "scored")
            assert metric["reason"] or metric["status"] == "scored"
            assert metric["value"] is None or (math.isfinite(metric["value"]) and 0 <= metric["value"] <= 1)

    code, out, _ = call("report", tree.root, "-o", tmp_path / "report")
    assert code == 0
    assert out.strip().endswith("index.html")

    exported, _ = items("incident", "export", tree.root, "-o", tmp_path / "public")
    assert len(exported) == 2
    imported, _ = items("incident", "import", "rcabench", tmp_path / "public", "-o", tmp_path / "again")
    assert {item["status"] for item in imported} == {"imported"}
    again, _ = items("incident", "import", "rcabench", tmp_path / "public", "-o", tmp_path / "again")
    assert {item["status"] for item in again} == {"skipped"}


def test_the_same_inputs_give_the_same_bytes(items, tmp_path):
    tree = make_tree(tmp_path / "tree", count=1)
    items("incident", "annotate", tree.root)
    first = {path.name: path.read_bytes() for path in tree.truth_path(tree.ids()[0]).iterdir()}
    items("incident", "annotate", tree.root, "-j", "2")
    assert {path.name: path.read_bytes() for path in tree.truth_path(tree.ids()[0]).iterdir()} == first
    items("run", "diagnose", tree.root, "-m", "max-z")
    items("score", "run", tree.root)
    (verdict,) = tree.root.glob("runs/*/1/verdicts/default.json")
    before = verdict.read_bytes()
    items("score", "run", tree.root)
    assert [path.read_bytes() for path in verdict.parent.iterdir()] == [before]


def test_correct_is_null_without_truth(items, tmp_path):
    pack = make_public(tmp_path / "packs" / "one")
    for name in ("injection.json", "causal_graph.json"):
        (pack / name).unlink(missing_ok=True)
    diagnosed, _ = items("run", "diagnose", pack, "-m", "constant", "-o", tmp_path / "runs")
    assert [item["correct"] for item in diagnosed] == [None]


def test_a_batch_goes_on_and_reports_at_the_end(items, call, tmp_path):
    tree = make_tree(tmp_path / "tree", count=2)
    broken, whole = tree.ids()
    (tree.incident_path(broken) / "abnormal_traces.parquet").write_bytes(b"no parquet")
    annotated, _ = items("incident", "annotate", tree.root, code=1)
    assert {item["case"]: item["error"] is None for item in annotated} == {broken: False, whole: True}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["incident", "annotate", "{}/nothing"], "nothing"),
        (["run", "diagnose", "{}", "-m", "max-zz"], "did you mean 'max-z'?"),
        (["score", "run", "{}"], "holds no runs"),
        (["report", "{}", "-o", "{}/r"], "holds no finished runs"),
        (["score", "run", "{}", "--profile", "strict"], "There is no grading profile 'strict'"),
        (["incident", "export", "{}/empty", "-o", "{}/p"], "holds no incidents"),
        (["incident", "import", "rcabnch", "{}", "-o", "{}/o"], "did you mean 'rcabench'?"),
        (["demo", "--fault", "PodKil"], "did you mean 'PodKill'?"),
        (["incident", "record", "shp", "x.yaml", "-o", "{}/o"], "did you mean 'shop'?"),
        (["system", "inject", "{}/none.yaml"], "Cannot read"),
        (["incident", "annotate"], "Missing argument"),
        (["system", "up", "shop", "--rate", "-3"], "Invalid value"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(call, tmp_path, arguments, sentence):
    make_tree(tmp_path, count=1)
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    code, out, err = call(*[argument.format(tmp_path) for argument in arguments])
    assert (code, out) == (2, "")
    assert sentence in err
    assert "Traceback" not in err
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before


def test_a_path_that_cannot_be_written_is_called_as_it_was_typed(call):
    store = Path(__file__).parents[1] / "evals" / "golden" / "diagnosis_store"
    code, _, err = call("compare", store, store, "--markdown", "/proc/compared.md")
    assert (code, "(/proc/compared.md); name another place" in err) == (2, True)
