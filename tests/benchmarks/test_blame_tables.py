"""The tables of TraceElephant of kept answers: by hand, from predictions of others, and the printed averages."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks.papers.blame.__main__ import cli
from benchmarks.papers.blame.settings import BenchSettings
from benchmarks.papers.blame.tables import published_tables
from benchmarks.papers.running import run

from opsassay.analysis.blame.answers import AnswerLine
from opsassay.cli import run as opsassay
from opsassay.core.errors import UserError
from opsassay.core.schema.trajectory import Attribution, LabelledTrace, Trace, TraceStep

PAPER = Path(__file__).parents[3] / "shared" / "papers" / "trace-elephant.txt"
WHO_AND_WHEN = Path(__file__).parents[3] / "shared" / "data" / "whoandwhen"


def case(id_, system):
    steps = tuple(
        TraceStep(step_id=n, agent_id=str(n), agent_name=name, input_context="", output_content="x")
        for n, name in enumerate(("A", "B", "A"), 1)
    )
    trace = Trace(task_id=id_, task_instruction="?", system_name=system, steps=steps)
    return LabelledTrace(id=id_, subset=system, trace=trace, label=Attribution(agent_name="B", step_id=2))


CASES = [case("s/1", "s"), case("s/2", "s"), case("t/1", "t")]


def line(trace, agent="B", step=2, technique="static", arm="", n=1, **further):
    return AnswerLine(
        trace=trace, technique=technique, run=n, agent=agent, step=step, arm=arm, asked=f"{trace}{arm}", **further
    )


def test_averages_are_over_systems_and_runs_of_a_trace_are_averaged_first():
    lines = [
        line("s/1"), line("s/1", step=3, n=2), line("s/2", agent="A"), line("t/1", failed="429"),
        line("t/1", n=2), line("s/1", arm="reference=false", agent=None, step=None), line("x/9"),
        line("s/1", technique="once"), line("s/1", technique="once", arm="metadata=false", step=1),
    ]  # fmt: skip
    main, ablation = published_tables(lines, CASES, BenchSettings())
    assert (main.number, main.columns) == (2, ("system", "reference", "static", "once"))
    assert main.rows == (
        ("s", "with", "50.0 / 75.0", "100.0 / 100.0"), ("s", "without", "0.0 / 0.0", ""),
        ("t", "with", "100.0 / 100.0", ""),
        ("all-avg", "with", "75.0 / 87.5", "100.0 / 100.0"), ("all-avg", "without", "0.0 / 0.0", ""),
    )  # fmt: skip
    assert ablation.rows == (("once", "everything", "100.0", "100.0"), ("once", "metadata=false", "100.0", "0.0"))
    with pytest.raises(UserError, match="None of the answers"):
        published_tables(lines[6:7], CASES, BenchSettings())


@pytest.mark.skipif(not WHO_AND_WHEN.is_dir(), reason="Who&When is not here")
def test_predictions_of_others_become_the_table(tmp_path, capsys):
    traces = WHO_AND_WHEN / "hand-crafted"
    files = sorted(traces.glob("*.json"))
    blocks = [f"Prediction for {one.name}:\nAgent Name: WebSurfer\nStep Number: 4\n" for one in files]
    (tmp_path / "always.txt").write_text("\n".join(blocks))
    assert (
        opsassay(
            ["score", "import", str(tmp_path / "always.txt"), "--cases", str(traces), "-o", str(tmp_path / "kept")]
        )
        == 0
    )
    capsys.readouterr()
    assert run(cli, ["table", str(tmp_path / "kept"), str(traces), "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    labels = [json.loads(one.read_text()) for one in files]
    agent = sum(one["mistake_agent"] == "WebSurfer" for one in labels) / len(files)
    step = sum(one["mistake_step"] == "4" for one in labels) / len(files)
    assert item["rows"][0]["always"] == f"{100 * agent:.1f} / {100 * step:.1f}"


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not here")
def test_the_printed_averages_are_over_systems():
    rows = re.findall(r"^\|(?: ([\w-]+) \|)? (w/o?) Ground Truth \|([ \d.|]+)\|$", PAPER.read_text(), re.MULTILINE)
    figures = [[float(one) for one in cells.split("|") if one.strip()] for *_, cells in rows]
    assert [len(one) for one in figures] == [10] * 8
    for condition in (0, 1):
        *systems, average = figures[condition::2]
        for parts, printed in zip(zip(*systems, strict=True), average, strict=True):
            assert abs(sum(parts) / 3 - printed) <= 0.1, (parts, printed)
