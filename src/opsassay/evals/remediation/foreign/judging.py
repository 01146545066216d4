"""Judges a run made outside of OpsAssay by the same predicates; those without evidence are not applicable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from opsassay.core.errors import UserError
from opsassay.core.schema.json_lines import read_nouns
from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.core.schema.scenario import Profile, Scenario
from opsassay.core.schema.trajectory import Action, Depth, Entity, Observation, Phase, PhaseName, Probe, Tick, Timeline
from opsassay.evals.remediation.foreign.paper_records import read_paper_records
from opsassay.evals.remediation.foreign.ranges import DURATION, Ranges, read_ranges
from opsassay.evals.remediation.foreign.watch import Key, WatchEvent, read_watch, state_of
from opsassay.scoring.verifiers import RunEvidence, RunRecording, TrajectoryVerdict, evidence_of, judge_run, validity
from opsassay.scoring.verifiers.certify import conjunction, hidden_failure
from opsassay.scoring.verifiers.judgement import not_applicable
from opsassay.scoring.verifiers.self_healed import fault_ended
from opsassay.testbed.core.probes import DepthReading, SystemReading

MOST_TICKS = 200_000
BEFORE_NS = 10 * 10**9


class ForeignRun:
    """The record of a foreign run: watch logs and Prometheus ranges, or records of "side-effects".

    *phases* give the times of fault and agent; without them the whole record is the agent's time. Raises DatapackError
    for an unreadable file, UserError for records that cannot be of one run.
    """

    def __init__(
        self, scenario: Scenario, *, watches: Sequence[Path] = (), ranges: Sequence[Path] = (), records: Path | None = None,
        actions: Path | None = None, phases: Sequence[tuple[PhaseName, int]] = (),
    ) -> None:  # fmt: skip
        committed = scenario.verification
        self.scenario, self.ranges = scenario, read_ranges(ranges)
        if records is not None:
            timeline = read_paper_records(records, committed.protected_services)
        else:
            events = sorted((event for path in watches for event in read_watch(path)), key=lambda event: event.time_ns)
            timeline = Timeline(
                boot_id="", cadence_s=committed.cadence_s,
                ticks=tuple(_make_ticks(events, self.ranges, scenario, min((at for _, at in phases), default=None))),
            )  # fmt: skip
        if any(first[1] > second[1] for first, second in pairwise(phases)):
            raise UserError(
                "The instants are not in order; the fault comes before the agent, and its start before its end."
            )
        self.has_actions = actions is not None
        self.recording = RunRecording(
            timeline, tuple(Phase(phase=name, time_ns=at) for name, at in phases),
            tuple(read_nouns(actions, Action)) if actions is not None else (), self.ranges.alerts(),
        )  # fmt: skip

    def judge_record(self, profile: Profile | None = None) -> TrajectoryVerdict:
        """Return the verdict on the run under *profile* (None: the scenario's); it is never ranked."""
        verification = self.scenario.verification.model_copy(
            update={"profile": profile or self.scenario.verification.profile}
        )
        scenario = self.scenario.model_copy(update={"verification": verification})
        evidence = evidence_of(self.recording, scenario)
        evidence = replace(evidence, control_plane=len(evidence.series["D4"]) > 0)
        judged, _ = judge_run(evidence, scenario)
        lacking = self._missing_evidence(evidence, scenario)
        judged = tuple(
            not_applicable(one.predicate, f"the record lacks {lacking[one.predicate]}")
            if one.predicate in lacking
            else one
            for one in judged
        )
        certificate = conjunction(judged)
        if certificate.passed and self.has_actions and (reason := fault_ended(evidence, scenario)):
            certificate = not_applicable("certificate", f"no repair was recorded: {reason}")
        metrics = {one.predicate: one.metric() for one in (*judged, certificate)}
        metrics["hidden_failure"] = Metric(value=float(hidden_failure(judged)), status=MetricStatus.SCORED)
        return TrajectoryVerdict(
            run="", item=scenario.id, system=scenario.environment.system, solver="", profile=verification.profile,
            metrics=metrics, scenario_digest=self.scenario.digest(), what_if=True, judgements=(*judged, certificate),
            validity=validity(evidence),
        )  # fmt: skip

    def _missing_evidence(self, evidence: RunEvidence, scenario: Scenario) -> dict[str, str]:
        """Return predicate to the evidence that it needs and the record lacks."""
        committed, ticks = scenario.verification, self.recording.timeline.ticks
        depths = {depth for depth, series in evidence.series.items() if len(series)}
        moved = any(tick.entities for tick in ticks)
        before = moved and evidence.triggered is not None
        slow = bool(len(evidence.probes)) and (not self.ranges.series or DURATION in self.ranges.series)
        has = {
            "v_outcome": ("D1" in depths, "D1 (ready replicas)"),
            "v_temporal": (committed.temporal_depth in depths, f"{committed.temporal_depth}, the temporal depth"),
            "v_depth": (committed.committed_depth in depths, f"{committed.committed_depth}, the committed depth"),
            "v_probe": (slow, "probes with their latency"),
            "alerts_cleared": (bool(self.recording.alerts), "alerts"),
            "v_placement": (moved, "replicas"),
            "v_no_regression": (before, "replicas and the instant of the fault"),
            "v_impact": (any(tick.load for tick in ticks), "counts of users' requests"),
            "v_blast_radius": (moved and self.has_actions, "replicas and actions of the agent"),
            "v_settings": (bool(self.recording.settings), "settings"),
            "v_cause": (bool(self.recording.settings), "settings"),
            "v_users": (any(tick.load for tick in ticks), "counts of users' requests"),
            "v_control_plane": (bool(self.recording.control_plane), "answers of /readyz"),
        }
        return {name: what for name, (there, what) in has.items() if not there}


def _make_ticks(
    events: Sequence[WatchEvent], ranges: Ranges, scenario: Scenario, phase_ns: int | None
) -> Iterator[Tick]:
    """Yield a reading per cadence, over the time of the watch *events* and Prometheus *ranges*; raises UserError.

    The first is BEFORE_NS or more before *phase_ns*, the time of the first phase, unless that is None.
    """
    protected, step = scenario.verification.protected_services, round(scenario.verification.cadence_s * 1e9)
    instants = [*(event.time_ns for event in events if event.time_ns), *ranges.instants()]
    if not instants:
        raise UserError("Nothing in the record has a time; give watch logs, Prometheus ranges or records of ticks.")
    probes, last = ranges.probes(), max(instants)
    begins = [*ranges.instants()[:1], *([_watched_from(events)] if events else [])]
    at = min(begins if phase_ns is None else [*begins, phase_ns - BEFORE_NS])
    count = (last - at) // step + 2
    if count > MOST_TICKS:
        raise UserError(
            f"The record spans {(last - at) / 3.6e12:.0f} h, {count} ticks; cut it to the run, or raise cadence_s."
        )
    objects: dict[Key, dict[str, Any]] = {}
    known: dict[str, Entity] = {}
    done = sent = 0
    for index in range(count):
        changed = index == 0
        while done < len(events) and events[done].time_ns <= at:
            event = events[done]
            if event.found is None:
                objects.pop(event.key, None)
            else:
                objects[event.key] = event.found
            done, changed = done + 1, True
        if changed:
            state = state_of(objects, protected)
        now = {one.id: one for one in state.entities or ()}
        ended = [probe for probe in probes[sent:] if probe.ended_ns <= at]
        sent += len(ended)
        yield Tick(
            index=index, observations=_make_observations(_read_depths(state, ranges, at), ended, at), probes=tuple(ended),
            entities=tuple(one for name, one in now.items() if known.get(name) != one),
            gone=tuple(sorted(known.keys() - now.keys())),
        )  # fmt: skip
        known, at = now, at + step


def _watched_from(events: Sequence[WatchEvent]) -> int:
    """Return the time (ns) at which the watch first reported a change, after it listed the existing objects."""
    seen: set[Key] = set()
    for event in events:
        if event.key in seen and event.time_ns:
            return event.time_ns
        seen.add(event.key)
    return events[-1].time_ns


def _read_depths(state: SystemReading, ranges: Ranges, time_ns: int) -> dict[Depth, DepthReading]:
    """Return D1 (replicas), D2 (endpoints) and D4 (control plane) of *state*; *ranges* at *time_ns* fill in D1 and D4.

    A depth without either source is left out.
    """
    found: dict[Depth, DepthReading] = {
        "D1": state.ready_replicas if state.ready_replicas.value is not None else ranges.ready(time_ns),
        "D2": state.ready_backends,
        "D4": state.control_plane if state.control_plane.value is not None else ranges.control_plane(time_ns),
    }
    return {depth: one for depth, one in found.items() if one.value is not None}


def _make_observations(
    depths: dict[Depth, DepthReading], probes: Sequence[Probe], time_ns: int
) -> tuple[Observation, ...]:
    """Return one observation per depth, and for D3 (service answers) the share of *probes* that succeeded."""
    found = [
        Observation(depth=depth, started_ns=time_ns, ended_ns=time_ns, value=one.value, failing=one.failing)
        for depth, one in depths.items()
    ]
    if probes:
        dead = tuple(sorted({probe.target for probe in probes if not probe.reachable}))
        share = sum(probe.reachable for probe in probes) / len(probes)
        found.append(
            Observation(depth="D3", started_ns=min(probe.started_ns for probe in probes),
                        ended_ns=max(probe.ended_ns for probe in probes), value=share, failing=dead)
        )  # fmt: skip
    return tuple(found)
