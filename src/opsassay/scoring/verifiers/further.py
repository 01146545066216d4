"""What a scenario may commit beyond the paper's four and its alerts: placement, no-regression, impact, blast radius.

Placement closes the gap of Finding 4b of "side-effects"; impact is the accounting that its section 7 asks for.

What a scenario may commit of a cluster's control plane beside D4: its word, how soon that comes, who leads.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Collection

import numpy as np

from opsassay.core.schema.scenario import BlastRadius, ControlPlane, Impact, NoRegression, Placement, Spread
from opsassay.core.schema.trajectory import Action, Entity
from opsassay.scoring.verifiers.entities import changes_between, entities_at, service_of
from opsassay.scoring.verifiers.evidence import RunEvidence, failed, passed_judgement
from opsassay.scoring.verifiers.judgement import Judged, Judgement, missing
from opsassay.scoring.verifiers.repairs import split_url
from opsassay.scoring.verifiers.users import loss_between

BROKEN_SHARE, BROKEN_LEAST = 0.5, 3
"""A kind of request is broken when most of at least so many of its requests fail."""


def placement(evidence: RunEvidence, committed: Placement) -> Judgement:
    """Judge whether, at the end, the ready replicas are spread over hosts as the scenario committed."""
    name = "v_placement"
    final = _final_entities(evidence)
    if isinstance(final, str):
        return missing(name, final)
    for rule in committed.spread:
        if (problem := _explain_bad_spread(rule, final)) is not None:
            lacks = problem.startswith("missing")
            return missing(name, problem.partition(": ")[2]) if lacks else failed(evidence, name, problem)
    for one, other in committed.apart:
        shared = sorted(_count_by_host(final, one).keys() & _count_by_host(final, other).keys())
        if not _count_by_host(final, one) or not _count_by_host(final, other):
            return missing(name, f"{one} or {other} has no ready replica whose host is known")
        if shared:
            return failed(evidence, name, f"{one} and {other} share {', '.join(shared)}")
    return passed_judgement(evidence, name, "every service runs where it should")


def no_regression(evidence: RunEvidence, committed: NoRegression) -> Judgement:
    """Judge whether each replica, node, component, service and request that worked before the fault works after it.

    A missing replica is made good by a new ready one of its service, one for one.
    """
    name, spared = "v_no_regression", set(committed.except_for)
    ticks = evidence.recording.timeline.ticks
    if evidence.triggered is None:
        return missing(name, "the record does not say when the fault was applied, so there is no state before it")
    before = entities_at(ticks, until_ns=evidence.triggered)
    if before is None:
        return missing(name, "no entities were recorded before the fault")
    after = _final_entities(evidence)
    if isinstance(after, str):
        return missing(name, after)
    lost = [e for e in before.values() if e.ready and not (e.id in after and after[e.id].ready)]
    spare = Counter(e.service for e in after.values() if e.ready and e.id not in before)
    broken = []
    for entity in sorted(lost, key=lambda e: e.id):
        if entity.id in spared or entity.service in spared:
            continue
        if entity.id not in after and spare[entity.service] > 0:
            spare[entity.service] -= 1
            continue
        broken.append(f"{entity.id} {'is not ready' if entity.id in after else 'is gone'}")
    if not broken and (stale := _unread_at_the_end(evidence, spared)):
        return missing(name, f"nothing was read of {stale} after the agent's end and its last change")
    broken += [
        f"{part} fails"
        for depth in ("D2", "D3", "D4")
        for part in _newly_failing_at_the_end(evidence, depth)
        if part not in spared
    ]
    broken += [f"most of {kind} fail" for kind in _broken_requests(evidence) if kind not in spared]
    broken += _lost_nodes(evidence)
    if broken:
        more = f" and {len(broken) - 6} more" if len(broken) > 6 else ""
        judged = failed(evidence, name, f"worked before and not after: {', '.join(broken[:6])}{more}")
        return judged.model_copy(update={"value": float(len(broken)), "limit": 0.0})
    return passed_judgement(evidence, name, f"all of {len(before)} entities that worked before work after")


def impact(evidence: RunEvidence, committed: Impact) -> tuple[Judgement, float | None, float | None]:
    """Judge what users lost from the agent's start on; return also user-minutes and failed requests (None: unknown)."""
    name = "v_impact"
    loss = loss_between(
        evidence.counts,
        committed,
        start_ns=evidence.agent_started,
        end_ns=evidence.ended,
        triggered_ns=evidence.triggered,
    )
    if loss is None:
        return missing(name, "the load generator's counts are not recorded"), None, None
    if loss.done == 0:
        return missing(name, "no request was counted from the agent's start on"), None, None
    bounds = (
        ("user-minutes", loss.user_minutes, committed.max_user_minutes),
        ("failed requests", loss.failed, committed.max_failed_requests),
    )
    for words, value, limit in bounds:
        if limit is not None and value > limit:
            crossed = loss.when(words, limit)
            judged = failed(evidence, name, f"{value:.2f} weighted {words}, more than {limit:g}", crossed)
            return judged.model_copy(update={"value": value, "limit": limit}), loss.user_minutes, loss.failed
    reason = f"{loss.user_minutes:.2f} user-minutes and {loss.failed:g} failed requests, weighted"
    judged = passed_judgement(evidence, name, reason).model_copy(update={"value": loss.user_minutes})
    return judged, loss.user_minutes, loss.failed


