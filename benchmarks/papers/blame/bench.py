"""Techniques over labelled traces: accuracy with intervals, by subset, agent type and third, beside what it cost."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from opsassay.analysis.blame.answers import AnswerLine, Question
from opsassay.analysis.blame.attribute import Blamed, Technique, ask_model, attribute
from opsassay.analysis.blame.rerun import Rerun
from opsassay.analysis.blame.rules import RULES
from opsassay.analysis.blame.settings import observed
from opsassay.core.errors import UserError
from opsassay.core.schema.progress import SILENT, Progress
from opsassay.core.schema.trajectory import Attribution, LabelledTrace
from opsassay.solvers.agents.limits import Price
from opsassay.solvers.agents.models.base import Model

from .answers import AnswerLog, LoggedModel, answer_log
from .counterfactual import COUNTERFACTUAL, counterfactual
from .echo import ECHO, echo
from .paid import BudgetReachedError, Spending
from .scores import Scored, TechniqueSummary, breakdown, score, summarise
from .settings import BenchSettings
from .spectrum import SPECTRUM, blame_by_spectrum, judge_of

POOLED = "all"
RE_RUN = frozenset({"dynamic", COUNTERFACTUAL, SPECTRUM})
"""Techniques that run systems again; traces of systems that cannot be run again are not in their rows."""
OF_PAPERS = (SPECTRUM, COUNTERFACTUAL, ECHO)
"""Techniques of papers, beside those of the package."""
FITTED = "combined"
FREE = frozenset({*RULES, FITTED, SPECTRUM})
"""Techniques that ask no model: one run says it all."""
RerunOf = Callable[[LabelledTrace], Rerun | None]


_NONE_AGAIN = (
    "The technique {!r} runs systems again, and none of the {} traces can be: say how with --reruns FILE (see "
    "docs/blame.md), or compare static techniques."
)


@dataclass(frozen=True)
class BenchRow:
    """One technique on one subset, or on all of them; calls, tokens and *price* (USD) are means per trace and run.

    *price* is None where no price of the model is known.
    """

    subset: str
    technique: str
    runs: int
    summary: TechniqueSummary
    by_agent_type: dict[str, TechniqueSummary]
    by_third: dict[str, TechniqueSummary]
    calls: float
    tokens: float
    price: float | None = None


@dataclass(frozen=True)
class BenchResult:
    """What came out: a row for every technique and subset, all answers, what was *spent* (USD) in the folder so far.

    *stopped* says why questions were left open, of which there are *open*; *left_out* has by technique the traces that
    it could not be tried on.
    """

    rows: list[BenchRow]
    answers: list[AnswerLine]
    spent: float = 0.0
    stopped: str | None = None
    open: int = 0
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Bench:
    """How techniques are compared: *price* None is not known, *budget* (USD) None no limit, *folder* None keeps nothing.

    *prompts* are techniques whose words are from a file, by name, each with a digest of the words.
    """

    settings: BenchSettings = field(default_factory=BenchSettings)
    model: Model | None = None
    rerun_of: RerunOf = lambda _: None
    folder: Path | None = None
    jobs: int = 1
    price: Price | None = None
    budget: float | None = None
    progress: Progress = SILENT
    prompts: Mapping[str, tuple[Technique, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Task:
    """One question: a technique, a trace, one of the runs."""

    case: LabelledTrace
    technique: str
    run: int
    question: Question


def bench(cases: Sequence[LabelledTrace], techniques: Sequence[str], how: Bench | None = None) -> BenchResult:
    """Return a row for every technique and subset, and for all subsets together.

    The rules are always among the techniques. Techniques that ask a model run as often as the settings say, and their
    accuracies are means; "combined" is fitted by leave-one-out within each subset, so that no label is used on its own
    trace. What runs systems again is tried where that can be: its n says how many. Where the model gave no answer the
    question has failed and is in no mean. With a folder every answer is a line in it as it ends, and what is answered
    there is not asked again. Raises UserError where a technique lacks what it needs on every trace.
    """
    how = how or Bench()
    how.settings.require_context()
    left_out: dict[str, int] = {}
    tasks: list[_Task] = []
    shown = {case.id: observed(case.trace, how.settings.asking()).digest() for case in cases}
    for technique in dict.fromkeys((*RULES, *techniques)):
        among = [case for case in cases if technique not in RE_RUN or how.rerun_of(case) is not None]
        if not among:
            raise UserError(_NONE_AGAIN.format(technique, len(cases)))
        if len(among) < len(cases):
            left_out[technique] = len(cases) - len(among)
        tasks += _tasks(among, technique, cases, shown, how)
    with answer_log(how.folder) as log:
        spending = Spending(how.budget, log.spent)
        fitted = _fitted(cases) if FITTED in techniques else {}
        stopped = _run_all(tasks, log, spending, fitted, how)
        answers = [(task, log.last(task.question)) for task in tasks]
    ended = [(task, line) for task, line in answers if line is not None]
    rows = [
        row for technique in dict.fromkeys(t.technique for t in tasks) for row in _rows(cases, technique, ended, how)
    ]
    still_open = len(answers) - len(ended)
    return BenchResult(rows, [line for _, line in ended], spending.spent, stopped, still_open, left_out)


def _tasks(
    among: Sequence[LabelledTrace], technique: str, cases: Sequence[LabelledTrace], shown: Mapping[str, str], how: Bench
) -> Iterator[_Task]:
    """Yield every question of *technique*; *shown* has the digest of what it may see of each trace."""
    free = technique in FREE
    model = "" if free or how.model is None else how.model.name
    learned = "".join(case.label.canonical_json() for case in cases) if technique == FITTED else ""
    if technique == SPECTRUM:
        learned = f"{how.settings.repeats} {how.settings.alike} {how.settings.factors}"
    elif technique in how.prompts:
        learned = how.prompts[technique][1]
    settings = how.settings.asking().digest()
    for case in among:
        asked = "\0".join([case.id, model, settings, learned, shown[case.id]])
        digest = hashlib.sha256(asked.encode()).hexdigest()[:32]
        for run in range(1, (1 if free else how.settings.runs) + 1):
            yield _Task(case, technique, run, (digest, technique, run))


def _fitted(cases: Sequence[LabelledTrace]) -> dict[str, Attribution]:
    from .fitting import leave_one_out

    found: dict[str, Attribution] = {}
    for subset in dict.fromkeys(case.subset for case in cases):
        own = [case for case in cases if case.subset == subset]
        if len(own) > 1:
            found |= {case.id: answer for case, answer in zip(own, leave_one_out(own), strict=True)}
    return found


def _run_all(
    tasks: Sequence[_Task], log: AnswerLog, spending: Spending, fitted: dict[str, Attribution], how: Bench
) -> str | None:
    """Answer what has no answer yet, some side by side; return why it was stopped, None when all were asked."""
    waiting = [task for task in tasks if log.answer(task.question) is None]
    if len(waiting) < len(tasks):
        how.progress.advanced("answered already", f"{len(tasks) - len(waiting)} of {len(tasks)} questions")
    stopped: list[str] = []

    def one(task: _Task) -> None:
        if stopped:
            return
        name = f"{task.technique}, {task.case.id}, run {task.run}"
        asks = task.technique not in RULES and task.technique != FITTED
        if asks:
            how.progress.started(name)
        try:
            line = _answered(task, log, spending, fitted, how)
        except BudgetReachedError as error:
            stopped.append(str(error))
            return
        log.add(line)
        if asks:
            how.progress.finished(name, _outcome(line), {"calls": line.calls, "usd": line.price or 0.0})

    with ThreadPoolExecutor(how.jobs) as pool:
        futures: list[Future[None]] = [pool.submit(one, task) for task in waiting]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            stopped.append("interrupted")
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    return stopped[0] if stopped else None


def _answered(
    task: _Task, log: AnswerLog, spending: Spending, fitted: dict[str, Attribution], how: Bench
) -> AnswerLine:
    """Return the answer to one question; raises BudgetReachedError."""
    case, about = (
        task.case,
        {
            "trace": task.case.id,
            "technique": task.technique,
            "run": task.run,
            "asked": task.question[0],
            "arm": how.settings.arm,
        },
    )
    if task.technique == FITTED and case.id in fitted:
        given = fitted[case.id]
        return AnswerLine.model_validate(about | _answer_fields(given))
    model = how.model
    if model is not None:
        price = how.price or Price()
        model = LoggedModel(model, log, task.question, price, spending, how.settings)
    blamed = _blamed(task, model, how)
    cost = blamed.cost
    spent = {
        "calls": cost.calls,
        "input_tokens": cost.input_tokens,
        "output_tokens": cost.output_tokens,
        "price": None
        if how.price is None
        else how.price.cost_of({"input_tokens": cost.input_tokens, "output_tokens": cost.output_tokens}),
    }
    asked = {} if model is None or not (cost.calls or blamed.failed) else {"model": model.name, **spent}
    return AnswerLine.model_validate(
        about | asked | _answer_fields(blamed.attribution) | {"failed": blamed.failed, "notes": blamed.notes}
    )


def _blamed(task: _Task, model: Model | None, how: Bench) -> Blamed:
    """Return what the technique of *task* says; raises UserError for one that lacks what it needs."""
    trace, settings, name, rerun = task.case.trace, how.settings, task.technique, how.rerun_of(task.case)
    if name == SPECTRUM:
        return blame_by_spectrum(
            trace,
            rerun,
            repeats=settings.repeats,
            alike=settings.alike,
            volatile=settings.volatile,
            factors=settings.factors,
        )
    if name not in OF_PAPERS and name not in how.prompts:
        return attribute(trace, name, model=model, settings=settings, rerun=rerun)
    if model is None:
        raise UserError(f"The technique {name!r} asks a model; name one with --model.")
    if name == COUNTERFACTUAL:
        asked: Technique = partial(counterfactual, judge=judge_of(trace))
    else:
        asked = echo if name == ECHO else how.prompts[name][0]
    return ask_model(
        name, asked, observed(trace, settings), model, settings, rerun, in_conversation=name == COUNTERFACTUAL
    )


def _answer_fields(given: Attribution) -> dict[str, object]:
    return {"agent": given.agent_name, "step": given.step_id, "reason": given.reason}


def _outcome(line: AnswerLine) -> str:
    answer = f"failed: {line.failed}" if line.failed else f"{line.agent or 'no answer'} at step {line.step or '-'}"
    price = "" if line.price is None else f", {line.price:.4f} USD"
    return f"{answer} ({line.calls} calls{price})"


def scored(case: LabelledTrace, line: AnswerLine, settings: BenchSettings) -> Scored:
    """Return how the answer in *line* compares with the label of *case*."""
    given = Attribution(agent_name=line.agent, step_id=line.step)
    found = score(case, given, tolerance=settings.tolerance, scorer=settings.scorer)
    return replace(found, failed=line.failed is not None)


def _rows(
    cases: Sequence[LabelledTrace], technique: str, ended: Sequence[tuple[_Task, AnswerLine]], how: Bench
) -> Iterator[BenchRow]:
    subsets = list(dict.fromkeys(case.subset for case in cases))
    for subset in subsets if len(subsets) == 1 else [*subsets, POOLED]:
        own = [(t, line) for t, line in ended if t.technique == technique and subset in {t.case.subset, POOLED}]
        if not own:
            continue
        rows = [scored(task.case, line, how.settings) for task, line in own]
        prices = [line.price for _, line in own if line.price is not None]
        yield BenchRow(
            subset=subset,
            technique=technique,
            runs=max(task.run for task, _ in own),
            summary=summarise(rows),
            by_agent_type=breakdown(rows, "agent_type"),
            by_third=breakdown(rows, "third"),
            calls=sum(line.calls for _, line in own) / len(own),
            tokens=sum(line.input_tokens + line.output_tokens for _, line in own) / len(own),
            price=sum(prices) / len(prices) if prices else None,
        )
