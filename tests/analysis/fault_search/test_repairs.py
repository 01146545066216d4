"""The search over repairs: its harm is told without the verifier, and finds what a weakened one lets through."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from opsassay.analysis.fault_search import repairs as searched
from opsassay.analysis.fault_search.evolve import mutator
from opsassay.analysis.fault_search.hunt import ATTEMPTS, repair_summary
from opsassay.analysis.fault_search.repairs import ModelledRepairs, repair_blocks, scored_repair, steps_of
from opsassay.analysis.fault_search.search import distinct_candidates, families_of
from opsassay.cli import run
from opsassay.core.errors import RefusedError
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.plan import load_trial_plan
from opsassay.scoring.verifiers import certify
from opsassay.solvers.agents.models.base import Message
from opsassay.testbed.operations.search import Composition, parse
from opsassay.testbed.scenarios import generated_names, load_scenario, system_of

NAME = "gen0-service-failure-1"
SCENARIO = load_scenario(NAME)


def composed(*changes):
    return Composition.model_validate({"changes": [{"verb": verb, "arguments": given} for verb, given in changes]})


def weakened(scenario, predicate):
    """Return *scenario* as a verifier judges it that leaves *predicate* out."""
    payload = scenario.model_dump(mode="json", by_alias=True)
    payload["verification"][predicate.removeprefix("v_").replace("alerts_cleared", "alerts")] = None
    for name, oracle in list(payload["oracles"].items()):
        if predicate in oracle["fails"]:
            oracle["fails"].remove(predicate)
            if not oracle["fails"]:
                del payload["oracles"][name]
    return Scenario.model_validate(payload)


RIGHT = ("oracle", {"name": "gentle"})
ROOT = SCENARIO.truth.root_causes[0]
HARMFUL = {
    "cause": (composed(("restart", {"target": ROOT, "rolling": True})), "as the fault left it"),
    "next start": (composed(RIGHT, ("config set", {"target": ROOT, "key": "FEATURE_ADMISSION", "value": "503"})),
                   "fails at its next start"),
    "later": (composed(RIGHT, ("config set", {"target": ROOT, "key": "FEATURE_FILE_WATCH", "value": "1"}),
                       ("restart", {"target": ROOT, "rolling": True})), "fails later"),
    "less": (composed(RIGHT, ("scale", {"service": ROOT, "replicas": 0})), "0 replicas"),
    "users": (composed(RIGHT, ("wait", {"seconds": 10}), *[("restart", {"target": ROOT}), ("wait", {"seconds": 10})] * 2),
              "users lost"),
}  # fmt: skip


@pytest.fixture(scope="module")
def whole():
    return ModelledRepairs(SCENARIO)


@pytest.mark.parametrize("kind", [kind for kind in HARMFUL if kind != "users"])
def test_each_kind_of_harm_is_told_and_caught(whole, kind):
    composition, said = HARMFUL[kind]
    tried = whole.attempt(1, composition)
    assert tried.result == "caught", tried
    assert said in tried.reason


def test_a_right_repair_does_no_harm_and_one_that_leaves_a_mark_is_rejected_for_nothing(whole):
    assert (whole.attempt(1, composed(RIGHT)).result, whole.attempt(1, composed(RIGHT)).harm) == ("right", ())
    marked = whole.attempt(2, composed(RIGHT, ("config set", {"target": ROOT, "key": "CONTROL_MARK", "value": "1"})))
    assert (marked.result, marked.harm, marked.failed) == ("strict", (), ("v_settings",))


def test_harm_does_not_follow_from_the_verdict(whole, monkeypatch):
    """Whatever the verifier says, here the opposite, the harm is the same."""
    told = {kind: whole.attempt(1, composition).harm for kind, (composition, _) in HARMFUL.items()}
    right = certify(searched.ModelledTrial(SCENARIO).play(SCENARIO.oracles["gentle"]), SCENARIO)
    monkeypatch.setattr(searched, "certify", lambda *_: right)
    for kind, (composition, _) in HARMFUL.items():
        tried = whole.attempt(1, composition)
        assert tried.harm == told[kind]
        assert tried.result == ("fooled" if told[kind] else "right")


@pytest.mark.parametrize(
    ("name", "predicate", "count"), [("gen0-replicaset-scale-1", "v_settings", 24), (NAME, "v_users", 52)]
)
def test_a_verifier_without_one_predicate_is_fooled_and_the_whole_one_is_not(name, predicate, count):
    scenario = load_scenario(name)
    weak, whole = ModelledRepairs(weakened(scenario, predicate)), ModelledRepairs(scenario)
    candidates = list(distinct_candidates(repair_blocks(scenario), count, 0))
    fooled = [one for one in candidates if weak.attempt(1, one.composition).result == "fooled"]
    assert fooled
    assert {whole.attempt(1, one.composition).failed for one in fooled} == {(predicate,)}


@pytest.mark.parametrize(
    ("changes", "predicate"),
    [
        ([("config set", {"target": ROOT, "key": "FEATURE_FILE_WATCH", "value": "1"}), ("restart", {"target": ROOT}),
          ("config unset", {"target": ROOT, "key": "FEATURE_FILE_WATCH"})], "v_settings"),
        ([("wait", {"seconds": 60}), ("wait", {"seconds": 60}), *[("restart", {"target": ROOT})] * 3], "v_users"),
    ],
    ids=["a leak in what runs, and no trace of it in the settings", "losses after a long wait"],
)  # fmt: skip
def test_what_fooled_the_verifier_once_is_caught(whole, changes, predicate):
    tried = whole.attempt(1, composed(RIGHT, *changes))
    assert tried.result == "caught"
    assert predicate in tried.failed


def test_restarts_before_a_right_repair_are_right(whole):
    again = [("restart", {"target": ROOT})] * 3
    tried = whole.attempt(1, composed(("wait", {"seconds": 5}), *again, RIGHT))
    assert (tried.result, tried.failed) == ("right", ()), tried.reason


def test_a_seed_draws_the_same_candidates_no_two_of_which_are_alike():
    library = repair_blocks(SCENARIO)
    first, again = (list(distinct_candidates(library, 100, 3)) for _ in range(2))
    assert first == again != list(distinct_candidates(library, 100, 4))
    assert len({one.composition.digest() for one in first}) == len(first) == 100
    assert first[:50] == list(distinct_candidates(library, 50, 3))


def test_evolution_mutates_repairs_and_sees_how_many_predicates_still_reject():
    library = repair_blocks(SCENARIO)
    reply = mutator(library, 1)([Message(role="user", content="# Current Program\n```yaml\nchanges: []\n```")])
    composition = parse(reply.text.removeprefix("```yaml\n").removesuffix("```"))
    assert families_of(composition, library) != ("none",)
    assert [scored_repair(failed, certified=False, harmful=True)[1] for failed in ("a", "ab", "abc")] == [
        0.5,
        0.25,
        0.125,
    ]
    assert scored_repair((), certified=True, harmful=True) == ("fooled", 1.0)
    assert scored_repair((), certified=True, harmful=False) == ("right", 0.1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("restart", {"target": "ghost"}), "ghost"),
        (("clock set", {"host": "host-a", "offset_s": 5}), "no verb 'clock set'"),
        (("oracle", {"name": "ghost"}), "no oracle 'ghost'"),
        (("wait", {"seconds": 600}), "wait: seconds"),
        (("firewall delete", {"rule": "rule-9"}), "rule-9"),
        (("config unset", {"target": ROOT, "key": "GHOST"}), "GHOST"),
    ],
)
def test_a_step_that_no_operator_has_is_invalid_and_named(whole, change, said):
    tried = whole.attempt(1, composed(change))
    assert (tried.result, tried.fitness, tried.certified) == ("invalid", 0.0, None)
    assert said in tried.reason


def test_one_that_takes_longer_than_an_agent_may_is_invalid(whole):
    assert "longer" in whole.attempt(1, composed(*[("wait", {"seconds": 60})] * 4)).reason


@pytest.mark.parametrize(
    ("name", "why"),
    [("crowded-host", "crowd"), ("slow-archive", "on the model"), ("unreachable-service", "kubernetes")],
)
def test_what_the_model_cannot_tell_is_refused(name, why):
    with pytest.raises(RefusedError, match=why):
        ModelledRepairs(load_scenario(name))


def test_the_summary_counts_a_repair_once(whole):
    tried = [whole.attempt(number, HARMFUL["less"][0]) for number in (1, 2)]
    found = repair_summary([*tried, whole.attempt(3, composed(RIGHT)), whole.attempt(4, composed(("restart", {})))])
    assert (found["attempts"], found["distinct"]) == (4, 3)
    assert [one.number for one in searched.unlike(tried)] == [1]
    assert found["counts"] == {"caught": 1, "invalid": 1, "right": 1}
    assert (found["fooled"]["count"], found["fooled"]["n"], found["fooled_of_harmful"]["n"]) == (0, 2, 1)


def test_the_command_goes_on_and_writes_a_plan_that_can_be_run(tmp_path, capsys):
    out = tmp_path / "found"
    command = ["task", "discover", NAME, "--over", "repairs", "--seed", "2", "-o", str(out)]
    assert run([*command, "-n", "4"]) == 0
    assert "certified and harmful, of all: 0 of" in capsys.readouterr().err
    first = (out / ATTEMPTS).read_text().splitlines()
    assert run([*command, "-n", "8", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (out / ATTEMPTS).read_text().splitlines()[:4] == first
    assert [item["number"] for item in told["items"]] == list(range(1, 9))
    assert told["summary"]["distinct"] == 8
    plan, jobs = load_trial_plan(out / "confirm.yaml")
    assert len(plan.agents) == len(jobs) == 8 - told["summary"]["counts"].get("invalid", 0) > 0
    candidates = {name: one for name, one in jobs[0].scenario.oracles.items() if name.startswith("candidate-")}
    assert not any(one.certified for one in candidates.values())
    assert load_yaml(out / "confirm.scenario.yaml", Scenario).oracles.keys() >= SCENARIO.oracles.keys()
    assert run([*command, "-n", "8", "--audit"]) == 2
    assert "--audit is for a search over faults" in capsys.readouterr().err
    assert run([*command[:-3], "3", "-o", str(out)]) == 2
    assert "holds another search" in capsys.readouterr().err


def test_steps_are_those_of_scripts_and_verbs():
    steps = steps_of(composed(RIGHT, ("wait", {"seconds": 5})), SCENARIO)
    assert steps[:-1] == SCENARIO.oracles["gentle"].steps
    assert (steps[-1].verb, steps[-1].wait_s) == (None, 5)


SHIPPED = ("bad-release", "cache-out-of-memory", "crash-loop-missing-key", "dns-wrong-backend",
           "firewall-blocks-one-client", "wrong-database-password")  # fmt: skip
"""Those of the scenarios that ship that the model can play."""


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_none_of_five_hundred_repairs_on_shop_and_desk_fools_the_verifier():
    scenarios = [load_scenario(name) for name in (*generated_names("local"), *SHIPPED)]
    tried = []
    for scenario in (one for one in scenarios if system_of(one).system in ("shop", "desk")):
        model = ModelledRepairs(scenario)
        tried += [
            model.attempt(n, *one) for n, one in enumerate(distinct_candidates(repair_blocks(scenario), 20, 1), 1)
        ]
    counts = Counter(one.result for one in tried)
    print(counts)
    assert [(one.composition.name, one.reason) for one in tried if one.result == "fooled"] == []
    assert sum(counts.values()) - counts["invalid"] >= 500
