"""The certificate: the conjunction of what a scenario committed, with the reason for every failure."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from opsassay.core.schema.run import Metric, MetricStatus, Verdict
from opsassay.core.schema.scenario import Profile, Scenario, Verification
from opsassay.core.schema.system import System
from opsassay.scoring.verifiers import further
from opsassay.scoring.verifiers.alerts import alerts_cleared
from opsassay.scoring.verifiers.cause import broken_settings, v_cause
from opsassay.scoring.verifiers.chain import chain_metrics
from opsassay.scoring.verifiers.committed import evidence_of
from opsassay.scoring.verifiers.core import v_depth, v_outcome, v_probe, v_temporal
from opsassay.scoring.verifiers.diagnosed import diagnosis_metrics
from opsassay.scoring.verifiers.evidence import RunEvidence, RunRecording
from opsassay.scoring.verifiers.further import v_control_plane
from opsassay.scoring.verifiers.judgement import Judged, Judgement, not_applicable
from opsassay.scoring.verifiers.repairs import RightChanges
from opsassay.scoring.verifiers.self_healed import fault_ended
from opsassay.scoring.verifiers.served import v_users
from opsassay.scoring.verifiers.settings import v_settings
from opsassay.scoring.verifiers.validity import Validity, validity


class TrajectoryVerdict(Verdict):
    """The verdict on one trial: its metrics, and what every predicate says.

    *scenario_digest* is of the file that it was graded by; *what_if* when that is not what was committed. Of a trial whose
    *validity* is starved there is no certificate.
    """

    scenario_digest: str = ""
    what_if: bool = False
    judgements: tuple[Judgement, ...] = Field(default=())
    validity: Validity = Validity()

    def judgement(self, predicate: str) -> Judgement:
        """Return the judgement of *predicate*; raises KeyError when the scenario did not commit it."""
        return {one.predicate: one for one in self.judgements}[predicate]


def judge_run(
    evidence: RunEvidence, scenario: Scenario, *, verification: Verification | None = None
) -> tuple[tuple[Judgement, ...], dict[str, float | None]]:
    """Judge every predicate that *scenario* commits; return the judgements, and numbers such as times by metric name.

    *verification* replaces the scenario's own block in a sweep or a what-if.
    """
    committed = verification or scenario.verification
    probes_on = evidence.recording.probes_on
    found = [
        v_outcome(evidence, committed),
        v_temporal(evidence, committed),
        v_depth(evidence, committed),
        v_probe(evidence, committed, probes_on=probes_on),
    ]
    numbers: dict[str, float | None] = {}
    right = RightChanges.from_scenario(scenario)
    if committed.profile == "paper":
        return tuple(found), numbers
    if committed.alerts is not None:
        judgement, numbers["time_to_repair_s"] = alerts_cleared(evidence, committed.alerts)
        found.append(judgement)
    if committed.placement is not None:
        found.append(further.placement(evidence, committed.placement))
    if committed.no_regression is not None:
        found.append(further.no_regression(evidence, committed.no_regression))
    if committed.impact is not None:
        judgement, minutes, failed = further.impact(evidence, committed.impact)
        numbers |= {"impact_user_minutes": minutes, "impact_failed_requests": failed}
        found.append(judgement)
    if committed.blast_radius is not None:
        judgement, numbers["blast_radius"] = further.blast_radius(
            evidence, committed.blast_radius, scenario.named_entities(), right.calls
        )
        found.append(judgement)
    if committed.settings is not None:
        found.append(v_settings(evidence, committed.settings, right))
    if committed.cause is not None:
        found.append(v_cause(evidence, committed.cause, scenario, right))
    if committed.users is not None:
        judgement, numbers["lost_requests"] = v_users(
            evidence, committed.users, broken_settings(evidence, right), (scenario, right)
        )
        found.append(judgement)
    if committed.control_plane is not None:
        found.append(v_control_plane(evidence, committed.control_plane))
    return tuple(found), numbers


def conjunction(judgements: Iterable[Judgement]) -> Judgement:
    """Return the certificate: it holds when all applicable *judgements* do, and V_depth and V_outcome are applicable.

    Its reason is that of the failed predicate that was decided first; the other failed ones are named.
    """
    found = {j.predicate: j for j in judgements}
    if failed := [j for j in found.values() if j.failed]:
        first = min(failed, key=lambda j: (j.time_ns is None, j.time_ns or 0))
        others = ", ".join(j.predicate for j in failed if j is not first)
        reason = f"{first.predicate}: {first.reason}" + (f"; {others} failed too" if others else "")
        return Judgement(
            predicate="certificate", status=Judged.FAILED, reason=reason,
            tick=first.tick, time_ns=first.time_ns,
        )  # fmt: skip
    idle = [name for name in ("v_outcome", "v_depth") if name in found and not found[name].passed]
    if idle:
        return not_applicable("certificate", found[idle[0]].reason)
    return Judgement(predicate="certificate", status=Judged.PASSED, reason="every committed predicate holds")


def hidden_failure(judgements: Iterable[Judgement]) -> bool:
    """Return whether V_outcome in *judgements*, the usual final check, passes while the certificate fails."""
    found = tuple(judgements)
    outcome = next(j for j in found if j.predicate == "v_outcome")
    return outcome.passed and conjunction(found).failed


def certify(
    recording: RunRecording,
    scenario: Scenario,
    *,
    profile: Profile | None = None,
    run: str = "",
    solver: str = "",
    committed_digest: str | None = None,
    system: System | None = None,
) -> TrajectoryVerdict:
    """Return the verdict on *recording* under *profile*, the committed one when None.

    A diagnosis is matched with the true cascade in the topology of *system*, if that is known. The verdict is a what-if
    when *committed_digest*, that of the scenario which the run was started with, differs from that of *scenario*, or
    when *profile* is not the committed one. *run* and *solver* only label it.
    """
    own = scenario.verification.profile
    verification = scenario.verification.model_copy(update={"profile": profile or own})
    committed = scenario.model_copy(update={"verification": verification})
    evidence = evidence_of(recording, committed)
    judgements, numbers = judge_run(evidence, scenario, verification=verification)
    certificate = conjunction(judgements)
    if certificate.passed and (reason := fault_ended(evidence, committed)):
        certificate = not_applicable("certificate", f"no repair was recorded: {reason}")
    if (judged := validity(evidence)).status == "starved":
        certificate = not_applicable("certificate", judged.reason)
    metrics = {j.predicate: j.metric() for j in (*judgements, certificate)}
    metrics["hidden_failure"] = Metric(value=float(hidden_failure(judgements)), status=MetricStatus.SCORED)
    metrics |= {name: _metric_or_reason(name, value) for name, value in numbers.items()}
    metrics |= diagnosis_metrics(recording, scenario) | chain_metrics(recording, scenario, system)
    digest = scenario.digest()
    return TrajectoryVerdict(
        run=run,
        item=scenario.id,
        system=scenario.environment.system,
        solver=solver,
        profile=verification.profile,
        metrics=metrics,
        scenario_digest=digest,
        what_if=(committed_digest or digest) != digest or verification.profile != own,
        judgements=(*judgements, certificate),
        validity=judged,
    )


def _metric_or_reason(name: str, value: float | None) -> Metric:
    """Return a scored metric of *value*; None gives one that is not applicable, with the reason for *name*."""
    if value is not None:
        return Metric(value=value, status=MetricStatus.SCORED)
    reason = "the alerts did not clear" if name == "time_to_repair_s" else "the evidence for it is missing"
    return Metric(status=MetricStatus.NOT_APPLICABLE, reason=reason)
