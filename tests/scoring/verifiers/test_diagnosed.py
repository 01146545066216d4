"""Whether an operator said what is wrong, and how soon: by hand, on the made clock."""

from __future__ import annotations

import pytest

from opsassay.core.schema.run import MetricStatus
from opsassay.scoring.verifiers import certify
from scoring.verifiers.made import diagnosis, recording, scenario, timeline

TRUTH = {"root_causes": ["cart", "host-b"], "entities": ["web"]}
NAMES = ("diagnosis_right", "time_to_diagnosis_s")


def graded(diagnoses, *, truth=TRUTH, started=10, **knobs):
    made = recording(timeline([1.0] * 25), triggered=4, started=started, ended=20, diagnoses=diagnoses)
    return certify(made, scenario(truth=truth, **knobs)).metrics


def values(metrics):
    return tuple(metrics[name].value for name in NAMES)


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ([(13, "cart", "host-b")], (1.0, 3.0)),
        ([(13, "Host_B", "ts-cart")], (1.0, 3.0)),
        ([(13, "cart")], (0.0, None)),
        ([(13, "cart", "host-b", "web")], (0.0, None)),
        ([(12, "web"), (16, "cart", "host-b")], (1.0, 6.0)),  # the last one counts, and so does its time
        ([(12, "cart", "host-b"), (16, "web")], (0.0, None)),
        ([(13,)], (0.0, None)),
        ([], (0.0, None)),
    ],
)
def test_right_is_exactly_the_root_causes_and_its_time_begins_when_the_operator_is_let_in(said, found):
    metrics = graded(tuple(diagnosis(*one) for one in said))
    assert values(metrics) == found
    if found[1] is None:
        assert metrics["time_to_diagnosis_s"].status is MetricStatus.NOT_APPLICABLE
        told = "no diagnosis was handed in" if not said else "the diagnosis was not right"
        assert metrics["time_to_diagnosis_s"].reason == told


def test_where_nothing_is_broken_the_right_answer_is_none():
    quiet = {"truth": {}, "no_fault": True, "blast_radius": {"max_entities": 0}}
    assert values(graded((diagnosis(15),), **quiet)) == (1.0, 5.0)
    assert values(graded((diagnosis(15, "cart"),), **quiet)) == (0.0, None)
    assert values(graded((), **quiet)) == (0.0, None)


def test_who_was_not_asked_is_not_graded_and_without_a_truth_nobody_is():
    assert not set(NAMES) & graded(None).keys()
    open_ = graded((diagnosis(13, "cart"),), truth={})
    assert {open_[name].status for name in NAMES} == {MetricStatus.NOT_APPLICABLE}
    assert open_["diagnosis_right"].reason == "the scenario names no root cause"


def test_a_record_without_the_operators_start_has_no_time():
    metrics = graded((diagnosis(13, "cart", "host-b"),), started=None)
    assert values(metrics) == (1.0, None)
    assert "let in" in metrics["time_to_diagnosis_s"].reason
