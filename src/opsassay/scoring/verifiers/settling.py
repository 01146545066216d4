"""How long an agent answers for the system: until all that is judged has been steady for a hold time after its end."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from opsassay.core.schema.scenario import Settling, Verification
from opsassay.scoring.verifiers.evidence import RunEvidence, Series


class Responsibility(NamedTuple):
    """When the agent's responsibility ends, ns; and why the system had not settled by then, '' when it had.

    *decided* when no further reading can change that: it settled, or it changed too late to settle within the limit.
    """

    time_ns: int
    problem: str
    decided: bool = True


def settled(evidence: RunEvidence, committed: Verification) -> Responsibility:
    """Return until when the agent is responsible: until the system has settled after its end.

    From the later of its end and its last change on, all judged readings are compared: ready replicas, backends,
    components, protected services. The time ends when none of them has changed for the hold time.
    """
    if committed.settling is None:
        return Responsibility(evidence.agent_ended, "")
    hold, begins = int(committed.settling.hold_s * 1e9), evidence.final_from
    last = max((int(s.ended[-1]) for s in (evidence.judged[d] for d in ("D1", "D4")) if len(s)), default=begins)
    changes = sorted(one for one in _judged_changes(evidence, committed) if one[0] >= begins)
    since, what = begins, ""
    for time_ns, name in changes:
        if time_ns - since >= hold:
            break
        since, what = time_ns, name
    over = since + hold
    slack = int(max(committed.gap_s, 3 * evidence.cadence_s) * 1e9)  # the last reading is one cadence before the end
    if over > begins + int(committed.settling.limit_s * 1e9):
        return Responsibility(
            last, f"{what} still changed {(since - begins) / 1e9:.0f} s after the agent's end and last change"
        )
    if last + slack < over:
        return Responsibility(last, _explain_too_short(committed.settling, last - since, what), decided=False)
    return Responsibility(min(over, max(last, begins)), "")


def changed_since(evidence: RunEvidence, committed: Verification, time_ns: int) -> str:
    """Return the names of judged readings that differ from the one before, from *time_ns* on, joined by ", "."""
    return ", ".join(dict.fromkeys(name for at_ns, name in _judged_changes(evidence, committed) if at_ns >= time_ns))


def unsteady(evidence: RunEvidence, committed: Verification, hold_s: float) -> str:
    """Return the names of readings that changed in the last *hold_s* s of the record, joined by ", "; '' if none."""
    ends = [evidence.judged[depth].started for depth in ("D1", "D4")] + [evidence.probes.started]
    last = max((int(started[-1]) for started in ends if len(started)), default=0)
    return changed_since(evidence, committed, last - int(hold_s * 1e9))


def _explain_too_short(settling: Settling, steady_ns: int, change: str) -> str:
    """Return the sentence that the system was steady for *steady_ns* only, since *change* ("" if unknown)."""
    after = f" after {change} changed" if change else ""
    return f"steady for {max(steady_ns, 0) / 1e9:.0f} s of the {settling.hold_s:g} s hold{after} when the record ends"


def _judged_changes(evidence: RunEvidence, committed: Verification) -> list[tuple[int, str]]:
    """Return (time ns, name) of each judged reading that differs from the one before it."""
    depths = dict.fromkeys(("D1", committed.temporal_depth, committed.committed_depth))
    found = [
        (int(series.started[row]), depth)
        for depth in (*(d for d in depths if d not in ("D3", "D4")), *(("D4",) if evidence.control_plane else ()))
        for series in (evidence.judged[depth],)
        for row in _changed_rows(series)
    ]
    if "D3" in depths:
        probes = evidence.probes
        former: dict[str, bool] = {}
        for row, target in enumerate(probes.targets):
            answered = bool(probes.reachable[row])
            if former.setdefault(target, answered) != answered:
                found.append((int(probes.started[row]), f"{target} at D3"))
            former[target] = answered
    return found


def _changed_rows(series: Series) -> list[int]:
    """Return the rows whose reading differs from the one before it in value, failing names or being answered."""
    if len(series) < 2:
        return []
    values = series.values
    differs = ~((values[1:] == values[:-1]) | (np.isnan(values[1:]) & np.isnan(values[:-1])))
    differs |= (series.failing[1:] != series.failing[:-1]).any(axis=1)
    return [int(row) + 1 for row in np.flatnonzero(differs)]
