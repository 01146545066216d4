"""Blame by correction: the earliest candidate step after whose correction the whole run succeeds.

Source: AgenTracer (arXiv 2509.03312), whose labels are made so: the decisive error is the earliest step whose correction
turns the failed run into one that succeeds. Its published pipeline asks a model for steps and corrections, replays, and
checks the outcome; its trained tracer is not published. Here candidates are those of the technique `dynamic`, and a run is
judged by the reference answer, which the model may be kept from.
"""

from __future__ import annotations

from opsassay.analysis.blame.asking import BlameAsker
from opsassay.analysis.blame.inevitability import Judge
from opsassay.analysis.blame.rerun import Rerun
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.analysis.blame.techniques.dynamic_agentic import candidates_in, submit_candidates
from opsassay.analysis.blame.techniques.static_agentic import walk
from opsassay.core.errors import OperationError, UserError
from opsassay.core.schema.trajectory import Attribution, Trace
from opsassay.solvers.proxy.policies import StepIntervention

COUNTERFACTUAL = "counterfactual"


def counterfactual(
    trace: Trace, asker: BlameAsker, settings: BlameSettings, rerun: Rerun | None, judge: Judge
) -> Attribution:
    """Return the earliest candidate whose guidance makes the run succeed, by *judge*; no answer where none does.

    Raises UserError without *rerun*, OperationError where the upstream of a re-run did not answer.
    """
    if rerun is None:
        raise UserError("The technique 'counterfactual' runs the system again; say how with --reruns.")
    proposed = candidates_in(
        walk(trace, asker, settings, submit_candidates(settings.candidates)), trace, settings.candidates
    )
    for one in sorted(proposed, key=lambda candidate: candidate.step):
        guidance = one.guidance or f"Take care here. {one.reason}"
        run = rerun.observe(StepIntervention(step=one.step, add=guidance))
        if run.outage is not None:
            raise OperationError(f"the upstream of the re-run for step {one.step} did not answer: {run.outage}")
        if run.steps and judge(trace.model_copy(update={"steps": run.steps})):
            acting = trace.step(one.step)
            name = acting.agent_name if acting else one.agent
            return Attribution(agent_name=name, step_id=one.step, reason=f"corrected, the run succeeds: {one.reason}")
    return Attribution(reason=f"none of {len(proposed)} corrections made the run succeed")
