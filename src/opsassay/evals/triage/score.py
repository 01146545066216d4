"""The score of an answer to a storm: its groups, their order by users' harm, and its noise.

Grouping is over alerts of one known problem: adjusted Rand index, homogeneity, completeness, and V-measure. An alert
called noise or left out is a group of its own. Order is Kendall's tau-b between the requests that each problem spoilt
and the mean place of its alerts in the answer; alerts in no group come last.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from statistics import fmean

from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.core.schema.task import MetricDefinition
from opsassay.evals.runner.json_answers import ANSWER, read_object
from opsassay.evals.runner.store import read_run
from opsassay.evals.triage.alerts.answers import Sorted, read_sorted
from opsassay.evals.triage.tasks import Storm
from opsassay.solvers.agents.contract import AnswerError

GROUPING = ("grouping_ari", "grouping_v", "grouping_homogeneity", "grouping_completeness")
NOISE = ("noise_f1", "noise_precision", "noise_recall")
METRICS = ("passed", "grouping_ari", "order_tau_b", "noise_f1", "most_harmful_first", *GROUPING[1:], *NOISE[1:])
LEFT_OUT = "alerts_left_out"


def definitions() -> tuple[MetricDefinition, ...]:
    """Return the definitions of all metrics of alert storms, the most important first."""
    return (*(MetricDefinition(name=name) for name in METRICS), MetricDefinition(name=LEFT_OUT, direction="lower"))


def grade_answer(run_dir: Path, storm: Storm) -> dict[str, Metric]:
    """Return every metric of the run in *run_dir*; without a valid answer they have the status FAILED."""
    try:
        return grade_sorted(storm, read_sorted(storm, read_object((run_dir / ANSWER).read_bytes())))
    except (FileNotFoundError, AnswerError) as error:
        why = read_run(run_dir).error or f"no answer by the contract: {error}"
        return dict.fromkeys((*METRICS, LEFT_OUT), Metric(status=MetricStatus.FAILED, reason=why))


def grade_sorted(storm: Storm, answer: Sorted) -> dict[str, Metric]:
    """Return every metric of *answer* to *storm*: grouping, order, noise and passed."""
    place = {id_: n for n, group in enumerate(answer.groups) for id_ in group}
    placed = {*place, *answer.noise}
    left_out = [alert.id for alert in storm.alerts if alert.id not in placed]
    metrics = {**_grade_groups(storm, place), **_grade_order(storm, answer, place), **_grade_noise(storm, answer.noise)}
    short = [name for name in ("grouping_ari", "order_tau_b", "noise_f1") if metrics[name].value not in (None, 1.0)]
    wrong = [*short, *([LEFT_OUT] if left_out else [])]
    passed = _scored(float(not wrong), f"not right: {', '.join(wrong)}" if wrong else "")
    return {"passed": passed, **metrics, LEFT_OUT: _scored(float(len(left_out)), ", ".join(left_out))}


def _scored(value: float, reason: str = "") -> Metric:
    """Return a metric of *value* with the status SCORED and *reason*, a note on the value."""
    return Metric(value=value, status=MetricStatus.SCORED, reason=reason)


def _unknown(reason: str) -> Metric:
    """Return a metric without a value, with the status NOT_APPLICABLE and *reason*."""
    return Metric(status=MetricStatus.NOT_APPLICABLE, reason=reason)


def _grade_groups(storm: Storm, place: Mapping[str, int]) -> dict[str, Metric]:
    """Return the metrics of GROUPING: how the answer's groups match problems; *place*: alert id to group number."""
    from sklearn.metrics import adjusted_rand_score, homogeneity_completeness_v_measure

    truth = {id_: n for n in range(len(storm.problems)) for id_ in storm.ids_of(n)}
    if len(truth) < 2:
        return dict.fromkeys(GROUPING, _unknown("fewer than two alerts belong to one problem alone"))
    alone = {id_: len(place) + n for n, id_ in enumerate(truth)}  # groups of their own, beyond those of the answer
    given = [place.get(id_, alone[id_]) for id_ in truth]
    labels = list(truth.values())
    homogeneity, completeness, v = homogeneity_completeness_v_measure(labels, given)
    values = (adjusted_rand_score(labels, given), v, homogeneity, completeness)
    return {name: _scored(float(value)) for name, value in zip(GROUPING, values, strict=True)}


def _grade_order(storm: Storm, answer: Sorted, place: Mapping[str, int]) -> dict[str, Metric]:
    """Return how the order of groups agrees with the problems' harm; *place*: alert id to group number."""
    from scipy.stats import kendalltau

    lost = {n: one.lost_rps for n, one in enumerate(storm.problems) if one.lost_rps is not None and storm.ids_of(n)}
    if len(set(lost.values())) < 2:
        return dict.fromkeys(("order_tau_b", "most_harmful_first"), _unknown("no two problems differ in known harm"))
    last = len(answer.groups)
    places = {n: fmean(place.get(id_, last) for id_ in storm.ids_of(n)) for n in lost}
    tau = 0.0 if len(set(places.values())) < 2 else kendalltau(list(lost.values()), [-at for at in places.values()])[0]
    first = [n for n, at in places.items() if at == min(places.values())]
    worst = max(lost, key=lambda n: lost[n] or 0.0)
    said = ", ".join(storm.harm_words())
    return {
        "order_tau_b": _scored(round(float(tau), 12), f"users' requests spoilt by {said}"),
        "most_harmful_first": _scored(float(first == [worst])),
    }


def _grade_noise(storm: Storm, called: Collection[str]) -> dict[str, Metric]:
    """Return precision, recall and F1 of the alert ids *called* noise; alerts of unknown origin do not count."""
    noise = {id_ for id_, owners in storm.owners.items() if not owners}
    judged = storm.owners.keys() & set(called)
    right = len(judged & noise)
    none = _unknown("no alert of this storm is noise")
    f1 = 2 * right / (len(judged) + len(noise)) if judged or noise else None
    return {
        "noise_f1": none if f1 is None else _scored(f1),
        "noise_precision": _scored(right / len(judged)) if judged else _unknown("no alert is called noise"),
        "noise_recall": _scored(right / len(noise)) if noise else none,
    }
