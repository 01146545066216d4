"""Answers in ITBench's form: matched with its ground truth as by hand, and nothing is made up for what it does not know."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from benchmarks.papers.itbench_answers import (
    ItbenchAnswer,
    ItbenchTruth,
    command,
    read_itbench_answer,
    scenario_number,
    score_trials,
)
from click.testing import CliRunner

from opsassay.core.errors import UserError

EXAMPLE = Path(__file__).parents[2] / "examples" / "itbench"
TRUTH = EXAMPLE / "truths" / "scenario_7"


@pytest.fixture(scope="module")
def truth():
    return ItbenchTruth.read(TRUTH)


def test_a_workload_one_step_from_the_pod_is_as_near_as_by_hand(truth):
    """Levels flag 4, cart 3, checkout 2, front 1 of 4, so importances 5, 5/2, 5/3, 5/4; distances to the workload by
    calls at 2.1 per entity that is entered and what it reaches: cart 3, flag and checkout 4.2 + 3, front 6.3 + 4.2 + 3."""
    near = [w * (1 / (d + 1)) ** 0.289 for w, d in ((5, 7.2), (5 / 2, 3), (5 / 3, 7.2), (5 / 4, 13.5))]
    best = [w * (1 / (d + 1)) ** 0.289 for w, d in ((5, 0), (5 / 2, 2.1), (5 / 3, 6.3), (5 / 4, 12.6))]
    by_hand = near[0] * sum(near) / 4 / (best[0] * sum(best) / 4)
    found = truth.score(ItbenchAnswer(("shop/Deployment/cart",), ()))
    assert found.fl == pytest.approx(by_hand, abs=1e-12)
    assert found.fl == pytest.approx(0.3844, abs=1e-4)
    assert (found.found, found.precision, found.unknown) == (False, 0.0, ())


def test_the_truth_itself_is_one_in_whatever_words_it_is_said(truth):
    edges = (("flag-1", "shop/Pod/cart-x-1"), ("cart", "shop/Service/checkout"), ("checkout", "shop/Service/front"))
    found = truth.score(ItbenchAnswer(("shop/ConfigMap/flag-config",), edges))
    assert (found.fl, found.fpc, found.found, found.precision) == (1.0, pytest.approx(1.0), True, 1.0)


def test_more_roots_than_there_are_cost(truth):
    one = truth.score(ItbenchAnswer(("shop/ConfigMap/flag-config",), ()))
    two = truth.score(ItbenchAnswer(("shop/ConfigMap/flag-config", "shop/Service/front"), ()))
    every = truth.score(ItbenchAnswer(tuple(truth.truth.groups), ()))
    assert one.fl > two.fl > every.fl
    assert two.precision == 0.5
    assert every.found


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("shop/Service/front", "front-service-1"),
        ("shop/Service/front-proxy", "front-proxy-service-1"),
        ("Service/front", "front-service-1"),
        ("front-proxy", "front-proxy-service-1"),
        ("shop/Pod/cart-7d9f-x2", "cart-pod-1"),
        ("shop/service/CHECKOUT", None),
        ("other/Service/front", None),
        ("shop/Node/front", None),
        ("", None),
        ("shop/Service/", None),
        ("x" * 300, None),
    ],
)
def test_a_name_is_the_group_whose_kind_and_filter_it_matches_as_a_whole(truth, name, group):
    assert truth._group_of(name) == group


def test_what_the_truth_does_not_know_earns_nothing_and_is_named(truth):
    found = truth.score(ItbenchAnswer(("shop/Service/mail",), (("shop/Service/mail", "shop/Service/ads"),)))
    assert (found.fl, found.fpc, found.found) == (0.0, 0.0, False)
    assert set(found.unknown) == {"shop/Service/mail", "shop/Service/ads"}


def test_no_answer_at_all_is_nothing(truth):
    found = truth.score(ItbenchAnswer((), ()))
    assert (found.fl, found.fpc, found.found, found.precision) == (0.0, 0.0, False, None)


BAD = {
    "no json": "{",
    "a list": "[]",
    "no entities": "{}",
    "entities that are none": '{"entities": 3}',
    "deep": "[" * 100_000,
    "bytes": "\xff\xfe",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_answer_is_one_sentence(name, tmp_path):
    (tmp_path / "a.json").write_bytes(BAD[name].encode("latin-1"))
    with pytest.raises(UserError):
        read_itbench_answer(tmp_path / "a.json")


def test_odd_entities_are_passed_over(tmp_path):
    entities = [3, {}, {"name": 5, "contributing_factor": True}, {"id": "front", "root_cause": True}]
    entities.append({"name": "x", "contributing_factor": "yes"})
    propagations = [7, {"source": "a"}, {"source": 1, "target": "b"}, {"source": "a", "target": "b"}]
    given = {"entities": entities, "propagations": propagations}
    (tmp_path / "a.json").write_text(json.dumps(given))
    assert read_itbench_answer(tmp_path / "a.json") == ItbenchAnswer(("front",), (("a", "b"),))


def test_a_trial_without_an_answer_counts_as_nothing(truth, tmp_path):
    shutil.copytree(EXAMPLE / "answers" / "7", tmp_path / "7")
    (tmp_path / "7" / "3").mkdir()
    (tmp_path / "7" / "4" / "outputs").mkdir(parents=True)
    (tmp_path / "7" / "4" / "outputs" / "agent_output.json").write_text("{")
    scores = score_trials(truth, tmp_path / "7")
    assert (scores.trials, sorted(scores.scores), sorted(scores.bad)) == (4, ["1", "2"], ["3", "4"])
    assert scores.mean([1.0, 0.5])[0] == 0.375
    done = CliRunner().invoke(command, [str(EXAMPLE / "truths"), str(tmp_path)])
    assert done.exit_code == 1
    assert "0.25 ± 0.25" in done.stdout


def test_answers_without_a_truth_are_one_sentence(tmp_path):
    (tmp_path / "99" / "1").mkdir(parents=True)
    done = CliRunner().invoke(command, [str(EXAMPLE / "truths"), str(tmp_path)])
    assert isinstance(done.exception, UserError)
    assert "has no ground truth" in str(done.exception)


@pytest.mark.parametrize(
    ("name", "number"),
    [("scenario_7", "7"), ("7", "7"), ("Scenario-07", "7"), ("incident-102", "102"), ("other", "other")],
)
def test_folders_of_one_scenario_have_its_number(name, number):
    assert scenario_number(name) == number


@pytest.mark.slow
def test_every_public_ground_truth_is_whole_against_itself(real_data):
    count = 0
    for folder in sorted((real_data / "itbench-groundtruth").glob("scenario_*")):
        try:
            truth = ItbenchTruth.read(folder)
        except UserError:
            continue  # there are two forms, and files that name no root cause
        edges = tuple((edge.source, edge.target) for edge in truth.truth.annotation.graph.edges)
        found = truth.score(ItbenchAnswer(truth.truth.roots, edges))
        assert (found.fl, found.fpc, found.found) == (pytest.approx(1.0), pytest.approx(1.0), True), folder.name
        count += 1
    assert count >= 20
