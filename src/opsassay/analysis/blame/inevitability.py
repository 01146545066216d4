"""Measured inevitability: the share of runs that fail when a trace is continued from each of its steps.

A decisive step is the earliest one after which the failure is inevitable ("trace-elephant", section 3). To measure it,
the first k steps are replayed from the record and the rest runs live, n times. P(fail

first k steps) is the share of these runs that fail, with Wilson's interval; the step is the first whose lower bound
reaches 0.9. Since a prefix that was selected for its high share overstates it, prefixes at the boundary run again, and
only these runs count.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from opsassay.analysis.blame.rerun import Rerun
from opsassay.core.errors import OperationError, UserError
from opsassay.core.schema.trajectory import Attribution, Trace
from opsassay.core.text import plural
from opsassay.scoring.rates import wilson

INEVITABLE = 0.9
"""The failure counts as inevitable when the lower bound of P(fail

first k steps) reaches this.
"""
JUDGE_LIMIT_S = 60.0

Fails = Callable[[int], bool]
"""Continues the trace once from its first k steps, and returns whether that run failed."""
Judge = Callable[[Trace], bool]
"""Returns whether the run of a trace succeeded."""


@dataclass(frozen=True)
class Continuing:
    """How a trace is continued: *runs* per prefix, *budget* of runs in total, and the judge of runs.

    Without a *judge*, a run succeeds if the output of its last step contains the trace's reference answer.
    """

    judge: Judge | None = None
    runs: int = 10
    budget: int = 200


@dataclass(frozen=True)
class PrefixRuns:
    """The outcome of *runs* runs that were continued from the first *steps* steps: how many *failed*."""

    steps: int
    runs: int
    failed: int

    @property
    def rate(self) -> float:
        """The fraction of the runs that failed."""
        return self.failed / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval of the fraction that failed."""
        return wilson(self.failed, self.runs)

    @property
    def is_inevitable(self) -> bool:
        """Whether the lower bound of the interval reaches `INEVITABLE`."""
        return self.interval[0] >= INEVITABLE

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.rate:.2f} [{low:.2f}, {high:.2f}] ({self.failed} of {self.runs})"


@dataclass(frozen=True)
class Inevitability:
    """The first *step* from which failure was inevitable: 0 if before any step, None if undecided.

    *prefixes* are ordered by their number of steps; *spent* counts the runs.
    """

    step: int | None
    prefixes: tuple[PrefixRuns, ...]
    spent: int
    reason: str

    def attribution(self, trace: Trace) -> Attribution:
        """Return the first step after which failure was inevitable, with its agent; empty without one."""
        found = trace.step(self.step) if self.step else None
        return Attribution(
            agent_name=found.agent_name if found else None, step_id=found.step_id if found else None, reason=self.reason
        )


def fewest_to_confirm() -> int:
    """Return the smallest n for which n failures in n runs show that failure is inevitable."""
    return next(n for n in range(1, 1000) if PrefixRuns(0, n, n).is_inevitable)


@dataclass
class _Budget:
    fails: Fails
    most: int
    spent: int = 0
    measured: dict[int, PrefixRuns] = field(default_factory=dict)

    def run(self, prefix: int, runs: int) -> PrefixRuns | None:
        """Make *runs* new runs after the first *prefix* steps; return their outcome, None when the budget is too small."""
        if self.spent + runs > self.most:
            return None
        self.spent += runs
        found = PrefixRuns(prefix, runs, sum(self.fails(prefix) for _ in range(runs)))
        self.measured[prefix] = found
        return found


def continue_and_measure(trace: Trace, rerun: Rerun, options: Continuing) -> Inevitability:
    """Return the first step of *trace* after which failure was inevitable, by runs that *rerun* continues from steps.

    *options* are the runs per step, their budget and the judge. Raises UserError without a judge, OperationError.
    """
    reference = (trace.reference_answer or "").strip()
    if options.judge is None and not reference:
        raise UserError("Nothing says which runs succeed; give --judge answer:TEXT or --judge COMMAND.")
    fails = continuation_of(trace, rerun, options.judge or judge_by_reference(reference), most_void=options.runs)
    return measure_inevitability(len(trace.steps), fails, runs=options.runs, budget=options.budget)


