"""Generated scenarios: what follows from a seed is whole, sound, and says nothing of the fault in its alert."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from opsassay.cli import run
from opsassay.core.errors import NotFoundError
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.task import LEVELS, level_of
from opsassay.evals.remediation.authoring.checks import findings
from opsassay.evals.remediation.controls.scripts import MAKERS, applicable, controls_of, sampled, script_of
from opsassay.evals.remediation.modelled.trial import ModelledTrial
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.tasks import scenario_complexity
from opsassay.scoring.verifiers import certify
from opsassay.testbed.apps import load_system
from opsassay.testbed.operations.tools import TOOLS
from opsassay.testbed.scenarios import generated_names, load_scenario, system_of
from opsassay.testbed.scenarios.generated import DELETED, SEVERAL, STORMS, generated
from opsassay.testbed.scenarios.generated.impact_closure import longest, reach_of

VERBS = {tool.verb or name.replace("_", " "): tool.arguments for name, tool in TOOLS.items()}


def test_there_are_sixty_over_the_papers_classes_on_both_substrates_in_every_stratum():
    made = generated(0)
    assert len(made) >= 60
    assert len({one.id for one in made}) == len({one.digest() for one in made}) == len(made)
    assert len({one.category for one in made} - {SEVERAL, STORMS}) >= 21
    assert min(Counter(one.environment.substrate for one in made).values()) >= 25
    levels = Counter(level_of(scenario_complexity(one.difficulty)) for one in made)
    assert set(levels) == set(LEVELS)
    assert max(scenario_complexity(one.difficulty) for one in made) > 5.2


def test_a_corrupt_release_asks_the_database_for_columns_that_the_running_one_does_not():
    for seed in range(5):
        for one in (one for one in generated(seed) if one.category == "CorruptDeployment" and one.trigger.operations):
            arguments = one.trigger.operations[0].arguments
            service = system_of(one).services[arguments["service"]]
            asked, known = (
                {
                    step.sql
                    for work in service.at_version(release).operations.values()
                    for step in work.walk()
                    if step.sql
                }
                for release in (arguments["version"], service.release)
            )
            assert asked - known, one.id
            assert not any(
                step.wait_ms
                for work in service.at_version(arguments["version"]).operations.values()
                for step in work.walk()
            )


def test_a_fault_that_a_caller_is_to_notice_is_in_every_pod_it_may_keep_a_connection_to():
    packets = [
        one
        for seed in range(3)
        for one in generated(seed)
        if one.environment.substrate == "kubernetes" and one.category in {"NetworkDelay", "NetworkPartition"}
    ]
    assert len(packets) >= 6
    for one in packets:
        (plan,) = one.trigger.faults
        hit = {(part.target.service, part.target.replica) for part in plan.parts}
        (root,) = one.truth.root_causes
        assert hit == {(root, n) for n in range(system_of(one).services[root].replicas)}, one.id


def test_what_a_feature_computes_leaves_half_of_two_processors_to_the_rest():
    busy = {"HighCPU", "ManualGarbageCollection", "CPUStress"}
    found = [
        one
        for seed in range(10)
        for one in generated(seed)
        if one.category in busy and one.environment.substrate == "local"
    ]
    assert {one.category for one in found} == busy
    for one in found:
        (root,) = one.truth.root_causes
        service = system_of(one).services[root]
        assert service.replicas * service.cpu_limit <= 1.0, one.id


def test_the_same_seed_makes_the_same_and_another_one_others():
    again = generated.__wrapped__(0)
    assert [one.digest() for one in again] == [one.digest() for one in generated(0)]
    assert {one.digest() for one in generated(3)}.isdisjoint(one.digest() for one in again)
    assert load_scenario("gen3-several-faults-1") == next(one for one in generated(3) if one.category == SEVERAL)
    with pytest.raises(NotFoundError, match="gen3-"):
        load_scenario("gen3-several-faults-99")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_each_fits_its_system_survives_a_file_and_has_every_control(seed):
    for one in generated(seed):
        system = system_of(one)
        assert [found.message for found in findings(one, system, VERBS) if found.error] == [], one.id
        controls = controls_of(one)
        assert len(controls) == len(MAKERS)
        assert sum(not control.why_not for control in controls) >= 9, one.id
        wrong = [oracle for oracle in one.oracles.values() if not oracle.certified]
        assert wrong, one.id
        assert one.verification.alerts is not None
        assert one.verification.alerts.triggering


def test_a_deleted_service_is_in_front_of_each_kind_of_what_shows_later():
    made = [one for one in generated(0) if one.category == DELETED]
    assert all(level_of(scenario_complexity(one.difficulty)) == "hard" for one in made)
    assert all("dns delete" in [call.verb for call in one.trigger.operations] for one in made)
    behind = {str(call.arguments.get("key", call.verb)) for one in made for call in one.trigger.operations}
    assert {"FEATURE_SIGN_ONCE", "FEATURE_FILE_WATCH", "exec curl"} <= behind


def test_the_truth_has_a_way_from_its_root_to_whoever_notices():
    for one in generated(0):
        edges = [(step.source, step.target) for step in one.truth.propagation]
        assert all(step.condition and step.effect for step in one.truth.propagation)
        assert one.difficulty.propagation == longest(edges, one.truth.root_causes)
        reached = set(one.truth.root_causes)
        for _ in edges:
            reached |= {target for source, target in edges if source in reached}
        assert {end for edge in edges for end in edge} <= reached, one.id


def test_an_alert_names_neither_the_setting_nor_the_object_that_is_wrong():
    for one in generated(0):
        trigger = json.dumps(one.trigger.model_dump(mode="json"))
        changes = [] if one.cluster is None else [c for c in one.cluster.changes if c.create is not None]
        secret = {change.name for change in changes}
        secret |= {str(call.arguments["key"]) for call in one.trigger.operations if "key" in call.arguments}
        assert not [word for word in secret if word in one.prompt("constrained")], (one.id, trigger)


def test_whom_a_failure_reaches_is_what_a_person_reads_off_the_system():
    desk, shop = load_system("desk"), load_system("shop")
    cache = reach_of(desk, "cache")
    assert cache.edges == (("cache", "session"), ("session", "web"), ("web", "proxy"))
    assert (cache.entry, cache.share) == ("proxy", 5 / 8)
    assert longest(cache.edges, ["cache"]) == 4
    assert reach_of(shop, "ads").edges == ()  # its caller does without it
    assert reach_of(load_system("hotel"), "review").entry is None  # so does the page that is probed
    assert reach_of(desk, "billing").entry is None  # messages are handled later


def test_a_storm_breaks_nothing_that_stays_and_concerns_nobody_on_the_way():
    storms = [one for one in generated(0) if one.category == STORMS]
    assert len(storms) == 2
    for one in storms:
        *restarts, dip = one.trigger.operations[:4]
        assert dip.verb == "load dip"
        concerned = one.named_entities() | {end for step in one.truth.propagation for end in (step.source, step.target)}
        assert not {str(call.arguments["target"]) for call in restarts} & concerned


def test_what_is_shown_is_a_file_that_is_the_same_scenario(tmp_path, capsys):
    for name in ("gen0-several-faults-3", "gen0-network-policy-2"):
        assert run(["task", "show", name]) == 0
        (tmp_path / "shown.yaml").write_text(capsys.readouterr().out)
        assert load_yaml(tmp_path / "shown.yaml", Scenario).digest() == load_scenario(name).digest()


def test_plans_and_lists_know_them(capsys):
    plan = TrialPlan.model_validate({"scenarios": ["generated"], "agents": ["oracle:*"]})
    assert {job.scenario.id for job in cells_of(plan)} == set(generated_names("local"))
    assert run(["task", "scenarios", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(generated_names()) <= {item["id"] for item in listed["items"]}
    assert sum(listed["complexity"]["strata"].values()) == len(listed["items"])
    assert run(["task", "check", "gen0-high-cpu-1", "gen0-network-policy-1", "--json"]) == 0
    assert [item["id"] for item in json.loads(capsys.readouterr().out)["items"]] == [
        "gen0-high-cpu-1",
        "gen0-network-policy-1",
    ]


# --- what they expect of their scripts, against the verifiers -------------------------------------------------------


def rehearsed(one, name):
    """Return what fails of the script called *name* of the scenario *one*, played on a model of its system."""
    verdict = certify(ModelledTrial(one).play(script_of(one, name)), one)
    failed = {judged.predicate for judged in verdict.judgements if judged.failed} - {"certificate"}
    return failed, verdict.judgement("certificate").passed


LOCAL = [one for one in generated(0) if one.environment.substrate == "local"]


@pytest.mark.sampled
@pytest.mark.parametrize("one", LOCAL, ids=lambda one: one.id)
def test_every_oracle_does_on_a_model_of_its_system_what_it_says(one):
    for name, oracle in one.oracles.items():
        failed, certified = rehearsed(one, name)
        assert oracle.is_met(failed), (name, failed)
        assert certified == oracle.certified, name


CONTROLS = [(one.id, control.name) for one in LOCAL for control in applicable(one)]


def is_rejected(pair):
    one = load_scenario(pair[0])
    failed, certified = rehearsed(one, pair[1])
    return not certified and script_of(one, pair[1]).fails in failed


def test_none_of_a_sample_of_controls_is_certified_on_a_model_and_each_fails_its_predicate():
    assert [pair for pair in sampled(CONTROLS, 12, 0) if not is_rejected(pair)] == []


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_control_is_certified_on_a_model():
    assert [pair for pair in CONTROLS if not is_rejected(pair)] == []
