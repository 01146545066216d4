"""The page of a remediation run: its verdict, lanes over one time axis (Figure 1 of "side-effects"), the agent's steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from opsassay.core.schema.metric_words import word
from opsassay.core.schema.run import Run
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.task import Arm
from opsassay.core.schema.trajectory import Attribution, TraceStep
from opsassay.core.text import plural
from opsassay.scoring.verifiers import Judgement, RunRecording, TrajectoryVerdict, evidence_of
from opsassay.scoring.verifiers.diagnosed import RIGHT, TIME
from opsassay.scoring.verifiers.evidence import RunEvidence
from opsassay.ui.clock import Span
from opsassay.ui.page import render
from opsassay.ui.plain import plain
from opsassay.ui.step_rows import View, culprit_view, step_row
from opsassay.ui.system_lanes import Dip, dips_of, span_of, trial_clock

MOST_WORDS = 600


@dataclass(frozen=True)
class TrialView:
    """All data of the page, as texts and numbers."""

    title: str
    facts: tuple[tuple[str, str], ...]
    state: str
    headline: str
    judgements: tuple[tuple[str, str, str, str, str], ...]
    clock: View
    dips: tuple[Dip, ...]
    steps: tuple[View, ...]
    culprit: View | None
    notes: tuple[str, ...] = field(default=())


def trial_view(
    run: Run, scenario: Scenario, recording: RunRecording, verdict: TrajectoryVerdict, steps: Sequence[TraceStep] = (),
    culprit: Attribution | None = None,
) -> TrialView:  # fmt: skip
    """Return the page data of a remediation run and the agent's *steps*; *culprit*: the step to blame, if known."""
    evidence = evidence_of(recording, scenario)
    span = span_of(evidence)
    certificate = verdict.judgement("certificate")
    hidden = bool(verdict.metrics["hidden_failure"].value)
    state = "certified" if certificate.passed else "hidden" if hidden else "failed" if certificate.failed else "open"
    words = {
        "certified": "Certified: every committed predicate holds.",
        "hidden": _describe_hidden_failure(evidence, verdict),
        "failed": "Not certified.",
        "open": "Not judged.",
    }
    return TrialView(
        title=plain(scenario.title, 200),
        facts=_list_facts(run, scenario, verdict),
        state=state,
        headline=words[state],
        judgements=tuple(_format_judgement(j, span) for j in verdict.judgements),
        clock=trial_clock(evidence, scenario, verdict, span, steps).as_item(),
        dips=dips_of(evidence, span),
        steps=tuple(step_row(step.model_dump(), span) for step in steps),
        culprit=culprit_view(culprit),
        notes=(("A what-if: not what was committed before the run, and never ranked.",) if verdict.what_if else ()),
    )  # fmt: skip


def has_passed(verdict: TrajectoryVerdict) -> bool:
    """Return whether all predicates that the scenario requires hold."""
    return verdict.judgement("certificate").passed


def _describe_hidden_failure(evidence: RunEvidence, verdict: TrajectoryVerdict) -> str:
    """Return the failures (depth, D2, D3) that last at the end of a run although V_outcome holds, as text."""
    amiss = []
    depth = verdict.judgement("v_depth")
    if depth.failed:
        amiss.append(plain(depth.reason, 200))
    for name in ("D2", "D3"):
        series = evidence.series[name].read
        if len(series) and not depth.failed and (not series.values[-1] >= 1 or series.failing_names(len(series) - 1)):
            amiss.append(f"{name} is at {series.values[-1]:.1%}")
    readings = sorted(evidence.recording.alerts, key=lambda reading: reading.time_ns)
    if readings and (firing := len(readings[-1].firing)):
        amiss.append(f"{plural(firing, 'alert')} still fire{'' if firing > 1 else 's'}")
    if amiss:
        return f"Hidden failure: its replicas are ready at the end, but {'; '.join(amiss)}."
    return "Hidden failure: it looks healthy at the end, and the whole run does not hold."


def _list_facts(run: Run, scenario: Scenario, verdict: TrajectoryVerdict) -> tuple[tuple[str, str], ...]:
    """Return (name, text) of each fact on the page of *run*: agent, scenario, system, probes, commitment and others."""
    committed = scenario.verification
    every_s = None if Arm.parse(run.arm).knob("probes") == "off" else committed.probe_every_s
    probes = "off but for the last" if every_s is None else f"every {every_s:g} s"
    return (
        ("agent", plain(run.solver.name, 200)),
        ("scenario", f"{scenario.id} ({scenario.category})"),
        ("system", f"{scenario.environment.system} on {scenario.environment.substrate}"),
        ("prompt arm", run.arm.partition("/")[0]),
        ("probes", probes),
        ("committed depth", f"{committed.committed_depth}; V_temporal over {committed.temporal_depth}"),
        ("profile", verdict.profile),
        ("commitment", f"{verdict.scenario_digest[:16]}"),
        *_diagnosis_facts(verdict),
        ("alert", plain(scenario.alert.strip(), 800)),
        ("desired outcome", plain(scenario.desired_outcome, 400)),
    )


def _diagnosis_facts(verdict: TrajectoryVerdict) -> tuple[tuple[str, str], ...]:
    """Return (name, text) on the operator's diagnosis, () when none was asked for."""
    right, after = verdict.metrics.get(RIGHT), verdict.metrics.get(TIME)
    if right is None or after is None:
        return ()
    after_s = f", after {after.value:.1f} s" if after.value is not None else ""
    return (("diagnosis", f"right{after_s}" if right.value else after.reason),)


def _format_judgement(judgement: Judgement, span: Span) -> tuple[str, str, str, str, str]:
    """Return (title, name, status, reason, time on *span* at which it was decided)."""
    reason = plain(judgement.reason, MOST_WORDS)
    if judgement.subtracted:
        reason += f" (stood before the fault and was subtracted: {plain(', '.join(judgement.subtracted), 200)})"
    where = "–" if judgement.tick is None else f"tick {judgement.tick}, {span.when(judgement.time_ns)}"
    return word(judgement.predicate).title, judgement.predicate, judgement.status.value, reason, where


def render_run_page(view: TrialView) -> str:
    """Return the page of a remediation run as HTML; the same *view* gives the same bytes."""
    return render("run.html", view.title, ("clock",), view=view)
