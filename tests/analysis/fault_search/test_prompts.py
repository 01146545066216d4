"""The prompt sweep: what each prompt says, and what is counted of its searches."""

from __future__ import annotations

import json

from benchmarks.papers.prompt_sweep import PROMPTS, command, sweep_rows
from benchmarks.papers.running import run

from opsassay.analysis.fault_search import evolve as evolution
from opsassay.analysis.fault_search.attempts import Attempt
from opsassay.analysis.fault_search.prompts import GOAL, prompt_of
from opsassay.testbed.operations.search import Composition, fault_search_for
from opsassay.testbed.scenarios import load_scenario, system_of


def attempt(number, fitness, *families):
    result = "hidden" if fitness == 1.0 else "benign"
    return Attempt(
        number=number, composition=Composition(), families=families, result=result, fitness=fitness, reason="r"
    )


def test_prompts_say_less_and_less_of_faults_and_of_the_operator():
    for name, target in (("bad-release", "catalog"), ("unreachable-service", "auth-service")):
        scenario = load_scenario(name)
        setup, system = fault_search_for(scenario), system_of(scenario)
        library, task = setup.blocks(system, target, {}), setup.task(system, target, {})
        full, partial, minimal = (prompt_of(prompt, task, setup.operator, library) for prompt in PROMPTS)
        does, unseen = setup.operator
        assert unseen in full
        assert all(block.name in full for block in library if block.changes)
        assert does in partial
        assert unseen not in partial
        assert minimal == f"{task}\n{GOAL}"


def test_first_hits_are_counted_from_the_healthy_start_and_their_families_by_prompt():
    found = {
        ("full", 0): [attempt(1, 0.0, "none"), attempt(2, 1.0, "policy")],
        ("full", 1): [attempt(1, 0.0), attempt(2, 0.1), attempt(3, 0.1), attempt(4, 1.0, "names", "policy")],
        ("full", 2): [attempt(1, 0.0), attempt(2, 0.1)],
        ("minimal", 0): [],
    }
    assert sweep_rows(found) == [
        {"prompt": "full", "seeds": 3, "reached": 2, "median_first_hit": 2.0, "families": ["names", "policy"]},
        {"prompt": "minimal", "seeds": 1, "reached": 0, "median_first_hit": None, "families": []},
    ]


def test_a_sweep_is_three_prompts_with_five_seeds_and_says_who_proposed(tmp_path, monkeypatch, capsys):
    asked = []

    def made(_attempt, _library, task, *, iterations, seed, model):
        asked.append((task, iterations, seed, model))
        return [attempt(1, 0.0), attempt(2, 1.0, f"family-{seed}")]

    monkeypatch.setattr(evolution, "evolve", made)
    monkeypatch.setattr(evolution, "require_evolution", lambda _: None)
    words = ["bad-release", "--target", "catalog", "-n", "10", "-o", str(tmp_path / "s"), "--json"]
    assert run(command, words) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(asked) == len({(task, seed) for task, _, seed, _ in asked}) == 15
    assert [row["reached"] for row in told["items"]] == [5, 5, 5]
    assert {len(row["families"]) for row in told["items"]} == {5}
    assert "reads no prompt" in told["proposer"]
