"""Evaluates the alert rules over live telemetry during a trial, and records every evaluation."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from opsassay.core.errors import LostError, OpsAssayError
from opsassay.core.schema.background import Background
from opsassay.core.schema.incident import Alert
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.run_folder import ALERTS
from opsassay.core.schema.scenario import AlertRule
from opsassay.core.schema.trajectory import AlertReading
from opsassay.core.text import first_line
from opsassay.testbed.operations.live import ARRIVAL_S, TICK_S
from opsassay.testbed.operations.state_alerts import AlertSource

Rule = tuple[str, str]


class AlertWatch(Background):
    """A thread that evaluates *alerts* every two seconds while the block runs and appends readings in *run_dir*.

    It ends, with `failure` set, when no evaluation has succeeded for *patience_s*.
    """

    def __init__(self, alerts: AlertSource, run_dir: Path, *, patience_s: float = 0.0) -> None:
        super().__init__("alerts")
        self._alerts, self._path, self._patience_s = alerts, run_dir / ALERTS, patience_s
        self._began = time.monotonic()
        self.quiet_since: Mapping[Rule, float] = {}
        """Alert (service, signal) that ever fired to the monotonic time of its last end; infinity while it fires.

        Every evaluation replaces the mapping, so that other threads read one complete evaluation.
        """
        self._last_fired_ns: Mapping[Rule, int] = {}
        self.firing: tuple[Alert, ...] = ()
        """The alerts of the latest evaluation, each with the time at which it began to fire."""
        self.late_s = ARRIVAL_S
        """Seconds from the time that the latest evaluation describes to the evaluation itself."""
        self.failure: OpsAssayError | None = None
        """The error at which the watch ended early, None otherwise."""
        self.unread: OpsAssayError | None = None
        """The error of the latest evaluation, None when it succeeded."""

    def silent(self, rules: Iterable[AlertRule], since_ns: int = 0) -> list[str]:
        """Return which *rules* have not fired since *since_ns* (UTC), as "SERVICE SIGNAL".

        Without rules, return ["any alert"] if nothing has fired, else [].
        """
        seen = [rule for rule, last_ns in self._last_fired_ns.items() if last_ns >= since_ns]
        desired = [(rule.service, rule.signal) for rule in rules]
        if not desired:
            return [] if seen else ["any alert"]
        return [" ".join(rule).strip() for rule in desired if not any(_matches_rule(rule, one) for one in seen)]

    def quiet_s(self, rules: Iterable[AlertRule]) -> float:
        """Return for how many seconds none of *rules* (without rules: no alert) has fired; 0 while one fires.

        If none has ever fired, the seconds since the watch began.
        """
        since = self.quiet_since
        desired = [(rule.service, rule.signal) for rule in rules]
        found = (since[one] for one in since if not desired or any(_matches_rule(rule, one) for rule in desired))
        latest = max(found, default=self._began)
        return max(0.0, time.monotonic() - latest)

    def work(self) -> None:
        """Evaluate the rules every two seconds; end early, with `failure` set, when that fails for too long."""
        due = last = time.monotonic()
        while not self.ended:
            try:
                at_ns, found = self._alerts.firing()
                append_line(self._path, AlertReading(time_ns=at_ns, firing=tuple(found)))
                self._note_alerts(at_ns, found)
                last, self.unread = time.monotonic(), None
                self.late_s = time.time() - at_ns / 1e9
            except OpsAssayError as error:  # the system is gone: whoever runs the trial finds out as well
                self.unread = error
                if time.monotonic() - last >= self._patience_s:
                    self.failure = error
                    return
            except Exception as error:  # noqa: BLE001 - a watch that ends unheard would be held against the agent
                self.failure = LostError(f"The alert rules could not be evaluated: {first_line(error)}.")
                return
            due = max(due + TICK_S, time.monotonic())
            self.pause(due - time.monotonic())

    def _note_alerts(self, at_ns: int, alerts: Sequence[Alert]) -> None:
        """Record for *alerts*, which fire at *at_ns*, when each began, and since when each other rule is quiet."""
        firing = {(alert.service, alert.signal) for alert in alerts}
        now, former = time.monotonic(), self.quiet_since
        quiet = {rule: (now if since == math.inf else since) for rule, since in former.items() if rule not in firing}
        self.quiet_since = {**quiet, **dict.fromkeys(firing, math.inf)}
        self._last_fired_ns = {**self._last_fired_ns, **dict.fromkeys(firing, at_ns)}
        since = {(alert.service, alert.signal): alert.time_ns for alert in self.firing}
        self.firing = tuple(
            alert.model_copy(update={"time_ns": since.get((alert.service, alert.signal), alert.time_ns)})
            for alert in alerts
        )


def _matches_rule(rule: Rule, alert: Rule) -> bool:
    """Return whether (service, signal) of *alert* match *rule*, whose service "" matches all services."""
    return rule[1] == alert[1] and rule[0] in ("", alert[0])
