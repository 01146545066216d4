"""Graded runs on incidents: grading of stores, and its tables and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.metric_words import word
from opsassay.core.schema.overrides import layer_of
from opsassay.core.schema.run import MetricStatus, Run, Verdict
from opsassay.core.schema.validation_errors import problem
from opsassay.core.text import plural
from opsassay.evals.diagnosis.results.repeats import SolverSummary, summarise_runs, summary_tables
from opsassay.evals.diagnosis.results.tables import results_tables
from opsassay.evals.diagnosis.score import SUPPORTED, calm_items, cases_of, grade_all
from opsassay.evals.runner.domain import Domain
from opsassay.evals.runner.grading import GradedRun, GradedRuns, GradeSettings, Stores
from opsassay.evals.runner.ranking import most_repeats, run_id
from opsassay.evals.runner.scores import CORRECT, NATIVE, NO_ANSWER, NOTHING, CaseLabels
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run, write_verdict
from opsassay.evals.runner.tables import ResultTable, percent
from opsassay.scoring.aggregate import GROUNDED_SHARE, estimate, summarise
from opsassay.scoring.metrics import further_metrics
from opsassay.scoring.profiles import Profile, profile_named
from opsassay.scoring.void import is_void, void_items, void_note
from opsassay.solvers.methods.alert_count import AlertCount
from opsassay.solvers.methods.matrix import readings, z_scores
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import Case

COLLAPSED = 0.95
"""A solver whose most frequent answer has this share or more has collapsed to it (leaderboard audit, appendix F)."""


def _anomalous_columns(pack: Datapack) -> int:
    """Return the number of telemetry series of *pack* with |z| > 3 in the abnormal window, as in method alert-count."""
    table = readings(pack)
    return int((np.abs(z_scores(table.normal, table.abnormal)).max(axis=0, initial=0.0) > AlertCount.z).sum())


COVARIATES: Mapping[str, Callable[[Datapack], float]] = {
    "services": lambda pack: len(pack.services()),
    "alerts": lambda pack: len(pack.incident.alerts),
    "anomalous_columns": _anomalous_columns,
}
"""Numbers of a case that solvers can see too; the last is the structural proxy of the leaderboard audit, 9B."""


def case_labels(cases: Iterable[Case], covariates: Iterable[str] = ()) -> dict[str, CaseLabels]:
    """Return incident id to its data format, true root services and *covariates*, names of numbers in COVARIATES."""
    names, found = tuple(covariates), {}
    for case in cases:
        incident, truth = case.datapack.incident, case.truth
        roots = None if truth is None or truth.broken is None else truth.root_services()
        numbers = {name: float(COVARIATES[name](case.datapack)) for name in names}
        found[incident.id] = CaseLabels(str(incident.provenance.get("format", NATIVE)), roots, numbers)
    return found


def defined_metric(verdicts: Iterable[Verdict]) -> tuple[str, str]:
    """Return (metric, reason): exact_match if all *verdicts* have it, else CORRECT (right service or rightly none)."""
    given = [verdict for verdict in verdicts if not is_void(verdict.metrics)]
    lacking = sum(
        v.metrics["exact_match"].status is MetricStatus.NOT_APPLICABLE for v in given if "exact_match" in v.metrics
    )
    if not lacking:
        return "exact_match", ""
    return CORRECT, (
        f"scored by {CORRECT}: the right service, or that nothing is wrong where nothing was broken; exact_match is not "
        f"defined on {lacking} of {plural(len(given), 'graded run')}"
    )


def first_claim(diagnosis: Diagnosis) -> str:
    """Return the first service that *diagnosis* blames, or NOTHING."""
    return diagnosis.root_causes[0].service if diagnosis.root_causes else NOTHING


@dataclass(frozen=True)
class ModalAnswer:
    """The service that a solver blames first most often, with its share of *cases*."""

    solver: str
    service: str
    share: float
    cases: int

    @property
    def collapsed(self) -> bool:
        """Whether that share is at least COLLAPSED, of two cases or more."""
        return self.cases > 1 and self.share >= COLLAPSED


def modal_answers(answers: Iterable[tuple[str, str, Diagnosis]]) -> list[ModalAnswer]:
    """Return the most frequent answer for each (solver, system) in *answers*, (solver, system, diagnosis).

    An answer is the first claimed service, or "" for "nothing is wrong". Sorted by solver and system; *solver* of the
    result is "SOLVER on SYSTEM".
    """
    first: dict[tuple[str, str], list[str]] = {}
    for solver, system, diagnosis in answers:
        claimed = diagnosis.root_causes[0].service if diagnosis.root_causes else ""
        first.setdefault((solver, system), []).append(claimed)
    return [_modal_answer(solver, system, said) for (solver, system), said in sorted(first.items())]


def _modal_answer(solver: str, system: str, answers: Sequence[str]) -> ModalAnswer:
    """Return the most frequent one of *answers*, service names, of *solver* on *system*, with its share."""
    service, count = min(Counter(answers).items(), key=lambda item: (-item[1], item[0]))
    return ModalAnswer(f"{solver} on {system}", service, count / len(answers), len(answers))


WHAT_IF = "what-if"
"""Prefix of the names of changed profiles; verdicts under them are never ranked."""


def changed_profile(profile: Profile, changes: Iterable[str]) -> Profile:
    """Return *profile* with *changes* ``key=value`` (values as YAML) and a name that lists them.

    Without changes it is *profile* itself. Raises NotFoundError for an unknown key, UserError for a wrong value.
    """
    given = layer_of(changes, "undirected=true")
    known = [name for name in Profile.model_fields if name != "name"]
    if unknown := next((key for key in given if key not in known), None):
        raise NotFoundError("convention of a profile", unknown, known)
    if not given:
        return profile
    try:
        changed = Profile.model_validate({**profile.model_dump(mode="json"), **given})
    except ValidationError as error:
        raise UserError(f"{problem(error)}; correct the value of the change.") from error
    return changed.model_copy(update={"name": f"{WHAT_IF}-{changed.digest()[:8]}"})


def changed_grades(before: Sequence[Verdict], after: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return a dict (run, case, system, solver, metric, before, after) per grade that differs; None: no value."""
    first = {verdict.run: verdict for verdict in before}
    return [
        {
            "run": verdict.run,
            "case": verdict.item,
            "system": verdict.system,
            "solver": verdict.solver,
            "metric": name,
            "before": first[verdict.run].metrics[name].value,
            "after": metric.value,
        }
        for verdict in after
        if verdict.run in first
        for name, metric in verdict.metrics.items()
        if metric.value != first[verdict.run].metrics[name].value
    ]


