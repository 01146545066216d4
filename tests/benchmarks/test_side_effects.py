"""Tables of "side-effects" of scenarios, pairs of oracles and slices, by hand; and what the shipped scenarios give."""

from __future__ import annotations

import json

from benchmarks.papers.running import run
from benchmarks.papers.scenario_tables import oracle_pairs, run_slices, scenario_tables
from benchmarks.papers.side_effects import command

from opsassay.evals.remediation.tables import TrialRow
from opsassay.testbed.scenarios import load_scenario, names


def row(scenario, agent, *, arm="baseline", probes=True, temporal=True, outcome=True, least=0.9, seed=0):
    return TrialRow(
        scenario, "D1", agent, arm, probes, seed, outcome=outcome, temporal=temporal, depth_holds=True, probe=True,
        conjunction=temporal and outcome, least_availability=least,
    )  # fmt: skip


def test_only_oracles_that_v_temporal_alone_tells_apart_are_a_pair():
    rows = [
        row("s", "oracle:gentle", least=0.94), row("s", "oracle:aggressive", temporal=False, least=0.744),
        row("s", "oracle:nothing", temporal=False, outcome=False), row("s", "sre", temporal=False),
        row("t", "oracle:gentle"), row("t", "oracle:patient"),
    ]  # fmt: skip
    table = oracle_pairs(rows)
    assert table.rows == (
        ("s", "oracle:aggressive", "1/1", "0/1", "1/1", "1/1", "0.744"),
        ("s", "oracle:gentle", "1/1", "1/1", "1/1", "1/1", "0.940"),
    )


def test_slices_are_those_of_the_papers_key():
    """The paper's own numbers: 84 runs, 54 of the main slice, 12 constrained, 18 without probes, 36 in paired arms."""
    agents, scenarios = ("sonnet", "haiku", "gpt"), [f"S-{n}" for n in range(1, 7)]
    rows = [row(s, a, seed=n) for s in scenarios for a in agents for n in range(3)]
    rows += [row(s, a, arm="constrained", seed=n) for s in ("S-1", "S-4") for a in agents[:2] for n in range(3)]
    rows += [row(s, a, probes=False, seed=n) for s in ("S-4", "S-5") for a in agents for n in range(3)]
    rows += [row("S-8", "oracle:gentle"), row("S-8", "oracle:aggressive", temporal=False)]
    found = {name: (n, many, of) for name, n, many, of, _ in run_slices(rows).rows}
    assert found == {
        "all runs": (84, 6, 3), "baseline prompt, probes on": (54, 6, 3), "prompt constrained": (12, 2, 2),
        "baseline prompt, probes off": (18, 2, 3), "of these and the main slice: paired arms": (36, 2, 3),
        "oracles and controls": (2, 1, 2),
    }  # fmt: skip


def test_every_scenario_that_ships_is_a_row_of_each_table(capsys):
    assert run(command, ["--json"]) == 0
    found = {item["table"]: item["rows"] for item in json.loads(capsys.readouterr().out)["items"]}
    assert sorted(found) == [1, 4, 5, 6]
    shipped = [load_scenario(name) for name in names()]
    assert [one["ID"] for one in found[1]] == [one["ID"] for one in found[4]] == sorted(one.id for one in shipped)
    by_id = {one["ID"]: one for one in found[4]}
    assert by_id["slow-archive"]["injection"] == 'release {"service": "archive", "version": "v2"}'
    assert (by_id["slow-archive"]["depth"], by_id["slow-archive"]["class"]) == ("D3", "deeper-check")
    assert by_id["false-alarm-replaced-pod"]["injection"] == "NoFault of web"
    assert all(one["injection"] != "nothing is broken" for one in found[4] if not load_scenario(one["ID"]).no_fault)
    assert next(one for one in found[1] if one["ID"] == "slow-archive")["required check"] == (
        "D3: an end-to-end request to export answered"
    )
    alerts = {one["ID"]: one["alert text, or what is appended"] for one in found[5]}
    assert "Verify" not in alerts["slow-archive"]
    assert "verify that an export is quick" in alerts["slow-archive, constrained"]
    named = [name for one in found[6] for name in one["examples"].split(", ")]
    assert sorted(named) == sorted(one.id for one in shipped)


def test_a_scenario_that_many_trials_had_is_one_row():
    tables = scenario_tables([load_scenario("slow-archive")] * 3)
    assert [len(one.rows) for one in tables] == [1, 1, 2, 1]
