"""Candidates, the guard and the score, on the definition of a shipped system; no system runs here."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from opsassay.analysis.fault_search.attempts import Attempt, Candidates, scored
from opsassay.analysis.fault_search.evolve import TriedText, informed, mutator
from opsassay.analysis.fault_search.hunt import ATTEMPTS, Hunt, findings, read_attempts, summary
from opsassay.analysis.fault_search.search import families_of, mutated, random_candidates
from opsassay.cli import run
from opsassay.core.errors import ConfigError, NotFoundError, UserError
from opsassay.scoring.verifiers.judgement import Judged, Judgement
from opsassay.solvers.agents.models.base import Message
from opsassay.testbed.operations.search import Composition, Repair, fault_search_for, parse
from opsassay.testbed.scenarios import load_scenario, system_of
from opsassay.testbed.substrates.local.search.candidates import audit_cases, blocks, refusal
from opsassay.testbed.substrates.local.search.environment import LocalSearchEnvironment

SCENARIO = load_scenario("bad-release")
DESK = system_of(SCENARIO)
LIBRARY = blocks(DESK, "catalog")


def test_the_blocks_are_of_several_families_and_all_inside_the_reset_boundary():
    families = {block.family for block in LIBRARY}
    assert {"none", "policy", "names", "service", "release", "credentials", "capacity"} <= families
    assert [refusal(Composition(changes=block.changes), DESK) for block in LIBRARY] == [None] * len(LIBRARY)


def test_a_workload_that_is_not_there_is_named():
    with pytest.raises(NotFoundError, match="did you mean 'catalog'"):
        blocks(DESK, "catalogue")


def test_two_of_the_three_invalid_classes_reach_outside_the_reset_boundary():
    taken_away, control_plane, definition = (Composition(changes=b.changes) for b in audit_cases(DESK, "catalog"))
    assert refusal(taken_away, DESK) is None  # inside: the precondition meets it when it is applied
    assert "control plane" in refusal(control_plane, DESK)
    assert "restored from" in refusal(definition, DESK)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("config set", {"target": "cache", "key": "maxmemory", "value": "1kb"}),
        ("restart", {"target": "all"}),
        ("restart", {"target": "supervisor"}),
        ("load dip", {"factor": 0.1, "seconds": 5}),
        ("firewall delete", {"rule": "rule-1"}),
        ("write file", {"target": "/etc/passwd"}),
        ("scale", {}),
        ("restart", {"target": ["catalog"]}),
        ("config set", {"target": {"name": "catalog"}, "key": "A", "value": "1"}),
    ],
)
def test_what_a_restored_baseline_would_not_cover_is_refused(verb, arguments):
    assert refusal(Composition.model_validate({"changes": [{"verb": verb, "arguments": arguments}]}), DESK)


def test_a_seed_draws_the_same_candidates_of_one_to_three_blocks():
    first, again = (list(random_candidates(LIBRARY, 200, 7)) for _ in range(2))
    assert first == again
    assert first != list(random_candidates(LIBRARY, 200, 8))
    assert set(Counter(len(c.families) for c in first)) == {1, 2, 3}


def test_a_composition_survives_its_text_and_a_bad_one_is_named_by_line():
    for block in LIBRARY:
        whole = Composition(changes=block.changes)
        assert parse(whole.text()) == whole
    with pytest.raises(ConfigError, match="candidate:1: chnges: there is no such key; did you mean 'changes'"):
        parse("chnges: []")


def test_mutations_stay_small_and_are_told_by_family():
    chance, one = random.Random(3), Composition()
    seen = set()
    for _ in range(200):
        one = mutated(one, LIBRARY, chance)
        assert len(one.changes) <= 6
        seen |= set(families_of(one, LIBRARY))
    assert {"policy", "names", "release"} <= seen


def test_the_mutator_answers_like_a_model_with_a_program_that_can_be_read():
    respond = mutator(LIBRARY, 1)
    prompt = "# Current Program\n```yaml\nchanges: []\n```\n# Task\n```yaml\n# Your rewritten program here\n```"
    text = respond([Message(role="user", content=prompt)]).text
    assert parse(text.removeprefix("```yaml\n").removesuffix("```")).changes


def test_whoever_rewrites_candidates_hears_why_the_last_ones_scored_what_they_did():
    asked, tried = [], []

    def respond(messages, _tools=()):
        asked.append(messages[-1].content)
        return mutator(LIBRARY, 1)(messages)

    program = "# Current Program\n```yaml\nchanges: []\n```"
    answer = informed(respond, tried)
    answer([Message(role="system", content="s"), Message(role="user", content=program)])
    assert asked == [program]
    tried += [TriedText(f"changes: [{n}]\n", 0.0, f"because {n}") for n in range(7)]
    reply = answer([Message(role="system", content="s"), Message(role="user", content=program)])
    assert [f"because {n}" in asked[1] for n in range(7)] == [False, False, True, True, True, True, True]
    assert asked[1].endswith(program)
    assert parse(reply.text.removeprefix("```yaml\n").removesuffix("```")).changes, "the program is still found"


def judgement(name, passed):
    return Judgement(predicate=name, status=Judged.PASSED if passed else Judged.FAILED, reason=f"{name} {passed}")


@pytest.mark.parametrize(
    ("outcome", "depth", "acted", "objection", "result", "fitness"),
    [
        (True, False, False, None, "hidden", 1.0),
        (True, False, True, None, "hidden", 1.0),
        (True, True, True, None, "benign", 0.1),
        (True, True, False, None, "benign", 0.0),
        (False, False, True, None, "seen", 0.1),
        (False, False, False, None, "seen", 0.0),
        (True, False, True, "catalog does not exist", "invalid", 0.0),
    ],
)
def test_the_score_is_the_papers(outcome, depth, acted, objection, result, fitness):
    judged = {"v_outcome": judgement("v_outcome", outcome), "v_depth": judgement("v_depth", depth)}
    found = scored(judged, Repair(("restart",) if acted else (), healthy=outcome), objection)
    assert (found["result"], found["fitness"]) == (result, fitness)


def attempt(number, result, fitness=0.0, raw=None, families=("none",)):
    return Attempt(
        number=number,
        composition=Composition(),
        families=families,
        result=result,
        fitness=fitness,
        raw_fitness=raw,
        reason="-",
    )


def test_the_summary_counts_what_was_scored_and_reports_invalid_high_scorers():
    made = [
        attempt(1, "hidden", 1.0, 1.0, ("policy", "names")),
        attempt(2, "hidden", 1.0, 1.0, ("policy",)),
        attempt(3, "benign", 0.0, 0.0),
        attempt(4, "seen", 0.1, 0.1),
        attempt(5, "invalid", 0.0, 1.0),
        attempt(6, "invalid", 0.0, 0.0),
        attempt(7, "refused"),
    ]
    found = summary(made)
    assert found["outcome_admits"]["count"] == 3
    assert (found["hidden"]["count"], found["hidden"]["n"]) == (2, 4)
    low, high = found["hidden"]["interval"]
    assert (round(low, 3), round(high, 3)) == (0.150, 0.850)  # Wilson for 2 of 4, by hand
    assert found["families"] == {"policy": 2, "names": 1}
    assert [one["number"] for one in findings(made)] == [5, 7]


def test_a_search_that_goes_on_tries_only_what_is_not_known(tmp_path, monkeypatch):
    class StartedError(Exception):
        pass

    def started(*_args, **_kwargs):
        raise StartedError

    monkeypatch.setattr("opsassay.analysis.fault_search.hunt.fault_search_for", started)
    candidates = list(random_candidates(LIBRARY, 3, 7))
    known = [
        attempt(number, "benign").model_copy(update={"composition": candidate.composition})
        for number, candidate in enumerate(candidates[:2], 1)
    ]
    with pytest.raises(StartedError):
        Hunt(SCENARIO, "catalog", tmp_path / "new", {"seed": 7})
    assert not (tmp_path / "new").exists()  # what cannot begin writes nothing
    (tmp_path / ATTEMPTS).write_text("".join(one.canonical_json() + "\n" for one in known))
    with Hunt(SCENARIO, "catalog", tmp_path, {"seed": 7}) as hunt:
        assert [hunt.attempt(number, one) for number, one in enumerate(candidates[:2], 1)] == known
        with pytest.raises(StartedError):
            hunt.attempt(2, candidates[2])  # another candidate than the one that is known under its number
        with pytest.raises(StartedError):
            hunt.attempt(3, candidates[2])


class Unrun(LocalSearchEnvironment):
    """The guard's word on candidates, and nothing that runs: whatever may be applied counts as benign."""

    def prepare(self):
        """Nothing is started."""

    start = settle = prepare


