"""The tables of "leaderboard-audit": from its printed Table 4 against its other tables, and from case scores."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
from benchmarks.papers.audit_tables import command
from benchmarks.papers.running import run

from analysis.audit.made import drawn

SHARED = Path(__file__).parents[3] / "shared"
PAPER, LEDGER = SHARED / "papers" / "leaderboard-audit.txt", SHARED / "data" / "audit" / "table4.csv"
NAMES = {"BARO": "baro", "max- Z": "max_abs_z", "max- $ Z $": "max_abs_z", "alert-count": "alert_count"}
at_hand = pytest.mark.skipif(not (PAPER.exists() and LEDGER.exists()), reason="the paper is not here")


def tables(capsys, *words):
    code = run(command, [*map(str, words), "--json"])
    out, err = capsys.readouterr()
    return code, {one["table"]: one["rows"] for one in json.loads(out)["items"] if one["table"]} if out else {}, err


def printed(rows):
    """Return the first row of each pair in the paper's text: the cells behind its name."""
    found = {}
    for line in rows:
        cells = [cell.strip() for cell in line.split("\t")]
        first, _, second = re.sub(r" +", " ", cells[0]).partition(" vs ")
        if first in NAMES and second in NAMES:
            found.setdefault(f"{NAMES[first]} vs {NAMES[second]}", cells[1:])
    return found


@at_hand
def test_the_printed_ledger_gives_the_other_printed_tables(capsys):
    code, found, err = tables(capsys, LEDGER)
    assert (code, sorted(found)) == (0, [2, 3, 4, 6, 8, 10]), err
    text = PAPER.read_text()
    parts = {number: text[text.index(f"Table {number}: ") :].splitlines()[:30] for number in (2, 3, 10)}
    signs, regrets, families = (printed(parts[number]) for number in (2, 3, 10))
    assert set(signs) == set(regrets) == set(families) == {row["pair"] for row in found[2]}
    assert {row["pair"]: row["signs +/-/0"] for row in found[2]} == {pair: cells[0] for pair, cells in signs.items()}
    for row in found[3]:
        reversals, mean, most, _ = regrets[row["pair"]]
        assert row["LOSO reversals"] == reversals
        assert float(row["mean regret pp"]) == pytest.approx(float(mean), abs=0.011)
        assert float(row["max regret pp"]) == pytest.approx(float(most), abs=0.011)
    for row in found[10]:
        reversals, most, mean, _, share, changes, widest = families[row["pair"]]
        assert (row["LOFO reversals"], row["internal sign changes"]) == (reversals, changes)
        assert [float(row[name]) for name in ("max regret", "mean regret")] == [float(most), float(mean)]
        assert float(row["between-family SS %"]) == pytest.approx(float(share), abs=0.11)
        assert float(row["max family range"]) == pytest.approx(float(widest), abs=0.11)


@at_hand
def test_every_printed_choice_and_regret_of_table_8_follows_from_table_4(capsys):
    found = tables(capsys, LEDGER)[1][8]
    ours = {(row["pair"], row["held-out system"]): row for row in found}
    lines = [line.split("\t") for line in PAPER.read_text().split("Table 8: ")[1].splitlines() if line.count("\t") == 7]
    lines = [[cell.strip() for cell in line] for line in lines if " / " in line[0]]
    assert len(lines) == 11
    known = NAMES | {"alert-cnt": "alert_count", "tie": "tie"}
    for system, _, *cells in lines:
        for second, (pooled, actual, regret) in (("max_abs_z", cells[:3]), ("alert_count", cells[3:])):
            row = ours[f"baro vs {second}", system]
            assert row["pooled"] == known[pooled], (system, second)
            assert row["actual"] == known[actual.rstrip("†")] + ("†" if "†" in actual else ""), (system, second)
            assert float(row["regret pp"]) == pytest.approx(float(regret), abs=0.06)


def test_case_scores_give_intervals_and_the_tests_over_all_methods(tmp_path, capsys):
    drawn().write_csv(tmp_path / "scores.csv")
    code, found, err = tables(capsys, tmp_path / "scores.csv", "--resamples", "200")
    assert (code, sorted(found)) == (0, [2, 3, 4, 5, 6, 7, 8, 9, 10]), err
    assert all(re.fullmatch(r"\[\d+\.\d\d, \d+\.\d\d\]", row["mean regret 95%"]) for row in found[3])
    assert all(re.search(r"\[[+-]\d+\.\d, [+-]\d+\.\d\]", row["a - b, pp"]) for row in found[4])
    assert len(found[6]) > 3
    assert len(found[8]) == 3 * 4


def test_a_covariate_and_systems_left_aside_give_the_tables_that_need_them(tmp_path, capsys):
    scores = drawn()
    hard = {system: float(at) for at, system in enumerate(scores["system"].unique(maintain_order=True))}
    partial = pl.DataFrame([("x", "s0", "case-000", "late", 1.0)], schema=scores.schema, orient="row")
    table = pl.concat([scores, partial]).with_columns(pl.col("system").replace_strict(hard).alias("hard"))
    table.write_csv(tmp_path / "scores.csv")
    arguments = (tmp_path / "scores.csv", "--resamples", "200", "--without", "s3", "--covariate", "hard")
    code, found, err = tables(capsys, *arguments)
    assert code == 0, err
    fitted = {(row["pair"], row["approach"]): row for row in found[5]}
    logit = {row["comparison"]: row for row in found[6]}
    for pair in ("a vs b", "a vs c", "b vs c"):
        assert fitted[pair, "Fractional GLM"]["statistic"] == logit[pair]["LRT"]
        assert fitted[pair, "Fractional GLM"]["n obs"] == 410
        assert fitted[pair, "Drop quasi-separated cells"]["statistic"] == "no cell is all 0 or all 1"
    assert {(row["method"], row["main"], row["cases"]) for row in found[7]} == {
        ("a", "Yes", "205/205"), ("b", "Yes", "205/205"), ("c", "Yes", "205/205"), ("late", "No", "1/205"),
    }  # fmt: skip
    assert [row["test"] for row in found[9][:3]] == [
        "Y vs X (covariate x method)", "Z vs Y (residual of systems)", "absorbed by hard",
    ]  # fmt: skip
    reversals = {row["pair"]: int(row["LOSO reversals"].partition("/")[0]) for row in found[3]}
    choices = {(row["pair"], row["systems and labels"]): row for row in found[11]}
    assert {pair: choices[pair, "all"]["LOSO reversals"] for pair in reversals} == reversals
    assert choices["a vs b", "without s3"]["LOSO reversals"] == 0
    assert choices["a vs b", "all"]["PI includes 0"] == "yes"


def test_what_is_no_table_of_scores_is_named(tmp_path, capsys):
    assert "cannot be read as CSV" in tables(capsys, tmp_path / "nowhere.csv")[2]
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    code, _, err = tables(capsys, tmp_path / "x.csv")
    assert (code, "lacks" in err or "column" in err) == (2, True), err
