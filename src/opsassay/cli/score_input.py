"""Reads the input of `audit` and `compare`: a score table, or a folder of graded runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from opsassay.cli.output import say
from opsassay.core.errors import UserError
from opsassay.core.text import plural

if TYPE_CHECKING:
    import polars as pl

    from opsassay.analysis.audit.settings import AuditSettings
    from opsassay.core.schema.run import Run, Verdict


class ReadScores(NamedTuple):
    """A long score *table*, and the number of its *unsealed* runs by method."""

    table: pl.DataFrame
    unsealed: Mapping[str, int]


def scores_of(
    paths: Sequence[Path],
    settings: AuditSettings,
    metric: str | None,
    *,
    by_protocol: bool = True,
    allow_unsealed: bool | None = None,
) -> list[ReadScores]:
    """Return the checked score table at each of *paths*: a CSV or parquet file, or a store of graded runs.

    For a store the score is *metric* of the default profile, by default exact_match where every answer has it, else one
    that all have, which is printed. A solver is a method (its arm part of the name), its configuration the protocol
    (*by_protocol* False: its parameters are part of the name); repeats on one incident are averaged. One run of every
    cell counts; those that are not ranked (unsealed, or flagged) are left out, with a message; with *allow_unsealed*
    the unsealed count, None for a command that has no such option. Labels and covariates are there where the store has
    its incidents. Raises UserError.
    """
    from opsassay.analysis.audit.settings import Columns
    from opsassay.analysis.audit.table import long_scores, read_table
    from opsassay.evals.diagnosis.report import defined_metric

    graded = {path: _read_store_verdicts(path, allow_unsealed) for path in paths if path.is_dir()}
    if metric is None and graded:
        metric, why = defined_metric(verdict for of in graded.values() for _, verdict in of)
        if why:
            say(f"opsassay: {why}; --metric chooses another")
    found = []
    for path in paths:
        if path in graded:
            table = _scores_of_runs(path, graded[path], str(metric), settings, by_protocol=by_protocol)
            unsealed = _count_unsealed(graded[path]) if allow_unsealed else {}
            found.append(ReadScores(long_scores(table, Columns(), str(path)), unsealed))
        else:
            table = read_table(path)
            _require_scores(table, settings, path)
            found.append(ReadScores(long_scores(table, settings.columns, str(path)), {}))
    return found


def _require_scores(table: pl.DataFrame, settings: AuditSettings, path: Path) -> None:
    """Raise UserError when *table*, read from *path*, holds printed summary figures instead of one score a row."""
    from opsassay.analysis.audit import verify

    if settings.columns.score in table.columns:
        return
    if verify.is_ledger(table):
        raise UserError(
            f"{path} is a published table of figures, not of scores: check it with `opsassay audit verify {path}`."
        )
    if verify.is_printed_list(table):
        raise UserError(
            f"{path} lists published figures, not scores: check them with `opsassay audit verify {path} SCORES`, SCORES "
            "being what they come from."
        )


def _read_store_verdicts(path: Path, allow_unsealed: bool | None) -> list[tuple[Run, Verdict]]:
    """Return (run, verdict) of the store's runs that may be ranked, unsandboxed ones too by *allow_unsealed*."""
    from opsassay.evals.runner import ranking
    from opsassay.evals.runner.store import RunStore, read_run, read_verdicts

    store, found, left_out = RunStore(path), [], Counter[str]()
    allowed = {ranking.NOT_RANKED["unsealed"]} if allow_unsealed else set()
    for run in ranking.counted_runs(map(read_run, store.runs())):
        verdicts = read_verdicts(store.runs_dir / run.cell / str(run.attempt))
        verdict = next((v for v in verdicts if v.profile == "default"), None)
        if verdict is None:
            continue
        reasons = [reason for reason in ranking.why_not_ranked(run) if reason not in allowed]
        if reasons:
            left_out[reasons[0]] += 1
        else:
            found.append((run, verdict))
    if left_out:
        _say_left_out(path, left_out, nothing_left=not found, has_option=allow_unsealed is False)
    if not found:
        raise UserError(
            f"{path} holds no graded runs; make some with `opsassay run diagnose {path}` and `opsassay score run {path}`."
        )
    return found


def _say_left_out(path: Path, reasons: Counter[str], *, nothing_left: bool, has_option: bool) -> None:
    """Print how many graded runs are left out for which reason; with *nothing_left* raise UserError instead.

    *has_option*: the command has the option --allow-unsealed, which the message then names.
    """
    from opsassay.evals.runner.ranking import NOT_RANKED

    why = ", ".join(f"{reason} ({plural(number, 'run')})" for reason, number in reasons.items())
    way = "; --allow-unsealed compares what ran unsealed" if has_option and NOT_RANKED["unsealed"] in reasons else ""
    if nothing_left:
        raise UserError(f"{path} has graded runs, but none that is ranked: {why}{way}.")
    say(f"opsassay: {path}: left out what is not ranked: {why}{way}")


def _count_unsealed(graded: Sequence[tuple[Run, Verdict]]) -> dict[str, int]:
    """Return solver to the number of its runs that ran without a sandbox, for solvers with any."""
    from opsassay.evals.runner.ranking import solver_names

    name = solver_names(run for run, _ in graded)
    return dict(Counter(name(run) for run, _ in graded if run.isolation == "unsealed"))


def _scores_of_runs(
    path: Path, graded: Sequence[tuple[Run, Verdict]], metric: str, settings: AuditSettings, *, by_protocol: bool
) -> pl.DataFrame:
    """Return the score table of *graded*, the runs of the store at *path*: one row per run with the value of *metric*.

    *by_protocol* False makes each solver's parameters a part of its name. Columns are those of `score_table`.
    """
    from opsassay.evals.diagnosis.report import COVARIATES, case_labels, first_claim
    from opsassay.evals.runner.ranking import solver_names, versions_reported
    from opsassay.evals.runner.scores import NO_ANSWER, ScoredAnswer, score_table
    from opsassay.evals.runner.store import RunStore, read_diagnosis
    from opsassay.telemetry.tree import resolve

    runs = [run for run, _ in graded]
    for reported in versions_reported(runs):
        say(f"opsassay: {reported}")
    name, store, labels = solver_names(runs), RunStore(path), {}
    with suppress(UserError):  # a store that lies apart from its incidents has no labels
        labels = case_labels(resolve(path), [one for one in settings.covariates if one in COVARIATES])
    answers = []
    for run, verdict in graded:
        diagnosis = read_diagnosis(store.runs_dir / run.cell / str(run.attempt))
        said = NO_ANSWER if diagnosis is None else first_claim(diagnosis)
        answers.append(ScoredAnswer.from_run(name(run), run, verdict, said))
    if not by_protocol:
        answers = [replace(one, method=name(run), protocol="") for one, run in zip(answers, runs, strict=True)]
    return score_table(answers, metric, labels)
