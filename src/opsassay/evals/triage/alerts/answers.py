"""Answers to a storm: the contract, the oracles, which know the truth, and baselines, which see as much as an agent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import chain, pairwise
from typing import Any, NamedTuple

from opsassay.evals.triage.tasks import ShownAlert, Storm
from opsassay.solvers.agents.contract import AnswerError

GAP_S = 4.0
"""A longer time between two alerts starts a new group in `by_time`."""


class Sorted(NamedTuple):
    """An answer: groups of alert ids, the most urgent first, and the ids that are noise."""

    groups: list[list[str]]
    noise: list[str]

    def as_answer(self) -> dict[str, Any]:
        """Return the answer in the form in which it is submitted: "groups" and "noise"."""
        return self._asdict()


def read_sorted(storm: Storm, answer: Mapping[str, Any]) -> Sorted:
    """Return the validated *answer* to *storm*; raises AnswerError. Alerts may be missing, which lowers grades."""
    if set(answer) != {"groups", "noise"}:
        has = ", ".join(map(str, answer)) or "none"
        raise AnswerError(f"the answer has the keys {has}; it has 'groups' and 'noise', and no other")
    groups, noise = answer["groups"], answer["noise"]
    if not isinstance(groups, list):
        raise AnswerError("'groups' is no list; give a list of lists of alert ids, the most urgent group first")
    for name, ids in (*((f"group {n}", group) for n, group in enumerate(groups, 1)), ("'noise'", noise)):
        if not isinstance(ids, list) or not all(isinstance(id_, str) for id_ in ids):
            raise AnswerError(f"{name} is no list of alert ids; give one, as [{storm.alerts[0].id!r}]")
    if empty := next((n for n, group in enumerate(groups, 1) if not group), None):
        raise AnswerError(f"group {empty} is empty; leave it out")
    known = [alert.id for alert in storm.alerts]
    times = Counter(chain(noise, *groups))
    if strange := next((id_ for id_ in times if id_ not in known), None):
        raise AnswerError(f"there is no alert {strange[:40]!r}; ids are {known[0]} to {known[-1]}")
    if twice := next((id_ for id_, count in times.items() if count > 1), None):
        raise AnswerError(f"{twice} stands {times[twice]} times; give each alert once")
    return Sorted(groups, noise)


def oracle_answer(name: str, storm: Storm) -> Sorted:
    """Return the answer of the oracle *name* to *storm*: right, or (wrong) noise as the problem, all else as noise."""
    noise = [id_ for id_, owners in storm.owners.items() if not owners]
    if name == "wrong":
        rest = [alert.id for alert in storm.alerts if alert.id not in noise]
        return Sorted([noise] if noise else [], rest)
    order = sorted(range(len(storm.problems)), key=lambda n: -(storm.problems[n].lost_rps or 0.0))
    groups: dict[int, list[str]] = {n: [] for n in order}
    for alert in storm.alerts:
        if alert.id not in noise:
            owners = storm.owners.get(alert.id) or (order[0],)  # its owner is unknown, and it is not graded
            groups[owners[0]].append(alert.id)
    return Sorted([group for group in groups.values() if group], noise)


def _grouped(alerts: Iterable[ShownAlert], key: Callable[[ShownAlert], Hashable]) -> list[list[str]]:
    """Return groups of ids of *alerts* with an equal *key*, ordered by first occurrence."""
    found: dict[Hashable, list[str]] = {}
    for alert in alerts:
        found.setdefault(key(alert), []).append(alert.id)
    return list(found.values())


def by_time(storm: Storm) -> Sorted:
    """Return the baseline answer with one group per burst of alerts, in order of time, and no noise."""
    times = [datetime.fromisoformat(alert.time) for alert in storm.alerts]
    burst = {storm.alerts[0].id: 0}
    for alert, (before, at) in zip(storm.alerts[1:], pairwise(times), strict=True):
        burst[alert.id] = max(burst.values()) + ((at - before).total_seconds() > GAP_S)
    return Sorted(_grouped(storm.alerts, lambda alert: burst[alert.id]), [])


def by_service(storm: Storm) -> Sorted:
    """Return the baseline answer with one group per service, ordered by its first alert, and no noise."""
    return Sorted(_grouped(storm.alerts, lambda alert: alert.service), [])


def by_severity(storm: Storm) -> Sorted:
    """Return the baseline answer with one group per service, by how far its worst alert exceeds the limit; no noise."""

    def beyond(alert: ShownAlert) -> float:
        """Return how far the value of *alert* is from its limit, as a fraction of the limit."""
        return abs(alert.value - alert.limit) / abs(alert.limit or 1.0)

    worst_first = sorted(storm.alerts, key=beyond, reverse=True)
    return Sorted(_grouped(worst_first, lambda alert: alert.service), [])


def by_calls(storm: Storm) -> Sorted:
    """Return a baseline answer: one group of alerts per set of services linked by calls, largest first; noise is []."""
    home = {alert.service: alert.service for alert in storm.alerts}
    for caller, callee in storm.calls:
        if caller in home and callee in home:
            joined, kept = home[callee], home[caller]
            home = {name: kept if place == joined else place for name, place in home.items()}
    groups: Sequence[list[str]] = _grouped(storm.alerts, lambda alert: home[alert.service])
    return Sorted(sorted(groups, key=len, reverse=True), [])


BASELINES: Mapping[str, Callable[[Storm], Sorted]] = {
    "by-time": by_time, "by-service": by_service, "by-severity": by_severity, "by-calls": by_calls,
}  # fmt: skip
"""Solvers that use neither a model nor the truth."""
