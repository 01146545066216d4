"""The data that the APIs serve: tables and alerts of a recording, or of a running system at present."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import polars as pl

from opsassay.core.schema.incident import Alert
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import empty


class AlertingRule(NamedTuple):
    """An alerting rule: seconds for which its condition must hold, its severity, and the kind of object it is about."""

    for_s: float = 0.0
    severity: str = ""
    about: str = ""


@dataclass(frozen=True)
class View:
    """Telemetry from *began_ns* until *now_ns* (UTC); *rows* returns the table of a modality, in the datapack's columns.

    *collect* evaluates such a frame, for the named modality; it raises DatapackError when a table is damaged. *alerts* fire
    now; *rules* are by the signals of alerts; *kind* is "recorded" or "live".
    """

    rows: Callable[[str], pl.LazyFrame]
    collect: Callable[[pl.LazyFrame, str], pl.DataFrame]
    began_ns: int
    now_ns: int
    alerts: Sequence[Alert]
    rules: Mapping[str, AlertingRule]
    kind: str


def recorded(pack: Datapack) -> View:
    """Return the view of the datapack *pack*: now is the recording's end, of its alert rules only names are known."""
    incident = pack.incident
    rules = {alert.signal: AlertingRule() for alert in incident.alerts}
    return View(
        pack.both, pack.collect, incident.normal.start_ns, incident.abnormal.end_ns, incident.alerts, rules, "recorded"
    )


def live(
    tables: Mapping[str, pl.DataFrame],
    began_ns: int,
    now_ns: int,
    alerts: Sequence[Alert],
    rules: Mapping[str, AlertingRule],
) -> View:
    """Return the view of a live system, *began_ns* to *now_ns* (UTC): *tables* by modality, *rules* by signal."""
    return View(
        lambda modality: tables[modality].lazy() if modality in tables else empty(modality).lazy(),
        lambda frame, _modality: frame.collect(),
        began_ns,
        now_ns,
        alerts,
        rules,
        "live",
    )
