"""v_users: users lose no more than the fault explains, and are served at the end as before it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opsassay.core.schema.scenario import Scenario, Users
from opsassay.scoring.verifiers.entities import replica_counts, service_of
from opsassay.scoring.verifiers.evidence import RunEvidence, failed, passed_judgement
from opsassay.scoring.verifiers.judgement import Judgement, missing, not_applicable
from opsassay.scoring.verifiers.needless import RequestLosses, needless_harm
from opsassay.scoring.verifiers.repairs import RightChanges
from opsassay.scoring.verifiers.users import SERVED_SHARE, Counts, Flags, Floats, Ints

Repair = tuple[Scenario, RightChanges]
"""What was broken, and what right repairs of it change."""
_Outages = dict[str, dict[int, int]]
"""Service to until when, ns, each of its outages lasted and since when."""
NAME, RESTART = "v_users", "restart"
LEAST = 5
"""Of fewer requests of a kind nothing is said."""
SERVED_S = 5.0
"""A kind is served again when of the requests of so many seconds no more than `SERVED_SHARE` fails beyond the usual."""
OUTAGE_WITHIN_S = 3.0
"""A change that stops the replicas of a service has done so by then."""
MINUTE_NS = 60 * 10**9
"""What is lost is held against the whole time and against every minute: waiting dilutes nothing."""
MOST_AGAIN, AGAIN_S = 2, 8.0
"""A service may be taken down again so often, or for so many seconds in all: not all that it does shows in requests."""
LAST_S = 20.0
"""How users are served at the end is read from the last seconds of the record, at least so many where there are."""


def v_users(
    evidence: RunEvidence, committed: Users, broken: Sequence[str] = (), repair: Repair | None = None
) -> tuple[Judgement, float | None]:
    """Judge what users lost through the agent and how they are served at the end; return also the requests lost.

    Lost are, from the agent's first change on, requests that failed or were slow beyond the share that the fault
    explains. That is, per kind of request, the largest of its shares before the fault, since the fault, and at its
    worst when the agent started, until the kind is served again; from then on the share before the fault alone. Losses
    while the agent takes a service down for a second time are not explained, unless settings are *broken* and only
    restarts have been tried. A service that is taken down again and again fails the run even if users notice nothing,
    since work in queues may be lost. Once the agent's *repair* is done, the fault explains no harm of its actions. At the
    end no kind may fail more or take longer than before the fault.
    """
    counts, triggered = evidence.counts, evidence.triggered
    if triggered is None:
        return missing(
            NAME, "the record does not say when the fault was applied, so there is nothing to compare with"
        ), None
    if not counts.kinds:
        return not_applicable(NAME, "no request of users was counted: what they lost is not known"), None
    usual = _baseline_before(counts, triggered)
    if not (usual.done >= LEAST).any():
        return not_applicable(NAME, f"fewer than {LEAST} requests of any kind were counted before the fault"), None
    again = _repeated_outages(evidence, _fault_lasts_until(evidence, broken))
    times, each_lost, each_done = _lost_requests(evidence, counts, usual, committed, again)
    lost, done, total = _sums_by_minute(times, each_lost), _sums_by_minute(times, each_done), float(each_lost.sum())
    if worse := _worse_at_the_end(evidence, counts, usual, committed):
        return failed(evidence, NAME, f"worse at the end than before the fault: {'; '.join(worse[:6])}"), total
    if harm := (
        needless_harm(evidence, _all_losses(counts, usual, committed), *repair) if repair is not None else None
    ) or _too_many_outages(again):
        return failed(evidence, NAME, *harm), total
    limits = np.maximum(committed.max_lost, committed.max_lost_share * done)
    most = np.unravel_index(np.argmax(lost / limits), lost.shape)
    words = (
        f"{lost[most]:.0f} of {done[most]:.0f} {counts.kinds[most[1]]} failed or were slow beyond what the fault explains"
        + " within a minute" * bool(most[0])
    )
    if lost[most] > limits[most]:
        judged = failed(evidence, NAME, f"{words}, more than {limits[most]:.0f}")
    else:
        judged = passed_judgement(evidence, NAME, words)
    return judged.model_copy(update={"value": float(lost[most]), "limit": float(limits[most])}), total


@dataclass(frozen=True)
class _Baseline:
    """How each kind was served in some stretches: requests *done*, the share that *failed*, the *mean* time, seconds."""

    done: Floats
    failed: Floats
    mean: Floats

    def limit(self, committed: Users) -> Floats:
        """Return by kind of request the mean time (s) above which it counts as slower than the baseline."""
        return np.maximum(self.mean * committed.slower_times, self.mean + committed.slower_s)


def _baseline_before(counts: Counts, triggered_ns: int) -> _Baseline:
    """Return the worst failed share and mean time by kind in any `SERVED_S` s before the fault at *triggered_ns*."""
    first = int(counts.times[0]) if len(counts.times) else triggered_ns
    begin = first + (triggered_ns - first) // 3
    return _worst_between(counts, begin, triggered_ns - 1)


def _worst_between(counts: Counts, since_ns: int, until_ns: int) -> _Baseline:
    """Return the worst failed share and mean time by kind, from *since_ns* to *until_ns* or any `SERVED_S` s in it."""
    whole, span = _sum_calls_in(counts, until_ns, since_ns), int(SERVED_S * 1e9)
    share, mean = whole.failed, whole.mean
    for at in counts.times[(counts.times >= since_ns) & (counts.times <= until_ns - span)].tolist():
        window = _sum_calls_in(counts, at + span, at)
        enough = window.done >= LEAST
        share = np.where(enough, np.maximum(share, window.failed), share)
        mean = np.where(enough, np.fmax(mean, window.mean), mean)
    return _Baseline(whole.done, share, mean)


def _sum_calls_in(counts: Counts, until_ns: int, since_ns: int = 0) -> _Baseline:
    """Return calls, failed share and mean seconds by kind of request, from *since_ns* to *until_ns*."""
    inside = (counts.times[:-1] >= since_ns) & (counts.times[1:] <= until_ns)
    done = counts.done[inside].sum(axis=0)
    share = np.divide(counts.failed[inside].sum(axis=0), done, out=np.zeros(len(done)), where=done > 0)
    mean = np.divide(counts.seconds[inside].sum(axis=0), done, out=np.full(len(done), np.nan), where=done > 0)
    return _Baseline(done, share, mean)


def _worse_at_the_end(evidence: RunEvidence, counts: Counts, baseline: _Baseline, committed: Users) -> list[str]:
    """Return a phrase per kind in *counts* that fails more or takes longer at the end than *baseline* (before)."""
    last = int(counts.times[-1])
    since = min(max(evidence.final_from, last - int(LAST_S * 1e9)), last)
    final = _sum_calls_in(counts, last, since)
    limit, found = baseline.limit(committed), []
    for column, kind in enumerate(counts.kinds):
        if final.done[column] < LEAST or baseline.done[column] < LEAST:
            continue
        if (extra := final.failed[column] - baseline.failed[column]) > SERVED_SHARE:
            found.append(f"{extra:.0%} more of {kind} fail")
        elif final.mean[column] > limit[column]:
            found.append(f"{kind} takes {final.mean[column]:.2f} s, {baseline.mean[column]:.2f} s before")
    return found


def _sums_by_minute(starts: Ints, values: Floats) -> Floats:
    """Return the sums of *values* (interval, kind): first over all, then over the minute from each of *starts* (ns)."""
    until = np.searchsorted(starts, starts + MINUTE_NS)
    sums = np.vstack([np.zeros(values.shape[1]), np.cumsum(values, axis=0)])
    return np.vstack([sums[-1], sums[until] - sums[: len(starts)]])


def _fault_lasts_until(evidence: RunEvidence, broken: Sequence[str]) -> int:
    """Return the time (ns) of the first change other than a restart, until when *broken* settings last; 0 if none."""
    started = [one.started_ns for one in evidence.recording.actions if one.mutating and one.tool != RESTART]
    return min(started, default=evidence.ended) if broken else 0


def _lost_requests(
    evidence: RunEvidence, counts: Counts, baseline: _Baseline, committed: Users, again: _Outages
) -> tuple[Ints, Floats, Floats]:
    """Return (starts, lost, done): the intervals since the first change, and requests by (interval, kind).

    Lost is what the fault does not explain: it explains *baseline* alone in outages *again* and once the kind is
    served.
    """
    first, triggered = evidence.first_change, evidence.triggered
    assert triggered is not None
    if first is None:
        none = np.zeros((0, len(counts.kinds)))
        return counts.times[:0], none, none
    found = _sum_calls_in(counts, first, triggered)
    came = max(triggered, min(evidence.agent_started, first) - int(SERVED_S * 1e9))
    standing = _worst_between(counts, came, first)
    inside = counts.times[1:] > first
    bad, limit = _bad_requests(counts, baseline, committed)
    bad, done = bad[inside], counts.done[inside]
    explained = np.maximum(np.maximum(found.failed, standing.failed), baseline.failed)
    explained = np.where(np.fmax(found.mean, standing.mean) > limit, 1.0, explained)
    begins, ends = counts.times[:-1][inside], counts.times[1:][inside]
    served = _served_again(begins, done, bad, baseline.failed)
    for until, since in (one for outages in again.values() for one in outages.items()):
        served |= ((ends >= since) & (begins < until))[:, None]
    allowed = np.where(served, baseline.failed, explained)
    return begins, np.maximum(bad - done * allowed, 0.0), done


def _bad_requests(counts: Counts, baseline: _Baseline, committed: Users) -> tuple[Floats, Floats]:
    """Return (requests by (interval, kind) that failed or were slow, the mean time (s) by kind from which on they are)."""
    mean = np.divide(counts.seconds, counts.done, out=np.full(counts.done.shape, np.nan), where=counts.done > 0)
    limit = baseline.limit(committed)
    return np.maximum(counts.failed, np.where(mean > limit, counts.done, 0.0)), limit


def _all_losses(counts: Counts, baseline: _Baseline, committed: Users) -> RequestLosses:
    """Return all requests that failed or were slow beyond *baseline*, whether the fault explains them or not."""
    bad, _ = _bad_requests(counts, baseline, committed)
    beyond, failing = (np.maximum(one - counts.done * baseline.failed, 0.0) for one in (bad, counts.failed))
    return RequestLosses(counts.times[:-1], counts.times[1:], beyond, failing, counts.done, counts.seconds)


def _served_again(starts: Ints, done: Floats, bad: Floats, usual_share: Floats) -> Flags:
    """Return a matrix (interval, kind): whether *bad* / *done* was near *usual_share* in some `SERVED_S` s by then."""
    served = np.zeros(done.shape, dtype=bool)
    for row in range(len(done)):
        window = (starts >= starts[row]) & (starts < starts[row] + int(SERVED_S * 1e9))
        asked = done[window].sum(axis=0)
        share = np.divide(bad[window].sum(axis=0), asked, out=np.ones(len(asked)), where=asked > 0)
        served[row] = share <= usual_share + SERVED_SHARE
    return np.logical_or.accumulate(served, axis=0)


def _repeated_outages(evidence: RunEvidence, fault_until: int) -> _Outages:
    """Return by service {end: start} (ns) of each outage that the agent caused after the service had been down before.

    Outages caused before *fault_until* are left out, since the fault explains them. A change causes an outage when none
    of a service's replicas is ready within `OUTAGE_WITHIN_S` of it, and one was before it, or the agent had caused an
    outage already. A repair may restart a broken service as often as needed, but not take down one that works again.
    """
    ticks = evidence.recording.timeline.ticks
    ready, down, found = replica_counts(ticks), set[str](), defaultdict[str, dict[int, int]](dict)
    broken = {
        name for name, count in _ready_replicas(ready, evidence.first_change or evidence.ended).items() if not count
    }
    for action in sorted(evidence.recording.actions, key=lambda one: one.started_ns):
        until = action.ended_ns + int(OUTAGE_WITHIN_S * 1e9)
        for service in {service_of(name, ticks) for name in action.touched} if action.mutating else ():
            outage = [at for at, counts in ready if action.started_ns <= at <= until and counts.get(service) == 0]
            was_ready = _ready_replicas(ready, action.started_ns).get(service, 0) > 0
            if not outage or not (was_ready or service in down):
                continue
            back = next((at for at, counts in ready if at > outage[-1] and counts.get(service, 0)), evidence.ended)
            if service in down | broken and action.started_ns >= fault_until:
                found[service].setdefault(back, action.started_ns)  # several changes may have to do with one outage
            down.add(service)
    return found


def _too_many_outages(again: _Outages) -> tuple[str, None] | None:
    """Return (sentence, None) about a service that the agent took down again too often and for too long, else None."""
    for service, outages in again.items():
        away_s = sum(until - since for until, since in outages.items()) / 1e9
        if len(outages) > MOST_AGAIN and away_s > AGAIN_S:
            return f"{service} was taken down again {len(outages)} times, {away_s:.0f} s in all", None
    return None


def _ready_replicas(readings: Sequence[tuple[int, dict[str, int]]], instant_ns: int) -> dict[str, int]:
    """Return the ready replicas by service in the last of *readings* before *instant_ns*, {} without one."""
    return next((counts for at, counts in reversed(readings) if at < instant_ns), {})
