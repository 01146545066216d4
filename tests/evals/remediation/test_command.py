"""The commands over a store of made trials: what scripts may rely on, what is refused, and that nothing is started."""

from __future__ import annotations

import json
from functools import partial

import pytest
from benchmarks.papers import itbench, side_effects, thresholds
from benchmarks.papers.running import run as run_script

from evals.remediation.test_trials import MADE, TESTS, plan_of, write_scenario
from opsassay.cli import run
from opsassay.evals.remediation.solve import run_trials
from opsassay.evals.runner.store import RunStore


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of three oracles with probes on and off."""
    folder = tmp_path_factory.mktemp("trials")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(TESTS))
        cells = plan_of(folder, probes=[True, False])
        run_trials(RunStore(folder / "store"), cells, performer=MADE + "quick")
    return folder / "store"


@pytest.fixture
def items(capsys):
    def items(*arguments, code=0, call=run):
        assert call([*map(str, arguments), "--json"]) == code, capsys.readouterr().err
        whole = json.loads(capsys.readouterr().out)
        assert whole["schema_version"] == 1
        return whole["items"], whole

    return items


@pytest.mark.slow
def test_grade_says_what_every_run_is(store, items):
    found, _ = items("score", "trials", store)
    assert {(i["agent"], i["arm"]): i["metrics"]["certificate"]["value"] for i in found} == {
        (f"oracle:{name}", f"baseline/probes-{on}"): float(name == "gentle")
        for name in ("gentle", "harmful", "shallow")
        for on in ("on", "off")
    }
    assert {"run", "scenario", "agent", "arm", "seed", "profile", "what_if", "metrics", "judgements"} <= set(found[0])
    paper, _ = items("score", "trials", store, "--profile", "paper")
    assert all(item["what_if"] and item["profile"] == "paper" for item in paper)


def test_another_file_is_refused_unless_it_is_a_what_if(store, items, capsys):
    other = write_scenario(store.parent / "milder.yaml", committed_depth="D3", floor_availability=0.4)
    assert run(["score", "trials", str(store), "--scenario", str(other)]) == 2
    assert "thresholds are committed before a run" in capsys.readouterr().err
    found, _ = items("score", "trials", store, "--scenario", other, "--what-if")
    harmful = [i for i in found if i["agent"] == "oracle:harmful"]
    assert [i["metrics"]["certificate"]["value"] for i in harmful] == [1.0, 1.0]
    assert all(i["profile"] == "what-if-default" for i in found)


def test_a_what_if_of_nothing_and_a_scenario_of_no_trial_are_one_sentence(store, capsys):
    assert run(["score", "trials", str(store), "--what-if"]) == 2
    assert "say with --scenario which one" in capsys.readouterr().err
    assert run(["score", "trials", str(store), "--scenario", "drained-pool"]) == 2
    assert "There is no trial in" in capsys.readouterr().err


def test_a_plan_whose_trials_cannot_begin_leaves_nothing_behind(tmp_path, capsys):
    plan_of(tmp_path)
    (tmp_path / "plan.yaml").write_text("scenarios: [made.yaml]\nagents: [{name: sre, model: 'scripted:none.yaml'}]\n")
    for more in ([], ["--dry-run"]):
        assert run(["run", "trials", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "store"), *more]) == 2
        assert "Cannot read none.yaml" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


def test_tables_and_the_ones_that_are_asked_for(store, items, capsys):
    papers = partial(items, call=partial(run_script, side_effects.command))
    assert [item["table"] for item in items("score", "table", store)[0]] == [9, 10, 11, 13]
    found, whole = papers(store)
    assert [item["table"] for item in found] == [1, 2, *range(4, 16)]
    assert whole["problems"] == {}
    of_itbench = partial(items, call=partial(run_script, itbench.command))
    shown = [item["table"] for item in of_itbench(store)[0]]
    assert shown == [4, 17, 18, 19, 22, 23, 26, 27, 28, 29, None, None, None]
    assert [one["title"] for one in of_itbench(store, "-t", "figure6", "-t", "pass@k")[0]] == [
        "Figure 6. Where agents look", "pass@k",
    ]  # fmt: skip
    (eight,) = papers(store, "-t", 8)[0]
    assert eight["rows"][1]["hidden / outcome"] == "2/3"
    contrast = next(item for item in found if item["table"] == 12)
    assert contrast["rows"][-1] == {
        "scenario": "aggregate", "agent": "", "V_probe on": "3/3", "V_probe off": "3/3", "conj. on": "1/3",
        "conj. off": "1/3",
    }  # fmt: skip
    assert run_script(side_effects.command, [str(store), "-t", "8"]) == 0
    assert "Table 8." in capsys.readouterr().out
    assert "spread" in papers(store, "-t", 13)[0][0]["rows"][0]
    assert run_script(side_effects.command, [str(store), "-t", "13"]) == 0
    assert "spread" not in capsys.readouterr().out  # no scenario commits one


def test_a_table_that_is_not_made_or_not_in_the_store_is_refused_by_name(store, capsys):
    for call, words, said in (
        (side_effects, [store, "-t", "3"], "Table 3 of the paper is not made: it explains words of Kubernetes"),
        (side_effects, ["-t", "8"], "Table 8 is of trials; give a store of them."),
        (itbench, [store, "-t", "30"], "Table 30 is of cost runs, and none is given."),
        (itbench, ["-t", "4"], "Table 4 is of trials, and none is given."),
        (itbench, [store, "-t", "20"], "Table 20 is of trials with masked telemetry, and none is given."),
        (side_effects, [store, "-t", "16"], "'16' is not one of"),
    ):
        assert run_script(call.command, list(map(str, words))) == 2
        assert said in capsys.readouterr().err


def test_the_sweep_has_144_settings_and_its_range(store, items):
    found, whole = items(store, call=partial(run_script, thresholds.command))
    assert len(found) == whole["summary"]["settings"] == 144
    assert whole["summary"]["hidden"] == [1, 2]  # a coarser cadence does not see the outage of one tick
    assert items(store, "--all-arms", call=partial(run_script, thresholds.command))[0][0]["runs"] == 6


def test_a_page_per_trial(store, tmp_path, capsys):
    assert run(["report", str(store), "-o", str(tmp_path / "pages")]) == 0
    pages = sorted((tmp_path / "pages").glob("*.html"))
    assert sorted(capsys.readouterr().out.split()) == [str(page) for page in pages]
    assert len(pages) == 7, "six trials and their index"
    assert sum("Hidden failure" in page.read_text() for page in pages) == 4


def test_a_dry_run_runs_nothing(tmp_path, items):
    plan_of(tmp_path)
    (tmp_path / "plan.yaml").write_text("scenarios: [made.yaml]\nagents: ['oracle:*']\n")
    found, _ = items("run", "trials", tmp_path / "plan.yaml", "-o", tmp_path / "store", "--dry-run")
    assert [(item["agent"], item["attempts"], item["run"]) for item in found] == [
        (f"oracle:{name}", 0, None) for name in ("gentle", "harmful", "shallow")
    ]
    assert not (tmp_path / "store").exists()


def test_a_store_that_is_none_and_a_torn_run_are_named(store, tmp_path, items, capsys):
    (tmp_path / "empty").mkdir()
    for call in (partial(run, ["score", "trials", str(tmp_path / "empty")]),
                 partial(run_script, side_effects.command, [str(tmp_path / "empty")]),
                 partial(run_script, thresholds.command, [str(tmp_path / "empty")])):  # fmt: skip
        assert call() == 2
        assert "holds no trials" in capsys.readouterr().err
    assert run(["report", "-o", str(tmp_path / "pages"), str(tmp_path / "empty")]) == 2
    assert "holds nothing" in capsys.readouterr().err
    assert not (tmp_path / "pages").exists()
    torn = next((store / "runs").rglob("timeline.jsonl"))
    whole = torn.read_text()
    try:
        torn.write_text("torn\n")
        _, answer = items(store, "-t", "8", code=1, call=partial(run_script, side_effects.command))
        assert list(answer["problems"]) == [str(torn.parent)]
    finally:
        torn.write_text(whole)
