"""Background noise: harmless events in a system during an incident, unrelated to it.

A replica is restarted gracefully, a service is deployed again unchanged, load dips a little, and an unrelated alert fires
and resolves. Operators see them like everything else; nothing marks them as noise. All happen at bystanders: services that
the incident does not break, that are not on the failure's way to users, and that a right repair does not touch.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from opsassay.core.draws import derived_random
from opsassay.core.errors import OpsAssayError, RefusedError
from opsassay.core.schema.background import Background
from opsassay.core.schema.incident import Alert
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.system import System
from opsassay.core.schema.trajectory import EnvironmentAction, NoiseKind, NoiseStatus

GAP_S = (1.0, 4.0)
"""Range of the seconds between the end of one event and the next."""
ALERT_S, SWING_S = (4.0, 8.0), 5.0
SWING = (0.8, 0.92)
"""Range of the factor by which a dip multiplies the load."""
SCRAPE = "scrape_duration_s"
"""The signal of the noise alert; no scenario can commit a rule about it."""
SCRAPE_LIMIT_S, SCRAPE_S = 2.0, (2.05, 2.6)
LEAST_REPLICAS = 2
"""Fewest replicas of a service that is restarted; callers of a smaller one would notice."""
_NAME = re.compile(r"[\w-]+")

Operate = Callable[[str, Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class NoiseEvent:
    """One harmless event at *target*, *after_s* seconds after the end of the one before.

    *seconds* is its duration where the system does not decide it; *amount* is a share of the replicas in [0, 1), the
    factor of the load, or the value of the alert.
    """

    kind: NoiseKind
    target: str
    after_s: float
    amount: float
    seconds: float = 0.0


def bystanders(system: System, scenario: Scenario) -> list[str]:
    """Return the sorted services of *system* that *scenario* does not break, affect or use in its repair."""
    return sorted(set(system.services) - _list_involved(system, scenario))


def require_bystanders(system: System, scenario: Scenario) -> None:
    """Raise RefusedError unless *system* is a local one of our own runtime in which *scenario* leaves a bystander."""
    substrate = scenario.environment.substrate
    if substrate != "local":
        why = f"happens on {substrate}, and noise is made on this machine"
    elif system.compose is not None or system.programs():
        why = "runs programs or containers of a team's own, and what is harmless to them is not known"
    elif not bystanders(system, scenario):
        why = "leaves no service that its incident does not concern"
    else:
        return
    raise RefusedError(f"noise: {scenario.id} {why}; leave the scenario or `noise` out of the plan.")


def draw_noise(system: System, scenario: Scenario, seed: int) -> Iterator[NoiseEvent]:
    """Yield events without end, determined by *scenario* and *seed*: in each round every kind of event happens once.

    Only services whose callers notice nothing are restarted or deployed; the load does not dip where it is part of the
    incident. The alert, always the same one, fires twice a round.
    """
    draw = derived_random(f"{scenario.id} {seed}", "noise")
    unaffected = bystanders(system, scenario)
    services = {name: system.services[name] for name in unaffected}
    steady = [name for name, one in services.items() if one.replicas >= LEAST_REPLICAS and one.drain_s > 0]
    kinds: list[NoiseKind] = ["alert", "alert", *(("restart", "redeploy") if steady else ())]
    if all(call.verb != "load dip" for call in scenario.trigger.operations):
        kinds.append("load")
    flapping = draw.choice(unaffected)
    while True:
        for kind in draw.sample(kinds, len(kinds)):
            yield _draw_event(draw, kind, steady, flapping)


def _draw_event(draw: random.Random, kind: NoiseKind, steady: Sequence[str], flapping: str) -> NoiseEvent:
    """Draw one event of *kind*: at a random service of *steady* or, for an alert, at the service *flapping*."""
    after_s = draw.uniform(*GAP_S)
    if kind == "alert":
        return NoiseEvent(kind, flapping, after_s, draw.uniform(*SCRAPE_S), draw.uniform(*ALERT_S))
    if kind == "load":
        return NoiseEvent(kind, "users", after_s, draw.uniform(*SWING), SWING_S)
    return NoiseEvent(kind, draw.choice(steady), after_s, draw.random())


def _list_involved(system: System, scenario: Scenario) -> frozenset[str]:
    """Return what the incident concerns: what breaks, its callers, protected services, targets of certified repairs.

    If a host is among them, so are the services that may run on it.
    """
    given = [call.arguments for call in scenario.trigger.operations]
    given += [step.arguments for oracle in scenario.oracles.values() if oracle.certified for step in oracle.steps]
    words = {word for one in given for value in one.values() for word in _NAME.findall(str(value))}
    ends = {end for one in scenario.truth.propagation for end in (one.source, one.target)}
    protected = scenario.verification.protected_services or system.entries()
    reached = {*words, *ends, *protected, *scenario.named_entities()}
    if hosts := reached & set(system.hosts):
        reached |= {name for name, one in system.services.items() if one.host is None or one.host in hosts}
    uses = (*system.calls(), *system.uses())
    while more := {user for user, used in uses if used in reached} - reached:
        reached |= more
    return frozenset(reached)


class Noise(Background):
    """Carries out the *events* in turn by *operate* while the block runs, and passes each to *record*.

    A restart or dip in progress is completed before the block ends. A service with a replica that is not ready, or with a
    setting that waits for a restart, is left alone.
    """

    def __init__(
        self, events: Iterator[NoiseEvent], operate: Operate, record: Callable[[EnvironmentAction], None]
    ) -> None:
        super().__init__("noise")
        self._events, self._operate, self._record = events, operate, record
        self.alerts: tuple[Alert, ...] = ()
        """The noise alert while it fires, else ()."""

    def work(self) -> None:
        """Carry out one event after the other until the block ends."""
        for event in self._events:
            if not self.pause(event.after_s):
                return
            made = (
                self._restart_replicas(event) if event.kind in ("restart", "redeploy")
                else [self._carry_out(event, self._fire_alert if event.kind == "alert" else self._dip_load)]
            )  # fmt: skip
            for one in made:
                self._record(one)
                if self.ended:
                    return

    def _carry_out(
        self, event: NoiseEvent, act: Callable[[NoiseEvent], object], touched: tuple[str, ...] = ()
    ) -> EnvironmentAction:
        """Call *act* with *event*; return the record, done or failed, that names the replicas *touched*."""
        began_ns = time.time_ns()
        try:
            act(event)
        except OpsAssayError:  # the system has ended, which the trial finds out
            return _record_of(event, "failed", began_ns, touched)
        return _record_of(event, "done", began_ns, touched)

    def _fire_alert(self, event: NoiseEvent) -> None:
        """Let the alert of *event* fire for its seconds, or until the block ends."""
        words = f"{event.target}: a scrape of its metrics takes {event.amount:.2f} s"
        self.alerts = (
            Alert(
                time_ns=time.time_ns(), service=event.target, signal=SCRAPE, value=event.amount,
                threshold=SCRAPE_LIMIT_S, message=words, severity="warning",
            ),
        )  # fmt: skip
        self.pause(event.seconds)
        self.alerts = ()

    def _dip_load(self, event: NoiseEvent) -> None:
        """Multiply the rate of the load by the amount of *event* for its seconds, and wait until it is restored."""
        self._operate("load dip", {"factor": event.amount, "seconds": event.seconds})
        time.sleep(event.seconds + 0.5)

    def _restart_replicas(self, event: NoiseEvent) -> Iterator[EnvironmentAction]:
        """Restart one replica of the event's service, or each in turn, while all are ready; yield a record of each."""
        try:
            count = len(self._operate("describe", {"target": event.target})["replicas"])
            for index in [int(event.amount * count)] if event.kind == "restart" else range(count):
                seen, name = self._operate("describe", {"target": event.target}), f"{event.target}-{index}"
                if not _is_whole(seen, name):
                    yield _record_of(event, "left_alone", time.time_ns())
                    return
                yield self._carry_out(event, partial(self._restart, index=index), (name,))
        except OpsAssayError:
            yield _record_of(event, "failed", time.time_ns())

    def _restart(self, event: NoiseEvent, index: int) -> None:
        """Restart the replica number *index* of the service of *event*."""
        self._operate("restart", {"target": event.target, "replica": index})


def _is_whole(described: Mapping[str, Any], replica: str) -> bool:
    """Return whether the service *described* has *replica*, LEAST_REPLICAS, all ready, and no restart pending."""
    states = {one["replica"]: one["state"] for one in described["replicas"]}
    enough = len(states) >= LEAST_REPLICAS and set(states.values()) == {"ready"}
    return enough and replica in states and not described["pending_restart"]


def _record_of(
    event: NoiseEvent, status: NoiseStatus, began_ns: int, touched: tuple[str, ...] = ()
) -> EnvironmentAction:
    """Return the record of *event*: *status*, *began_ns* until now (UTC), and ids of the replicas *touched*."""
    return EnvironmentAction(
        kind=event.kind, target=event.target, amount=event.amount, started_ns=began_ns, ended_ns=time.time_ns(),
        status=status, touched=touched,
    )  # fmt: skip
