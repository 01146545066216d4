"""Evaluates the alert rules over live telemetry as long as a trial lasts, and writes down every evaluation."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from assay.bench.trials.contract import ALERTS, append_line
from assay.errors import AssayError
from assay.model.incident import Alert
from assay.model.scenario import AlertRule
from assay.model.trajectory import AlertReading
from assay.testbed.ops.live import TICK_S, LiveAlerts

Rule = tuple[str, str]


class AlertWatch:
    """A thread that evaluates *alerts* every two seconds while the block runs and appends readings in *run_dir*."""

    def __init__(self, alerts: LiveAlerts, run_dir: Path) -> None:
        self._alerts, self._path = alerts, run_dir / ALERTS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="alerts", daemon=True)
        self.seen: set[Rule] = set()
        """What has fired at any time."""
        self.quiet_since: dict[Rule, float] = {}
        """Since when each of them is quiet, monotonic; one that fires is not in it."""
        self.failure: AssayError | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def have_fired(self, rules: Iterable[AlertRule]) -> bool:
        """Return whether each of *rules* has fired."""
        return all((rule.service, rule.signal) in self.seen for rule in rules)

    def quiet_s(self, rules: Iterable[AlertRule]) -> float:
        """Return for how long *rules*, or all that have fired, have been quiet: 0 while one of them fires."""
        wanted = {(rule.service, rule.signal) for rule in rules} or self.seen
        if any(rule not in self.quiet_since for rule in wanted & self.seen):
            return 0.0
        return time.monotonic() - max((self.quiet_since[rule] for rule in wanted & self.seen), default=0.0)

    def _watch(self) -> None:
        due = time.monotonic()
        while not self._ended.is_set():
            try:
                at_ns, found = self._alerts.firing()
            except AssayError as error:  # the system is gone: whoever runs the trial finds out as well
                self.failure = error
                return
            self._note(found)
            append_line(self._path, AlertReading(time_ns=at_ns, firing=tuple(found)))
            due = max(due + TICK_S, time.monotonic())
            self._ended.wait(due - time.monotonic())

    def _note(self, found: Iterable[Alert]) -> None:
        firing = {(alert.service, alert.signal) for alert in found}
        self.seen |= firing
        for rule in firing:
            self.quiet_since.pop(rule, None)
        for rule in self.seen - firing:
            self.quiet_since.setdefault(rule, time.monotonic())
