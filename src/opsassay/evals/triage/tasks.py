"""Alert storms: the alerts of one or several recorded incidents, mixed with generated noise alerts.

Nothing that a solver sees reveals the origin of an alert: ids number alerts by time, times are on one grid, and every
alert has the same form. Random draws are seeded by the incidents' truth, which solvers do not have.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Literal

import polars as pl
from pydantic import Field

from opsassay.core.draws import derived_random
from opsassay.core.errors import UserError
from opsassay.core.schema.base import Noun
from opsassay.core.schema.incident import Alert
from opsassay.core.schema.task import Task
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.runner.generated_tasks import GeneratedTask
from opsassay.evals.triage.alerts.problems import Problem, problems_of
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import Case

DOMAIN = "triage"
ORACLES = ("right", "wrong")
TICK_NS = 2 * 10**9
"""The grid of displayed times: the interval of our alert rules."""
SPREAD, MARGIN = 15, 3
"""Ticks within which combined incidents start, and by which noise may precede or follow them."""
FIRES = 3
"""The largest number of times that an alert fires."""
GOAL = """\
{count} alerts fired in the system {system}, listed below. Sort them out:
- put the alerts of one underlying problem into one group;
- order the groups: first the one whose problem spoils most requests of users;
- name as noise the alerts that belong to no problem. An alert that fires more than once may be noise or not.

Answer with one JSON object that has each id once: {{"groups": [["a01", "a03"], ["a02"]], "noise": ["a04"]}}

Alerts (id, time, service, signal, value, limit):
{alerts}

Calls between services in normal time: {calls}."""


class ShownAlert(Noun):
    """An alert as a solver sees it: its *id* counts alerts by time, *time* is UTC; value and limit share a unit."""

    id: str
    time: str
    service: str
    signal: str
    value: float
    limit: float


class Storm(GeneratedTask):
    """One storm with its truth. *owners*: alert id to numbers of the problems behind it, () for noise.

    An alert that its recording's verified cascade does not explain has no entry, and is not graded.
    """

    BODIES = "storms"

    generator: str = "2"
    system: str
    alerts: tuple[ShownAlert, ...]
    calls: tuple[tuple[str, str], ...] = Field(description="caller and callee")
    incidents: tuple[str, ...] = Field(description="content hashes of the recordings")
    problems: tuple[Problem, ...]
    owners: dict[str, tuple[int, ...]]

    @property
    def id(self) -> str:
        """The task's name, which serves as its id."""
        return self.name

    @cached_property
    def commitment(self) -> str:
        """The digest of everything that defines the storm, its truth included."""
        return self.committed(self.canonical_json())

    @property
    def kind(self) -> Literal["one recording", "several laid together"]:
        """The stratum of the task: "one recording" for one incident, else "several laid together"."""
        return "one recording" if len(self.incidents) == 1 else "several laid together"

    @property
    def goal(self) -> str:
        """The text of the task for the agent, with all alerts and calls."""
        lines = (f"{a.id}  {a.time}  {a.service}  {a.signal}  {a.value:g}  {a.limit:g}" for a in self.alerts)
        calls = ", ".join(f"{caller} -> {callee}" for caller, callee in self.calls) or "not known"
        return GOAL.format(count=len(self.alerts), system=self.system, alerts="\n".join(lines), calls=calls)

    @property
    def task_info(self) -> Task:
        """The description of the task that is published: id, goal, oracles and digest."""
        return Task(
            id=self.id, domain=DOMAIN, name=self.name.replace("-", " "), task_class="prioritise", stratum=self.kind,
            description="an alert storm", system=self.system, goal=self.goal, oracles=ORACLES,
            commitment=self.commitment,
        )  # fmt: skip

    def harm_words(self) -> list[str]:
        """Return for each problem the text "fault: failed user requests/s", the most harmful first."""
        worst_first = sorted(self.problems, key=lambda one: -(one.lost_rps or 0.0))
        lost = {one.about: "not known" if one.lost_rps is None else f"{one.lost_rps:.2f}/s" for one in worst_first}
        return [f"{one.about}: {lost[one.about]}" for one in worst_first]

    def ids_of(self, problem: int) -> list[str]:
        """Return the ids of the alerts that belong to problem number *problem* and no other."""
        return [id_ for id_, owners in self.owners.items() if owners == (problem,)]


@dataclass
class _TimedAlert:
    """An alert in the storm: its time in ticks, and the problems behind it (None: unknown, (): noise)."""

    tick: int
    alert: Alert
    owners: tuple[int, ...] | None


