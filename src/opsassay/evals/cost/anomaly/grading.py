"""Grades answers of anomaly tasks: points found, importance, order, and agreement with a detector.

Points are (time, slice). Precision, recall and F1 are over points, against the planted ones. Ranks are over anomalies:
a claim is a true positive when it shares more than half of the union of points with a planted anomaly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.evals.cost.anomaly.detector import detect
from opsassay.evals.cost.anomaly.misreading import MISREADINGS, misreadings_of
from opsassay.evals.cost.anomaly.task import AnomalyTask
from opsassay.evals.cost.anomaly.truth import Point, TrueAnomaly
from opsassay.evals.cost.answers.contract import Claim

PASSING_F1, PASSING_RANK = 0.98, 0.9
IMPORTANCE_TOLERANCE = 0.01
"""Accepted error of an importance, which lies between 0 and 1."""


def grade_claims(task: AnomalyTask, claims: Sequence[Claim]) -> dict[str, Metric]:
    """Return the metrics of an answer's *claims* of anomalies against the truth of *task*.

    ``passed`` asks for an F1 of PASSING_F1 and, where importance is asked for, a rank_importance of PASSING_RANK.
    ``detector_f1`` is F1 against the points that `detect` finds with its defaults.
    """
    given = points_of(task, claims)
    true = set[Point]().union(*(one.points for one in task.truth))
    detected = set(detect([(time, slice_, cost) for time, slice_, cost in task.series.rows()]))
    precision, recall, f1 = shares(given, true)
    scored = {
        "anomaly_precision": precision,
        "anomaly_recall": recall,
        "anomaly_f1": f1,
        "detector_f1": shares(given, detected)[2],
    }
    metrics = {name: Metric(value=value, status=MetricStatus.SCORED) for name, value in scored.items()}
    metrics |= _rank_metrics(task, claims)
    rank = metrics["rank_importance"]
    problem = None
    if f1 < PASSING_F1:
        problem = f"F1 is {f1:.2f}, below {PASSING_F1}"
    elif task.ranked and (rank.value or 0.0) < PASSING_RANK:
        problem = f"rank_importance is {rank.value or 0.0:.2f}, below {PASSING_RANK}"
    said = "" if problem is None else "; ".join([*_find_misreading(task, claims), problem])
    return {"passed": Metric(value=float(problem is None), status=MetricStatus.SCORED, reason=said), **metrics}


def _find_misreading(task: AnomalyTask, claims: Sequence[Claim]) -> list[str]:
    """Return [description] of the known misreading of *task* that gives exactly these *claims*, [] if none does."""
    given = {(one.slice, one.start, one.end, _rounded_importance(one)) for one in claims}
    for name in misreadings_of(task):
        said, read = MISREADINGS[name]
        if given == {(one.slice, one.start, one.end, _rounded_importance(one)) for one in read(task)}:
            return [said]
    return []


def _rounded_importance(claim: Claim) -> float | None:
    """Return the claim's importance to two decimals, None when it has none."""
    return None if claim.importance is None else round(claim.importance, 2)


def points_of(task: AnomalyTask, claims: Sequence[Claim]) -> set[Point]:
    """Return the (time, slice) points that *claims* cover, even in part, and one extra point for each end outside.

    A claim that starts before or ends after the series adds the point just before or after it for its slice.
    """
    first, after = task.bounds
    points: set[Point] = set()
    for claim in claims:
        for moment in _moments_between(max(claim.start, first), min(claim.end, after), task.step):
            points.add((moment, claim.slice))
        if claim.start < first:
            points.add((first - task.step, claim.slice))
        if claim.end > after:
            points.add((after, claim.slice))
    return points


def _moments_between(start: datetime, end: datetime, step: timedelta) -> list[datetime]:
    """Return the times from *start*, rounded down to a multiple of *step*, to before *end*."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    moment = epoch + (start - epoch) // step * step
    found = []
    while moment < end:
        found.append(moment)
        moment += step
    return found


def shares(claimed: Collection[Point], true: Collection[Point]) -> tuple[float, float, float]:
    """Return precision, recall and F1 of *claimed* against *true*; all 1 when both are empty."""
    hits = len(set(claimed) & set(true))
    precision = hits / len(claimed) if claimed else float(not true)
    recall = hits / len(true) if true else float(not claimed)
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def matched(task: AnomalyTask, claims: Sequence[Claim]) -> list[tuple[Claim, TrueAnomaly]]:
    """Return (claim, anomaly) for each claim that is a true positive: it shares over half of the union of points."""
    pairs = []
    for claim in claims:
        points = points_of(task, [claim])
        for one in task.truth:
            union = points | one.points
            if union and len(points & one.points) > len(union) / 2:
                pairs.append((claim, one))
    return pairs


def _rank_metrics(task: AnomalyTask, claims: Sequence[Claim]) -> Mapping[str, Metric]:
    """Return rank_importance and rank_relative, both readings of the paper's rank score, over the true positives.

    ``rank_importance`` (E.4.1): the share of them whose importance is C * delta over the largest C * delta of the
    truth. ``rank_relative`` (E.2): the share of them that have their true rank among the true positives, by importance.
    """
    if not task.ranked:
        absent = Metric(status=MetricStatus.NOT_APPLICABLE, reason="the task does not ask for importance")
        return {"rank_importance": absent, "rank_relative": absent}
    pairs = matched(task, claims)
    if not pairs:
        nothing = Metric(value=0.0, status=MetricStatus.SCORED, reason="no claim is a planted anomaly")
        return {"rank_importance": nothing, "rank_relative": nothing}
    largest = max(one.weight for one in task.truth)
    given = [claim.importance or 0.0 for claim, _ in pairs]
    true = [one.weight / largest for _, one in pairs]
    near = sum(abs(a - b) <= IMPORTANCE_TOLERANCE for a, b in zip(given, true, strict=True))
    placed = sum(_count_above_below(n, given) == _count_above_below(n, true) for n in range(len(pairs)))
    return {
        "rank_importance": Metric(value=near / len(pairs), status=MetricStatus.SCORED),
        "rank_relative": Metric(value=placed / len(pairs), status=MetricStatus.SCORED),
    }


def _count_above_below(number: int, values: Sequence[float]) -> tuple[int, int]:
    """Return (how many *values* are greater, how many are smaller) than the one at index *number*."""
    return sum(v > values[number] for v in values), sum(v < values[number] for v in values)