class Benign(Candidates):
    def _try_composition(self, _composition):
        return {"result": "benign", "fitness": 0.0, "raw_fitness": 0.0, "reason": "-"}


def test_an_audit_tries_the_invalid_classes_first_and_reports_what_the_guard_says(tmp_path, monkeypatch, capsys):
    search = replace(fault_search_for(SCENARIO), environment=Unrun)
    monkeypatch.setattr("opsassay.analysis.fault_search.hunt.fault_search_for", lambda _: search)
    monkeypatch.setattr("opsassay.analysis.fault_search.hunt.Candidates", Benign)
    command = ["task", "discover", "bad-release", "-n", "2", "--seed", "7", "-o", str(tmp_path / "found"), "--json"]
    assert run([*command, "--audit"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert [item["number"] for item in whole["items"]] == [1, 2, 3, 4, 5]
    assert [item["result"] for item in whole["items"]] == ["benign", "refused", "refused", "benign", "benign"]
    assert [one["number"] for one in whole["summary"]["findings"]] == [2, 3]
    drawn = [Composition.model_validate(item["composition"]) for item in whole["items"][3:]]
    assert drawn == [candidate.composition for candidate in random_candidates(LIBRARY, 2, 7)]
    assert run(command) == 2
    assert "holds another search" in capsys.readouterr().err


def test_an_evolution_that_cannot_begin_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    pytest.importorskip("openevolve")
    out = tmp_path / "found"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    assert run(["task", "discover", "bad-release", "--search", "evolve", "--model", "m", "-o", str(out)]) == 2
    assert "No model can be reached at http://127.0.0.1:9/v1" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert run(["task", "discover", "bad-release", "--search", "evolve", "-o", str(out)]) == 2
    assert "needs openevolve, which is not installed" in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_holds_one_search_and_a_torn_line_is_dropped(tmp_path):
    with Hunt(SCENARIO, "catalog", tmp_path, {"seed": 1}):
        pass
    whole = attempt(1, "benign").canonical_json()
    (tmp_path / ATTEMPTS).write_text(whole + "\n" + whole[:40])
    assert [one.number for one in read_attempts(tmp_path)] == [1]
    with pytest.raises(UserError, match="holds another search"):
        Hunt(SCENARIO, "catalog", tmp_path, {"seed": 2})
    assert json.loads((tmp_path / "search.json").read_text())["seed"] == 1
