"""opsassay audit, opsassay audit verify, opsassay compare: keys, files, exit codes, sentences."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import polars as pl
import pytest

from opsassay.analysis.audit.settings import AuditSettings, Columns
from opsassay.cli import run
from opsassay.evals.diagnosis.score import grade_all
from opsassay.evals.diagnosis.setups.methods import method_setup
from opsassay.evals.diagnosis.solve import run_method
from opsassay.evals.runner.store import RunStore
from opsassay.telemetry.tree import resolve
from telemetry.packs import make_tree

from .made import drawn

FAST = ("-c", "resamples=200", "-c", "permutations=100", "-c", "simulations=100")


@pytest.fixture
def call(capsys):
    def call(*arguments):
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def scores(tmp_path):
    drawn(seed=7).write_csv(tmp_path / "scores.csv")
    return tmp_path / "scores.csv"


def test_json_has_the_keys_that_scripts_rely_on(call, scores, tmp_path):
    code, out, err = call("audit", scores, "-o", tmp_path / "out", "--json", *FAST)
    assert code == 0, err
    whole = json.loads(out)
    assert (whole["command"], whole["schema_version"]) == ("audit", 1)
    assert whole["systems"] == ["s0", "s1", "s2", "s3"]
    assert whole["methods"] == ["a", "b", "c"]
    assert whole["excluded"] == []
    assert "Over 205 matched cases" in whole["claim"]
    assert [item["pair"] for item in whole["items"]] == [["a", "b"], ["a", "c"], ["b", "c"]]
    for item in whole["items"]:
        assert {"effects", "q", "i2", "tau2", "interval", "prediction_interval", "loso", "interaction"} <= set(item)
        assert set(item["effects"]) == set(whole["systems"])
        for pooling in ("macro", "weighted"):
            assert {"reversals", "mean_regret", "max_regret"} <= set(item["loso"][pooling])
        assert all(-1 <= e["low"] <= e["effect"] <= e["high"] <= 1 for e in item["effects"].values())
        assert 0 <= item["i2"] <= 1
        assert 0 <= item["interaction"]["p"] <= item["interaction"]["p_holm"] <= 1


def test_the_folder_holds_report_tables_and_figures_and_the_same_bytes_again(call, scores, tmp_path):
    out = tmp_path / "out"
    assert call("audit", scores, "-o", out, *FAST)[0] == 0
    files = {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert {"report.html", "report.md", "audit.json", "figures/heatmap.svg", "figures/pooled.svg"} <= set(files)
    assert {"figures/forest-1.svg", "figures/regret-3.svg", "tables/pairs.csv", "tables/effects.json"} <= set(files)
    assert pl.read_csv(out / "tables" / "effects.csv").height == 3 * 4
    assert not [name for name in files if name.split("/")[-1].startswith(".")]
    assert call("audit", scores, "-o", out, *FAST)[0] == 0
    assert {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()} == files


def test_verify_agrees_with_what_the_audit_wrote(call, scores, tmp_path):
    call("audit", scores, "-o", tmp_path / "out", *FAST)
    ledger = tmp_path / "out" / "tables" / "ledger.csv"
    assert call("audit", "verify", ledger, scores, "--tolerance", "1e-9", *FAST)[0] == 0
    code, out, _ = call("audit", "verify", ledger, "--json")
    whole = json.loads(out)
    assert code == 0
    assert whole["verified"] == str(ledger)
    assert all(abs(i["difference"]) < 1e-9 for i in whole["items"] if i["printed"] is not None)
    (tmp_path / "printed.csv").write_text("figure,first,second,printed\ni2,a,b,12.5\nreversals,b,a,1\n")
    code, out, _ = call("audit", "verify", tmp_path / "printed.csv", scores, "--tolerance", "1e-9", *FAST)
    assert code == 1
    assert "12.5" in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("audit", "none.csv", "-o", "out"), "There is no score table"),
        (("audit", "SCORES"), "Missing option '-o'"),
        (("audit", "SCORES", "-o", "SCORES"), "is a file"),
        (("audit", "SCORES", "-o", "out", "-c", "resample=3"), "did you mean 'resamples'"),
        (("audit", "verify", "SCORES"), "is neither a per-system ledger"),
        (("audit", "verify", "LIST"), "add the scores or the ledger"),
        (("audit", "verify", "LIST", "SCORES"), "There is no figure 'i22'; did you mean 'i2'"),
        (("audit", "EMPTY", "-o", "out"), "holds no graded runs"),
        (("compare", "SCORES", "none.csv"), "There is no score table"),
    ],
)
def test_wrong_use_gets_one_sentence(call, scores, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.csv").write_text("figure,first,second,printed\ni22,a,b,1\n")
    (tmp_path / "empty").mkdir()
    named = {"SCORES": str(scores), "LIST": "list.csv", "EMPTY": "empty"}
    more = FAST if "LIST" in arguments and "SCORES" in arguments else ()
    code, _, err = call(*(named.get(a, a) for a in arguments), *more)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_compare_gates(call, tmp_path):
    frame = drawn(sizes=(120, 120), families=("x", "x"), methods=("m",), seed=1)
    frame.write_csv(tmp_path / "a.csv")
    frame.with_columns(score=pl.lit(0.0)).write_csv(tmp_path / "b.csv")
    code, out, _ = call(
        "compare", tmp_path / "a.csv", tmp_path / "b.csv", "--junit", tmp_path / "j" / "x.xml", "--json"
    )
    assert code == 1
    (item,) = json.loads(out)["items"]
    assert (item["outcome"], item["passed"], item["b"]) == ("worse", False, 0.0)
    assert item["interval"][0] <= item["difference"] <= item["interval"][1] < 0
    assert ET.parse(tmp_path / "j" / "x.xml").getroot()[0].get("failures") == "1"
    assert call("compare", tmp_path / "b.csv", tmp_path / "a.csv")[0] == 0


@pytest.mark.slow
def test_a_store_of_graded_runs_is_a_score_table(call, tmp_path):
    tree = make_tree(tmp_path / "tree", count=6)
    store = RunStore(tree.root)
    for case in resolve(tree.root):
        for method in ("constant", "loudest"):
            run_method(store, case.datapack, method)
    grade_all(store, resolve(tree.root))
    code, out, err = call("audit", tree.root, "-o", tmp_path / "out", "--metric", "f1", "--json", *FAST)
    assert code == 0, err
    assert set(json.loads(out)["methods"]) - set(json.loads(out)["excluded"]) >= {"constant", "loudest"}
    code, out, _ = call("compare", tree.root, tree.root, "--json")
    assert code == 0
    assert {item["outcome"] for item in json.loads(out)["items"]} == {"identical"}
    code, _, err = call("audit", tree.root, "-o", tmp_path / "out", "--metric", "f11")
    assert code == 2
    assert "did you mean 'f1'" in err


@pytest.fixture
def partly_sealed(tmp_path):
    """A store of two methods on six incidents, of which the runs of `loudest` were not sealed."""
    tree = make_tree(tmp_path / "tree", count=6)
    store = RunStore(tree.root)
    for case in resolve(tree.root):
        for method in ("constant", "loudest"):
            run_method(store, case.datapack, method)
    grade_all(store, resolve(tree.root))
    for path in tree.root.glob("runs/*/1/run.json"):
        kept = json.loads(path.read_text())
        if kept["solver"]["name"] == "loudest":
            path.write_text(json.dumps(kept | {"isolation": "unsealed"}))
    return tree.root


@pytest.mark.slow
def test_unsealed_runs_are_left_out_which_is_said(call, partly_sealed):
    code, out, err = call("compare", partly_sealed, partly_sealed, "--json")
    assert code == 0
    assert [item["method"] for item in json.loads(out)["items"]] == ["constant"]
    assert "left out what is not ranked: it ran unsealed (6 runs); --allow-unsealed compares what ran unsealed\n" in err


@pytest.mark.slow
def test_unsealed_runs_are_compared_on_request_and_marked_everywhere(call, partly_sealed, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")  # so that no cell of the table is wrapped
    files = ["--junit", tmp_path / "x.xml", "--markdown", tmp_path / "x.md"]
    code, out, err = call("compare", partly_sealed, partly_sealed, "--allow-unsealed", *files)
    assert code == 0, err
    assert "identical (unsealed)" in out
    (said,) = re.findall(r"^loudest: (unsealed: .*)\.$", out, re.MULTILINE)
    assert said.startswith("unsealed: 6 runs of A and 6 of B")
    assert "constant: unsealed" not in out
    suites = {suite.get("name"): suite for suite in ET.parse(tmp_path / "x.xml").getroot()}
    assert suites["opsassay compare: loudest"].find("properties/property").get("value") == said
    assert suites["opsassay compare: constant"].find("properties") is None
    assert (tmp_path / "x.md").read_text().count("| identical (unsealed) |") == 2
    assert "6 runs of A and 6 of B" in (tmp_path / "x.md").read_text()
    _, out, _ = call("compare", partly_sealed, partly_sealed, "--allow-unsealed", "--json")
    counts = {item["method"]: (item["unsealed_a"], item["unsealed_b"]) for item in json.loads(out)["items"]}
    assert counts == {"constant": (0, 0), "loudest": (6, 6)}


@pytest.mark.slow
def test_a_store_with_unsealed_runs_alone_is_told_what_is_left_and_never_that_it_is_not_graded(call, partly_sealed):
    for path in partly_sealed.glob("runs/*/1/run.json"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"isolation": "unsealed"}))
    for command, offered in (("compare", True), ("audit", False)):
        more = [partly_sealed] if command == "compare" else ["-o", partly_sealed / "out"]
        code, _, err = call(command, partly_sealed, *more)
        assert code == 2
        assert "has graded runs, but none that is ranked: it ran unsealed (12 runs)" in err
        assert ("--allow-unsealed" in err) is offered
        assert "no graded runs" not in err
    assert call("compare", partly_sealed, partly_sealed, "--allow-unsealed")[0] == 0


def test_the_help_imports_no_statistics():
    heavy = "('polars', 'numpy', 'scipy', 'statsmodels')"
    code = "import sys; from opsassay.cli import run; run(['audit', '-h']); "
    code += f"print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")


def test_every_setting_is_documented():
    page = (Path(__file__).parents[3] / "docs" / "commands" / "audit.md").read_text()
    names = [n for n in AuditSettings.model_fields if n != "columns"] + [f"columns.{n}" for n in Columns.model_fields]
    assert [name for name in names if name not in page] == []


@pytest.mark.slow
def test_the_example_of_the_guide_runs():
    page = (Path(__file__).parents[3] / "docs" / "audit.md").read_text()
    (script,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Over 90 matched cases of 3 systems, b has" in done.stdout


def imported(tmp_path, count=6):
    """A store as of imported data: roots without a record of faults, and one case in which nothing was broken."""
    tree = make_tree(tmp_path / "tree", count=count)
    for number, id_ in enumerate(tree.ids()):
        path = tree.root / "truth" / id_ / "truth.json"
        nothing = {"type": "NoFault", "service": None, "start_ns": 0, "end_ns": 1}
        change = {"faults": []} if number else {"faults": [nothing], "roots": []}
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    store = RunStore(tree.root)
    for case in resolve(tree.root):
        for method in ("constant", "self-time", "loudest"):
            run_method(store, case.datapack, method)
        run_method(store, case.datapack, method_setup("alert-count", {"z": 2.5}))
        run_method(store, case.datapack, "alert-count")
    grade_all(store, resolve(tree.root))
    return tree.root


@pytest.mark.slow
def test_an_imported_store_is_audited_by_what_is_defined_and_needs_no_table_by_hand(call, tmp_path):
    root = imported(tmp_path)
    code, out, err = call("audit", root, "-o", tmp_path / "out", "--json", "-c", "covariates=[services]", *FAST)
    assert code == 0, err
    assert "scored by correct" in err
    assert "exact_match is not defined on 25 of 30 graded runs" in err
    told = json.loads(out)
    assert told["excluded"] == []
    assert {"constant", "self-time", "alert-count"} <= set(told["methods"])
    assert told["protocols"]
    report = (tmp_path / "out" / "report.html").read_text()
    assert "chance (1 / labels)" in report
    assert "constant (best fixed label)" in report
    code, out, err = call("compare", root, root, "--json")
    assert code == 0, err
    assert {item["outcome"] for item in json.loads(out)["items"]} == {"identical"}
    assert "alert-count:z=2.5" in {item["method"] for item in json.loads(out)["items"]}


@pytest.mark.slow
def test_the_score_table_of_a_store_has_labels_protocols_and_covariates(call, tmp_path):
    root = imported(tmp_path, count=3)
    assert call("score", "run", root, "--scores", tmp_path / "s.csv", "--metric", "correct")[0] == 0
    rows = pl.read_csv(tmp_path / "s.csv").to_dicts()
    assert {row["expected"] for row in rows} == {"store", "nothing is wrong"}
    assert {row["predicted"] for row in rows if row["method"] == "constant"} == {"cart"}
    assert {row["predicted"] for row in rows if row["method"] == "self-time" and row["score"]} == {"store"}
    assert len({row["protocol"] for row in rows if row["method"] == "alert-count"}) == 2
    assert {row["services"] for row in rows} == {3.0}
    assert {row["alerts"] for row in rows} == {1.0}
    assert all(row["anomalous_columns"] >= 0 for row in rows)
    code, _, err = call("audit", tmp_path / "s.csv", "-o", tmp_path / "out", *FAST)
    assert code == 0, err


def test_scores_of_a_published_table_says_where_it_is_checked(call, tmp_path):
    (tmp_path / "ledger.csv").write_text("system,n,a,b,delta_a_b_pp,ci_low,ci_high\nx,10,.5,.4,10,-1,20\n")
    (tmp_path / "list.csv").write_text("figure,first,second,printed\ni2,a,b,1\n")
    for name in ("ledger.csv", "list.csv"):
        code, _, err = call("audit", tmp_path / name, "-o", tmp_path / "out")
        assert code == 2
        assert f"opsassay audit verify {tmp_path / name}" in err