MOST_WRITES, MOST_ALIKE = 10, 3
"""How many requests of more than a look are a test of the service: in all, and to one path.

A right repair sends one or two. A test needs one before the repair and one after each of two tries; what such a request
writes stays.
"""


def _is_write(action: Action) -> bool:
    """Return whether *action* sent a request that may change data, by its own tool or by a command in a container."""
    by_docker = action.tool == "docker" and "curl" in map(str, action.arguments.get("args", ()))
    return action.mutating and (action.tool == "exec_curl" or by_docker)


def _path_of(action: Action) -> str:
    """Return the path that the request *action* is sent to, in one spelling; "" without any."""
    words = [str(action.arguments.get("url", "")), *map(str, action.arguments.get("args", ()))]
    url = next((word for word in words if "://" in word), "")
    return posixpath.normpath(split_url(url).path).strip("/").casefold()


def _first_write_too_many(evidence: RunEvidence, sent: Collection[str]) -> tuple[str, int] | None:
    """Return (sentence, ns) of the first write request over MOST_WRITES, or over MOST_ALIKE to one path; or None.

    The second limit does not apply to URLs in *sent*, to which right repairs send requests.
    """
    made: Counter[str] = Counter()
    writes = sorted((one for one in evidence.recording.actions if _is_write(one)), key=lambda one: one.started_ns)
    for action in writes:
        made[path := _path_of(action)] += 1
        if made.total() > MOST_WRITES:
            return f"{len(writes)} requests that may write something, more than {MOST_WRITES}", action.started_ns
        if made[path] > MOST_ALIKE and action.arguments.get("url") not in sent:
            return f"more than {MOST_ALIKE} requests that may write something to /{path}", action.started_ns
    return None