def measure_inevitability(steps: int, fails: Fails, *, runs: int, budget: int) -> Inevitability:
    """Return the first step after which a failed trace of *steps* steps nearly always fails.

    Bisection with *runs* runs per step finds a candidate, beginning with runs from the start. Fresh runs must confirm
    it; otherwise the next step is tested, up to the whole trace, which did fail. All within *budget* runs. *fails*
    makes one run from the given step and returns whether it failed.
    """
    trial, confirming = _Budget(fails, budget), fewest_to_confirm()

    def ended(step: int | None, reason: str) -> Inevitability:
        """Return the result with all measurements so far."""
        return Inevitability(
            step, tuple(sorted(trial.measured.values(), key=lambda one: one.steps)), trial.spent, reason
        )

    low, high = -1, steps
    middle = 0
    while high - low > 1:
        if (screened := trial.run(middle, runs)) is None:
            return ended(None, f"the budget of {plural(budget, 'run')} ended between steps {max(low, 0)} and {high}")
        low, high = (low, middle) if screened.rate >= INEVITABLE else (middle, high)
        middle = (low + high) // 2
    while high < steps:
        if (confirmed := trial.run(high, confirming)) is None:
            return ended(
                None,
                f"the budget of {plural(budget, 'run')} ended before step {high} was confirmed; it is the likeliest",
            )
        if confirmed.is_inevitable:
            return ended(high, _explain_step(high, trial.measured))
        high += 1
    return ended(high, _explain_step(high, trial.measured))


def _explain_step(step: int, measured: dict[int, PrefixRuns]) -> str:
    """Return a sentence: how often the runs in *measured* failed after *step* and after the step before it."""
    after, before = measured.get(step), measured.get(step - 1)
    if step == 0:
        return f"the system fails whatever its steps are: P(fail) from the start is {after}"
    found = f"P(fail) after step {step} is {after or '1, the recorded end'}"
    return found + (f", after step {step - 1} {before}" if before else "")


def continuation_of(trace: Trace, rerun: Rerun, judge: Judge, most_void: int) -> Fails:
    """Return a function of a step number that reruns *trace*, live after that step, and returns whether it fails.

    A rerun that deviates before that step is void and made again. Raises OperationError at *most_void* void runs, and
    when the upstream does not answer.
    """
    void: list[str] = []

    def fails(prefix: int) -> bool:
        """Run on after the first *prefix* steps; return whether that fails. One that differs before is made again."""
        while True:
            run = rerun.after(prefix)
            if run.outage is not None:
                raise OperationError(f"the upstream of a run from step {prefix} did not answer: {run.outage}")
            lost = next((step.error for step in run.steps[:prefix] if step.error), None)
            if lost is None and len(run.steps) >= max(prefix, 1):
                return not judge(trace.model_copy(update={"steps": run.steps, "outcome": None}))
            void.append(lost or f"it ended after {plural(len(run.steps), 'step')}")
            if len(void) >= most_void:
                raise OperationError(f"runs from step {prefix} do not repeat the steps before it: {void[-1]}")

    return fails


def judge_named(text: str) -> Judge:
    """Return the judge that *text* describes: ``answer:TEXT`` looks for TEXT, anything else is a command."""
    kind, _, answer = text.partition(":")
    if kind == "answer" and answer.strip():
        return judge_by_reference(answer.strip())
    return judge_by_command(shlex.split(text))


def judge_by_reference(reference: str) -> Judge:
    """Return a judge that passes a trace if its last output contains *reference* as a separate word."""
    right = re.compile(rf"(?<![\w.]){re.escape(reference)}(?!\.?\w)")

    def succeeded(trace: Trace) -> bool:
        """Whether the last step holds the reference answer."""
        return right.search(trace.steps[-1].output_content) is not None

    return succeeded


def judge_by_command(arguments: Sequence[str]) -> Judge:
    """Return a judge that passes the trace as JSON to a command's standard input; status 0 is success, 1 failure.

    The judge raises UserError when the command cannot be started, takes more than a minute, or ends with another status.
    """

    def succeeded(trace: Trace) -> bool:
        """Whether the command ends with 0 when it reads the trace; raises UserError unless 0 or 1."""
        shown = json.dumps(trace.model_dump(mode="json"), ensure_ascii=False)
        try:
            done = subprocess.run(
                arguments, input=shown, capture_output=True, text=True, timeout=JUDGE_LIMIT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UserError(f"The command {arguments[0]!r} of --judge does not run: {error}.") from error
        if done.returncode not in {0, 1}:
            said = done.stderr.strip().splitlines()[-1:] or ["it says nothing"]
            raise UserError(f"--judge ended with status {done.returncode}, which is neither 0 nor 1: {said[0][:300]}")
        return done.returncode == 0

    return succeeded