PUBLISHED = "-published"
"""Suffix of a profile's name when paths are graded against published graphs."""
SHOWN = (
    "any_service", "exact_match", "f1", "path_reachability", "ungrounded", GROUNDED_SHARE, "edge_f1", "sql_exec",
    "evidence_relevant",
)  # fmt: skip
"""Metrics in the table of grades; a judge's metric and those of plug-ins follow."""


@dataclass(frozen=True)
class GradedIncidents(GradedRuns):
    """Graded runs on the incidents *cases*, under one *profile*."""

    cases: tuple[Case, ...] = ()
    profile: str = "default"

    def case_labels(self) -> Mapping[str, CaseLabels]:
        """Return by incident id its data format, true root services and all covariates."""
        return case_labels(self.cases, COVARIATES)

    def answer_label(self, graded: GradedRun) -> str | None:
        """Return the first service that the run's answer blames, NO_ANSWER for a run without an answer."""
        diagnosis = read_diagnosis(graded.folder)
        return NO_ANSWER if diagnosis is None else first_claim(diagnosis)

    def answers(self) -> Iterator[tuple[str, str, Diagnosis]]:
        """Yield (solver, system, diagnosis) of each solver and case: the first answered run that counts."""
        first: set[tuple[str, str]] = set()
        for one in self.counted:
            solver = self.name(one.run)
            if (solver, one.run.item) not in first and (diagnosis := read_diagnosis(one.folder)) is not None:
                first.add((solver, one.run.item))
                yield solver, one.run.system, diagnosis

    def tables(self) -> list[ResultTable]:
        """Return a table of mean grades per solver over incidents with a fault, and tables of pass@k and usage."""
        calm = calm_items(self.cases)
        verdicts = [verdict for verdict in self.labelled() if verdict.item not in calm]
        present = {name for verdict in verdicts for name in verdict.metrics}
        shown = [
            *SHOWN,
            *([SUPPORTED] if SUPPORTED in present else []),
            *(name for name in further_metrics() if name in present),
        ]
        pooled = {
            (row["solver"], row["metric"]): estimate(row)
            for row in summarise(verdicts, names=shown).iter_rows(named=True)
            if row["scope"] == "all"
        }
        unranked = {summary.solver for summary in self._solver_summaries if summary.not_ranked}
        rows = tuple(
            (
                f"{name} (not ranked)" if name in unranked else name,
                *(found.text_with_n if (found := pooled.get((name, metric))) else "n/a" for metric in shown),
            )
            for name in (summary.solver for summary in self._solver_summaries)
        )
        title = f"Grades ({self.profile}), mean over incidents [95% interval] (n)"
        columns = ("solver", *(word(metric).title for metric in shown))
        grades = [ResultTable(title, columns, rows)] if verdicts else []
        return [*grades, *summary_tables(self._solver_summaries, self._most_repeats)]

    def results(self) -> list[ResultTable]:
        """Return the tables of a results page; raises UserError when no run's incident has a known truth."""
        return results_tables(self.labelled(), self.cases, self.not_ranked())

    def notes(self) -> list[str]:
        """Return a sentence on void incidents, and one per solver that nearly always gives the same answer."""
        void = void_note(len(void_items(self.labelled())), len({one.run.item for one in self.counted}))
        return [
            *([void] if void else []),
            *(
                f"Collapsed: {a.solver} answers {a.service or 'nothing is wrong'} in {percent(a.share)} of "
                f"{plural(a.cases, 'case')}."
                for a in self._collapsed_answers()
            ),
        ]

    def summary(self) -> dict[str, list[dict[str, Any]]]:
        """Return {"summary": figures per solver, "collapsed": solvers with one answer for nearly all cases}."""
        modal = [
            {"solver": a.solver, "service": a.service, "share": a.share, "cases": a.cases}
            for a in self._collapsed_answers()
        ]
        return {"collapsed": modal, "summary": [summary.as_item() for summary in self._solver_summaries]}

    def _collapsed_answers(self) -> list[ModalAnswer]:
        """Return the answers that a solver gives on nearly all incidents of a system."""
        return [answer for answer in modal_answers(self.answers()) if answer.collapsed]

    @cached_property
    def _most_repeats(self) -> int:
        """The largest number of seeds of one solver on one incident."""
        return most_repeats([one.run for one in self.counted])

    @cached_property
    def _solver_summaries(self) -> list[SolverSummary]:
        """One summary per solver over the runs that count, rankable solvers first."""
        runs = [one.run for one in self.counted]
        return summarise_runs(runs, [one.verdict for one in self.graded], self.cases, self._most_repeats)