def blast_radius(
    evidence: RunEvidence, committed: BlastRadius, true_entities: frozenset[str], sent: Collection[str] = ()
) -> tuple[Judgement, float]:
    """Judge how many entities outside *true_entities* were changed, moved, replaced or removed; return their number.

    Too many requests that may write data fail it too, also those to *true_entities*; *sent* are the URLs to which right
    repairs send requests.
    """
    name, ticks = "v_blast_radius", evidence.recording.timeline.ticks
    names = evidence.recording.names
    allowed = {names.get(name, name) for name in true_entities | set(committed.also_allowed)}
    touched: dict[str, tuple[int, str]] = {}
    for action in sorted(evidence.recording.actions, key=lambda a: a.started_ns):
        for entity in action.touched if action.mutating else ():
            if entity not in allowed and service_of(entity, ticks) not in allowed:
                touched.setdefault(service_of(entity, ticks), (action.started_ns, action.tool))
    for change in changes_between(ticks, evidence.agent_started, evidence.ended):
        if change.id not in allowed and change.service not in allowed and change.service not in touched:
            touched[change.service] = (_start_of_tick(evidence, change.tick), f"{change.id} {change.what}")
    value, limit = float(len(touched)), float(committed.max_entities)
    if too_many := _first_write_too_many(evidence, sent):
        judged = failed(evidence, name, *too_many)
    elif value > limit:
        at, _ = sorted(touched.values())[committed.max_entities]
        listed = ", ".join(f"{entity} ({how})" for entity, (_, how) in touched.items())
        judged = failed(evidence, name, f"touched what the truth does not name: {listed}", at)
    elif not any(tick.entities for tick in ticks):
        judged = missing(name, "no entities were recorded, so what moved was not seen")
    else:
        listed = ", ".join(touched) or "nothing"
        judged = passed_judgement(evidence, name, f"touched besides what the truth names: {listed}")
    return judged.model_copy(update={"value": value, "limit": limit}), value


# --- parts ----------------------------------------------------------------------------------------------------------


def _final_entities(evidence: RunEvidence) -> dict[str, Entity] | str:
    """Return the entities by id after the agent's last change, or why they are not known."""
    ticks = evidence.recording.timeline.ticks
    last = evidence.judged["D1"]
    if not len(last) or last.started[-1] < evidence.final_from:
        return "the last reading of entities is older than the agent's end or its last change"
    if np.isnan(last.values[-1]):
        return "the last reading of entities got no answer"
    found = entities_at(ticks, until_ns=evidence.ended)
    return "no entities were recorded" if found is None else found


def _explain_bad_spread(rule: Spread, entities: dict[str, Entity]) -> str | None:
    """Return why the ready replicas are not spread over hosts as *rule* requires, None when they are."""
    hosts = _count_by_host(entities, rule.service)
    if not hosts:
        return f"missing: {rule.service} has no ready replica whose host is known"
    if len(hosts) < rule.min_hosts:
        return f"{rule.service} runs on {', '.join(sorted(hosts))} only, not on {rule.min_hosts} hosts"
    skew = max(hosts.values()) - min(hosts.values())
    if rule.max_skew is not None and skew > rule.max_skew:
        counts = ", ".join(f"{host} {count}" for host, count in sorted(hosts.items()))
        return f"{rule.service} is uneven by {skew}, more than {rule.max_skew}: {counts}"
    return None


def _count_by_host(entities: dict[str, Entity], service: str) -> Counter[str]:
    """Return the number of ready replicas of *service* by host; those without a known host are left out."""
    return Counter(e.host for e in entities.values() if e.service == service and e.ready and e.host is not None)


def _unread_at_the_end(evidence: RunEvidence, exempt: set[str]) -> str | None:
    """Return the first of D2, D4, probed services (but *exempt*) without a reading of the final state, else None."""
    for depth in ("D2", "D4"):
        series = evidence.judged[depth]
        if len(series) and series.started[-1] < evidence.final_from:
            return depth
    probes = evidence.probes
    last = {target: int(probes.started[row]) for row, target in enumerate(probes.targets)}
    return next((s for s, began in sorted(last.items()) if began < evidence.final_from and s not in exempt), None)


def _newly_failing_at_the_end(evidence: RunEvidence, depth: str) -> tuple[str, ...]:
    """Return the names that fail in the last reading of *depth* (D1 to D4) and did not fail before the fault."""
    if depth == "D3" and len(evidence.probes):
        probes = evidence.probes
        last = {target: row for row, target in enumerate(probes.targets)}
        return tuple(
            sorted(s for s, row in last.items() if not probes.reachable[row] and s not in evidence.standing["D3"])
        )
    series = evidence.judged[depth]  # type: ignore[index]
    return series.failing_names(len(series) - 1) if len(series) else ()


