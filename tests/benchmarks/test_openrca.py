"""OpenRCA's partial credit: against the scores of the published archive, and by hand."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from benchmarks.papers.openrca import command, partial_credit, read_points
from benchmarks.papers.running import run

from opsassay.analysis.answers.openrca import COMPONENT, REASON, TIME

ARCHIVE = Path(__file__).parents[3] / "shared" / "data" / "openrca-archive"
POINTS = """\
The 1-th predicted root cause component is node-6
The 2-th predicted root cause component is cart-0
The 1-th predicted root cause reason is node CPU load
The 2-th predicted root cause reason is container memory load
The 1-th root cause occurrence time is within 1 minutes (i.e., <=1min) of 2022-03-20 08:48:15
The 2-th root cause occurrence time is within 1 minutes (i.e., <=1min) of 2022-03-20 08:35:07
"""
FIRST = {COMPONENT: "node-6", REASON: "node CPU load", TIME: "2022-03-20 08:49:15"}
SECOND = {COMPONENT: "cart-0", REASON: "container memory load", TIME: "2022-03-20 08:35:07"}


def scored(capsys, *words):
    code = run(command, [*map(str, words), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out)["items"] if out else [], err


@pytest.mark.skipif(not ARCHIVE.is_dir(), reason="the archived answers are not here")
def test_every_archived_score_whose_question_is_known_is_the_published_one(tmp_path, capsys):
    """The paper's accuracy of this agent is 11.34 %: 38 of 335 answers name all that is asked."""
    code, (systems, tasks), err = scored(capsys, *sorted(ARCHIVE.glob("*.csv")), "--scores", tmp_path / "s.csv")
    assert code == 1, "rows that ask for several elements of several failures do not say which belong together"
    assert err.count("give --queries") == 39
    last = systems["rows"][-1]
    values = list(last.values()) if isinstance(last, dict) else last
    assert (values[1], values[-1]) == (296, "0 of 296")
    assert round(float(values[3]) / 100 * 296) == 38
    assert round(100 * 38 / 335, 2) == 11.34
    assert len(tasks["rows"]) == 8
    table = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert (len(table), {row["method"] for row in table}) == (296, {"agent"})


@pytest.mark.parametrize(
    ("causes", "credit"),
    [
        ([FIRST, SECOND], 1),
        ([SECOND, FIRST], 1),
        ([{**FIRST, TIME: "2022-03-20 08:49:16"}, SECOND], 5 / 6),
        ([{**FIRST, TIME: "soon"}, {**SECOND, COMPONENT: "CART-0"}], 4 / 6),
        ([{**FIRST, COMPONENT: "cart-0"}, {**SECOND, COMPONENT: "node-6"}], 4 / 6),
        ([FIRST], 0),
        ([FIRST, SECOND, SECOND], 0),
        ([{}, {}], 0),
        ([], 0),
    ],
)
def test_a_root_cause_counts_as_a_whole_at_the_best_pairing(causes, credit):
    assert partial_credit(causes, read_points(POINTS)) == pytest.approx(credit)


def files(tmp_path, *predictions, instruction="Why  then?"):
    (tmp_path / "query.csv").write_text(f'task_index,instruction,scoring_points\ntask_7,Why then?,"{POINTS}"\n')
    path = tmp_path / "me-Bank.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["instruction", "prediction", "task_index"])
        writer.writerows([instruction, one, "task_7"] for one in predictions)
    return path, "--queries", tmp_path / "query.csv"


def test_questions_come_from_query_csv_and_rows_without_one_are_named(tmp_path, capsys):
    good = json.dumps({"1": SECOND, "2": FIRST})
    code, (systems, _), _ = scored(capsys, *files(tmp_path, good, "no JSON", "", good))
    assert (code, "50.00" in json.dumps(systems["rows"][-1])) == (0, True)
    code, _, err = scored(capsys, *files(tmp_path, good, instruction="Another?"))
    assert (code, "row 1: its question is in no file of --queries" in err) == (2, True)


def test_files_of_another_form_are_named(tmp_path, capsys):
    path, _, queries = files(tmp_path, "x")
    queries.write_text("a,b\n1,2\n")
    assert scored(capsys, path, "--queries", queries)[::2] == (
        2,
        f"Error: {queries} lacks instruction, scoring_points; give the query.csv of a system.\n",
    )
    path.write_text("a,b\n1,2\n")
    assert "has no column prediction" in scored(capsys, path)[2]
    assert "cannot be read as CSV" in scored(capsys, tmp_path / "nowhere.csv")[2]
