from __future__ import annotations

import pytest

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.faults import FaultKind as K
from opsassay.core.schema.run import MetricStatus, RunStatus
from opsassay.scoring import metrics
from opsassay.scoring.profiles import PROFILES, profile_named
from opsassay.scoring.verdict import grade

from .cases import annotation, answer, finished_run, no_fault, truth

FAULT = truth(("CPUStress", "cart"))
CASCADE = annotation("cart>web", "web")
RIGHT = answer(("cart", K.CPU_STRESS), edges="cart>web")


def test_a_right_answer_has_every_metric_and_the_names_of_run_and_profile() -> None:
    verdict = grade(finished_run(), RIGHT, FAULT, CASCADE, None, PROFILES["lenient"])
    assert tuple(verdict.metrics) == metrics.ALL
    assert (verdict.run, verdict.item, verdict.solver, verdict.profile) == ("c0/1", "i0", "s", "lenient")
    assert verdict.label == "attributed"
    wanted = dict.fromkeys((*metrics.OUTCOME, *metrics.PATH, *metrics.GRAPH), 1.0) | {"ungrounded": 0.0}
    assert {name: verdict.metrics[name].value for name in wanted} == wanted


@pytest.mark.parametrize("status", [s for s in RunStatus if s is not RunStatus.DONE])
def test_a_run_without_a_result_is_failed_and_not_wrong(status: RunStatus) -> None:
    run = finished_run(status=status, error="it fell over")
    for diagnosis in (None, RIGHT):
        verdict = grade(run, diagnosis, FAULT, CASCADE, None)
        asked = {name: m for name, m in verdict.metrics.items() if name != "fault_kind_accuracy"}
        assert {m.status for m in asked.values()} == {MetricStatus.FAILED}
        assert {m.reason for m in asked.values()} == {f"the run is {status.value}: it fell over"}


def test_a_finished_run_without_an_answer_is_failed_too() -> None:
    verdict = grade(finished_run(), None, FAULT, CASCADE, None)
    assert verdict.metrics["f1"].status == MetricStatus.FAILED


@pytest.mark.parametrize("of", [CASCADE, None])
@pytest.mark.parametrize("against", [FAULT, no_fault()])
@pytest.mark.parametrize("given", [RIGHT, answer(), answer(("web", None))])
def test_a_value_stands_exactly_where_a_metric_is_scored_and_a_reason_elsewhere(
    of: object, against: object, given: object
) -> None:
    for metric in grade(finished_run(), given, against, of, None).metrics.values():  # type: ignore[arg-type]
        assert (metric.value is not None) == (metric.status == MetricStatus.SCORED)
        assert bool(metric.reason) == (metric.status != MetricStatus.SCORED)


def test_the_same_inputs_give_the_same_bytes() -> None:
    texts = {grade(finished_run(), RIGHT, FAULT, CASCADE, None).pretty_json() for _ in range(3)}
    assert len(texts) == 1


def test_an_unknown_profile_is_named_with_the_nearest_one() -> None:
    with pytest.raises(NotFoundError, match="did you mean 'lenient'"):
        profile_named("lenint")