def _broken_requests(evidence: RunEvidence) -> list[str]:
    """Return the kinds of requests of which most fail after the agent's end and most succeeded before the fault."""
    assert evidence.triggered is not None
    before = evidence.counts.between(0, evidence.triggered)
    after = evidence.counts.between(evidence.final_from, evidence.ended)
    return [
        kind
        for kind, (done, failed) in sorted(after.items())
        if done >= BROKEN_LEAST
        and failed > BROKEN_SHARE * done
        and (counts := before.get(kind)) is not None
        and counts[1] <= BROKEN_SHARE * counts[0]
        and counts[0] >= BROKEN_LEAST
    ]


def _lost_nodes(evidence: RunEvidence) -> list[str]:
    """Return a phrase per node that was Ready before the fault and is not at the end, and one on missing nodes."""
    assert evidence.triggered is not None
    readings = [one for one in evidence.recording.control_plane if one.reached]
    before = [one for one in readings if one.time_ns <= evidence.triggered]
    after = [one for one in readings if one.time_ns >= evidence.final_from]
    if not before or not after:
        return []
    lost = [f"node {name} is not Ready" for name in after[-1].nodes_not_ready if name not in before[-1].nodes_not_ready]
    had, has = before[-1].nodes_ready, after[-1].nodes_ready
    gone = had - has - len(lost) if had is not None and has is not None else 0
    return lost + ([f"{gone} nodes are gone"] if gone > 0 else [])


def _start_of_tick(evidence: RunEvidence, index: int) -> int:
    """Return the start (ns) of the first observation of tick *index*, the agent's start if there is no such tick."""
    ticks = evidence.recording.timeline.ticks
    return next((min(o.started_ns for o in t.observations) for t in ticks if t.index == index), evidence.agent_started)


NAME = "v_control_plane"
LEADERS = ("kube-scheduler", "kube-controller-manager")
"""Whose leases show that somebody leads."""


def v_control_plane(evidence: RunEvidence, committed: ControlPlane) -> Judgement:
    """Judge the control plane (D4) after the agent's last change: ready, answers in time, leader leases renewed."""
    last = [one for one in evidence.recording.control_plane if one.time_ns >= evidence.final_from]
    if not last:
        return missing(NAME, "no reading of the control plane after the agent's end and its last change")
    at = {"tick": evidence.tick_at(last[-1].time_ns), "time_ns": last[-1].time_ns}
    if committed.ready and (ill := next((one for one in last if not one.ready), None)) is not None:
        at = {"tick": evidence.tick_at(ill.time_ns), "time_ns": ill.time_ns}
        reason = f"/readyz does not say that it is ready: {', '.join(ill.failing)}"
        return Judgement(predicate=NAME, status=Judged.FAILED, reason=reason, **at)
    ages = [age for one in last for lease in LEADERS if (age := one.lease_ages_s.get(lease)) is not None]
    if committed.lease_age_s is not None and not ages:
        return missing(NAME, f"no lease of {' or '.join(LEADERS)} was read")
    measured = (
        ("/readyz is answered in", float(np.median([one.latency_s for one in last])), committed.api_latency_s),
        ("the oldest lease was renewed before", max(ages, default=0.0), committed.lease_age_s),
    )
    bounds = [(words, value, limit) for words, value, limit in measured if limit is not None]
    for words, value, limit in bounds:
        if value > limit:
            reason = f"{words} {value:.2f} s, more than {limit:g} s"
            return Judgement(predicate=NAME, status=Judged.FAILED, reason=reason, value=value, limit=limit, **at)
    reason = "; ".join(f"{words} {value:.2f} s" for words, value, _ in bounds) or f"ready in {len(last)} readings"
    return Judgement(predicate=NAME, status=Judged.PASSED, reason=reason, **at)
