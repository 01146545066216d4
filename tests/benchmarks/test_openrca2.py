"""The tables of OpenRCA 2.0, of answers in its own form: by hand, and the printed tables against one another."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from benchmarks.papers.openrca2 import MAIN, command
from benchmarks.papers.running import run as run_script

from analysis.answers.test_rcabench_answers import answer, put
from opsassay.cli import run
from telemetry.packs import make_tree

PAPER = Path(__file__).parents[3] / "shared" / "papers" / "openrca2-pave.txt"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Return a store with two answers each of two agents, and the tree with the truth of their incidents."""
    root = tmp_path_factory.mktemp("openrca2")
    tree = make_tree(root / "cases", count=2, traces=12)
    one, two = tree.ids()
    given = root / "given"
    put(given / "right" / f"{one}.json", answer(kind="http_aborted"))
    put(given / "right" / f"{two}.json", answer(kind="http_aborted"))
    put(given / "poor" / f"{one}.json", answer(kind="container_cpu_saturated", edges=[("cart", "frontend")]))
    several = answer("cart", "http_aborted", [("cart", "frontend")])
    for service in ("frontend", "x", "y", "store"):
        several["root_causes"] += answer(service)["root_causes"]
    put(given / "poor" / f"{two}.json", several)
    assert run(["score", "import", str(given), "--cases", str(tree.root), "-o", str(root / "store")]) == 0
    return root / "store", tree.root


def tables(capsys, *words):
    capsys.readouterr()
    code = run_script(command, [*map(str, words), "--json"])
    out, err = capsys.readouterr()
    return code, json.loads(out)["items"] if out else [], err


def rows(table):
    return {row["solver"]: {k: v for k, v in row.items() if k not in ("solver", "system")} for row in table["rows"]}


@pytest.mark.slow
def test_the_tables_of_answers_are_those_of_a_hand_calculation(store, capsys):
    code, found, err = tables(capsys, store[0], "--cases", store[1])
    assert code == 0, err
    assert [table["table"] for table in found] == [2, None, None, 8, 9]
    main, gaps, services, _, hit = map(rows, found)
    assert main["right"] == {"n": "2", **dict.fromkeys(MAIN, "100.0")}
    # One answer names the service and another kind, the other names it fifth of five: 1/5 precise, F1 2/6, AnySvc both.
    poor = main["poor"]
    assert [poor[name] for name in ("EM", "F1", "precision", "recall", "AnySvc", "PR")] == [
        "0.0", "16.7", "10.0", "50.0", "100.0", "0.0",
    ]  # fmt: skip
    assert (gaps["poor"]["AnySvc - PR"], gaps["poor"]["PR / AnySvc"], gaps["right"]["node F1 - edge F1"]) == (
        "100.0",
        "0.0",
        "0.0",
    )
    assert services["poor"] == {
        "n": "2", "service precision": "60.0", "service recall": "100.0", "service F1": "66.7", "service EM": "50.0",
        "any_root_cause_hit": "50.0", "any_service_hit": "100.0", "all_service_hit": "100.0", "fault kind accuracy": "50.0",
    }  # fmt: skip
    assert (hit["right"]["all"], hit["poor"]["all"]) == ("100.0", "0.0")


@pytest.mark.slow
def test_any_number_of_services_counts_under_the_profile_and_three_by_default(store, capsys):
    by_default = rows(tables(capsys, store[0], "--cases", store[1], "--profile", "default")[1][0])
    assert by_default["poor"]["AnySvc"] == "50.0"
    assert run(["leaderboard", str(store[0]), "--cases", str(store[1]), "--profile", "openrca2"]) == 0


def test_stores_without_runs_or_truth_are_named(store, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    code, _, err = tables(capsys, tmp_path / "empty")
    assert (code, "holds no runs" in err) == (2, True)
    code, _, err = tables(capsys, store[0])
    assert (code, "give --cases" in err) == (2, True)
    code, _, err = tables(capsys, store[0], "--cases", store[1], "--profile", "openrca3")
    assert (code, "did you mean 'openrca2'" in err) == (2, True)


@pytest.mark.skipif(not PAPER.exists(), reason="the paper is not here")
def test_the_printed_tables_2_and_8_are_the_pooled_and_the_parts():
    """Every pooled figure is that of 320, 38 and 142 incidents to what rounding allows, and Table 2 is the All rows."""
    text = PAPER.read_text()
    number = r"(\d+\.\d)"
    parts = re.findall(
        rf"^(TrainTicket|OTel Demo|Hotel Res\.|All|[^\n]+? TrainTicket) {' '.join([number] * 9)}$", text, re.MULTILINE
    )
    figures = [list(map(float, row[1:])) for row in parts]
    assert len(figures) == 44
    for at in range(0, 44, 4):
        train, otel, hotel, pooled = figures[at : at + 4]
        for a, b, c, whole in zip(train, otel, hotel, pooled, strict=True):
            assert abs((320 * a + 38 * b + 142 * c) / 500 - whole) <= 0.1 + 1e-9, (parts[at][0], whole)