def make_storm(cases: Sequence[Case], noise: int, seed: int) -> Storm:
    """Return the storm of *cases*, all of one system, with *noise* noise alerts drawn by *seed*; UserError without alerts.

    Of several alerts of one service and signal the first is shown, and belongs to the problems of all.
    """
    items = [IncidentItem.from_datapack(case.datapack) for case in cases]
    hashes = tuple(item.content_hash for item in items)
    draw = derived_random(_secret_of(cases), f"storm {noise} {seed} {' '.join(hashes)}")
    zero = _first_ns(cases[0])
    problems: list[Problem] = []
    merged: dict[tuple[str, str], _TimedAlert] = {}
    for case in cases:
        begin = draw.randrange(SPREAD) if len(cases) > 1 else 0
        own = problems_of(case)
        for alert in case.datapack.incident.alerts:
            behind = tuple(len(problems) + n for n, one in enumerate(own) if alert.service in one.services) or None
            _add_alert(merged, _TimedAlert(begin + (alert.time_ns - _first_ns(case)) // TICK_NS, alert, behind))
        problems += own
    if len([one for one in merged.values() if one.owners]) < 2:
        raise UserError(f"{cases[0].name} has fewer than two alerts that its cascade explains; leave it out.")
    calls = calls_between([case.datapack for case in cases])
    concerned = {name for one in problems for name in one.services} | {service for service, _ in merged}
    while waiting := {caller for caller, callee in calls if callee in concerned} - concerned:
        concerned |= waiting  # their slowness would be real
    unaffected = sorted({name for case in cases for name in case.datapack.services()} - concerned)
    real = list(merged.values())
    every = [
        again for one in (*real, *_draw_noise(draw, real, unaffected, noise)) for again in _repeat_alert(draw, one)
    ]
    every.sort(key=lambda one: (one.tick, one.alert.service, one.alert.signal))
    shown = {f"a{n:02}": one for n, one in enumerate(every, 1)}
    name = hashlib.sha256("\0".join((*hashes, str(noise), str(seed))).encode()).hexdigest()[:8]
    return Storm(
        name=f"storm-{name}", seed=seed, system=cases[0].datapack.incident.system, calls=calls, incidents=hashes,
        alerts=tuple(_show_alert(id_, one, zero) for id_, one in shown.items()), problems=tuple(problems),
        owners={id_: one.owners for id_, one in shown.items() if one.owners is not None},
    )  # fmt: skip


def why_unfit(case: Case) -> str | None:
    """Return why no alert storm can be made of *case*, None when one can."""
    try:
        make_storm([case], 0, 0)
    except UserError as error:
        return str(error)
    return None


def _secret_of(cases: Sequence[Case]) -> str:
    """Return the text that seeds the random draws: the ground truth of *cases*, secrets included."""
    return "\0".join(case.truth.canonical_json() for case in cases if case.truth is not None)


def _first_ns(case: Case) -> int:
    """Return the time (ns of UTC) of the first alert of *case*; raises UserError without an alert."""
    times = [alert.time_ns for alert in case.datapack.incident.alerts]
    if not times:
        raise UserError(f"{case.name} has no alerts; leave it out.")
    return min(times)


def _add_alert(merged: dict[tuple[str, str], _TimedAlert], one: _TimedAlert) -> None:
    """Add *one* to *merged* (by service and signal); of two with one key the earlier stays, with both owners."""
    key = (one.alert.service, one.alert.signal)
    if (there := merged.get(key)) is None:
        merged[key] = one
        return
    owners = None if there.owners is None or one.owners is None else tuple(sorted({*there.owners, *one.owners}))
    merged[key] = _TimedAlert(*((one.tick, one.alert) if one.tick < there.tick else (there.tick, there.alert)), owners)


def _draw_noise(
    draw: random.Random, real: Sequence[_TimedAlert], services: Sequence[str], count: int
) -> list[_TimedAlert]:
    """Return up to *count* noise alerts by *draw*, each of another of *services*, else similar to one of *real*."""
    made: list[_TimedAlert] = []
    last = max(one.tick for one in real)
    for service in draw.sample(services, min(count, len(services))):
        like = draw.choice(real).alert
        limits = [one.alert.threshold for one in real if one.alert.signal == like.signal]
        limit = like.threshold if len(set(limits)) == 1 else draw.uniform(min(limits), max(limits))
        beyond = (like.value - like.threshold) / like.threshold * draw.uniform(0.3, 1.0) if like.threshold else 0.0
        value = limit * (1 + beyond) if like.threshold else like.value
        shown = {"service": service, "value": value, "threshold": limit}
        made.append(_TimedAlert(draw.randint(-MARGIN, last + MARGIN), like.model_copy(update=shown), ()))
    return made


def _repeat_alert(draw: random.Random, one: _TimedAlert) -> list[_TimedAlert]:
    """Return *one* and, in half of all cases, one or more repetitions at later times with varied values."""
    fired = [one]
    for _ in range(draw.randint(1, FIRES - 1) if draw.random() < 0.5 else 0):
        beyond = (one.alert.value - one.alert.threshold) * draw.uniform(0.7, 1.3)
        alert = one.alert.model_copy(update={"value": one.alert.threshold + beyond})
        fired.append(_TimedAlert(fired[-1].tick + draw.randint(2, 4), alert, one.owners))
    return fired


def _show_alert(id_: str, one: _TimedAlert, zero_ns: int) -> ShownAlert:
    """Return *one* as agents see it: id *id_*, UTC time (*zero_ns*: that of tick 0), values to three significant digits."""
    at = datetime.fromtimestamp((zero_ns + one.tick * TICK_NS) // 10**9, UTC)
    alert, value, limit = one.alert, float(f"{one.alert.value:.3g}"), float(f"{one.alert.threshold:.3g}")
    time = at.strftime("%Y-%m-%dT%H:%M:%SZ")
    return ShownAlert(id=id_, time=time, service=alert.service, signal=alert.signal, value=value, limit=limit)


def calls_between(packs: Sequence[Datapack]) -> tuple[tuple[str, str], ...]:
    """Return the sorted (caller, callee) service pairs in the normal windows of *packs*, without load generators."""
    found: set[tuple[str, str]] = set()
    for pack in packs:
        spans = pack.scan("normal", "traces").select("trace_id", "span_id", "parent_span_id", "service_name")
        callers = spans.select("trace_id", parent_span_id="span_id", caller="service_name")
        pairs = spans.join(callers, on=["trace_id", "parent_span_id"]).select("caller", "service_name").unique()
        rows = pack.collect(pairs.filter(pl.col("caller") != pl.col("service_name")), "traces").rows()
        found |= {(caller, callee) for caller, callee in rows if caller not in pack.load_generators()}
    return tuple(sorted(found))