def grade_incidents(domain: Domain, stores: Stores, settings: GradeSettings) -> GradedIncidents:
    """Grade the runs of *stores* on incidents by *settings*: profile, truth, and a judge model if one is named.

    Verdicts of a judge model are returned but kept apart from stored ones. Raises NotFoundError for an unknown profile,
    UserError as `cases_of` and for a judge model without an endpoint.
    """
    profile, judge = profile_named(settings.profile), _make_judge(settings)
    problems: dict[str, str] = {}

    def unread(path: Path, error: OpsAssayError) -> None:
        """Note why a run could not be read."""
        problems[str(path)] = str(error)

    roots = [settings.cases] if settings.cases else list(stores)
    cases = [case for root in roots for case in cases_of(root, settings.cases, unread)]
    if settings.truth == "published":
        cases, profile = (
            _with_published_graphs(cases, settings),
            profile.model_copy(update={"name": profile.name + PUBLISHED}),
        )
    graded = []
    for root, ids in stores.items():
        store = RunStore(root)
        for verdict in grade_all(store, cases, profile, unread, run_filter=_run_filter(ids)):
            folder = store.runs_dir / verdict.run
            if judge is not None:
                verdict = judge(verdict)  # noqa: PLW2901
                write_verdict(folder, verdict)
            graded.append(GradedRun(folder, read_run(folder), verdict))
    return GradedIncidents(domain, tuple(graded), problems, cases=tuple(cases), profile=profile.name)


def _with_published_graphs(cases: list[Case], settings: GradeSettings) -> list[Case]:
    """Return *cases* with their publishers' causal graphs, not ours; calls settings.say if some have none."""
    found = [replace(case, annotation=case.published) for case in cases]
    if without := sum(case.annotation is None for case in found):
        settings.say(
            f"opsassay: nobody published a causal graph of {without} of {plural(len(found), 'incident')}: "
            "no paths are graded there."
        )
    return found


def _run_filter(ids: frozenset[str] | None) -> Callable[[Run], bool]:
    """Return a predicate: whether a run's id is in *ids*; always True when *ids* is None."""
    return lambda run: ids is None or run_id(run) in ids


def _make_judge(settings: GradeSettings) -> Callable[[Verdict], Verdict] | None:
    """Return a function that lets the judge model assess a verdict's evidence; None when settings name no model."""
    if settings.judge is None:
        return None
    from opsassay.evals.diagnosis.score import judge_evidence, questions
    from opsassay.solvers.agents.models.named import model_named, require_endpoint

    model = model_named(settings.judge)
    require_endpoint(settings.judge)

    def judge_statements(verdict: Verdict) -> Verdict:
        """Ask the model about each statement and return the verdict with its opinions."""
        settings.say(f"opsassay: judging {questions(verdict)} statements of {verdict.solver} on {verdict.item}")
        return judge_evidence(verdict, model)

    return judge_statements
