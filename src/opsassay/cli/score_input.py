"""What `audit` and `compare` read: a score table, or a folder of graded runs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.cli.output import say
from opsassay.errors import UserError

if TYPE_CHECKING:
    import polars as pl

    from opsassay.audit.settings import AuditSettings
    from opsassay.model.run import Run, Verdict


def scores_of(
    paths: Sequence[Path], settings: AuditSettings, metric: str | None, *, by_protocol: bool = True
) -> list[pl.DataFrame]:
    """Return the long, checked scores at each of *paths*: a CSV or parquet file, or a store of graded runs.

    For a store *metric* of the default profile is the score; without one it is exact_match where every answer of every
    store has it, else one that is defined on all of them, which is said. A solver is a method (its arm part of the name),
    its configuration the protocol (*by_protocol* False: its parameters are part of the name), and repeats on one incident
    are averaged. One run of every cell counts; those that are not ranked (unsealed, or flagged) are left out. Labels and
    covariates are there where the store has its incidents. Raises UserError.
    """
    from opsassay.audit.settings import Columns
    from opsassay.audit.table import long_scores, read_table
    from opsassay.bench.domains.diagnosis.scores import defined_metric

    graded = {path: _graded(path) for path in paths if path.is_dir()}
    if metric is None and graded:
        metric, why = defined_metric(verdict for of in graded.values() for _, verdict in of)
        if why:
            say(f"opsassay: {why}; --metric chooses another")
    found = []
    for path in paths:
        if path in graded:
            table = _of_runs(path, graded[path], str(metric), settings, by_protocol=by_protocol)
            found.append(long_scores(table, Columns(), str(path)))
        else:
            table = read_table(path)
            _require_scores(table, settings, path)
            found.append(long_scores(table, settings.columns, str(path)))
    return found


def _require_scores(table: pl.DataFrame, settings: AuditSettings, path: Path) -> None:
    """Raise UserError for printed figures, which are no scores."""
    from opsassay.audit import verify

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


def _graded(path: Path) -> list[tuple[Run, Verdict]]:
    """Return the runs of the store at *path* that count and may be ranked, with their verdicts."""
    from opsassay.bench.core.ranking import counted, why_not_ranked
    from opsassay.bench.core.store import RunStore, read_run, read_verdicts

    store, found = RunStore(path), []
    for run in counted(map(read_run, store.runs())):
        verdicts = read_verdicts(store.runs_dir / run.cell / str(run.attempt))
        verdict = next((v for v in verdicts if v.profile == "default"), None)
        if verdict is not None and not why_not_ranked(run):
            found.append((run, verdict))
    if not found:
        raise UserError(
            f"{path} holds no graded runs; make some with `opsassay diagnose {path}` and `opsassay grade {path}`."
        )
    return found


def _of_runs(
    path: Path, graded: Sequence[tuple[Run, Verdict]], metric: str, settings: AuditSettings, *, by_protocol: bool
) -> pl.DataFrame:
    from opsassay.bench.core.ranking import solver_names, versions_reported
    from opsassay.bench.core.scores import NO_ANSWER, ScoredAnswer, score_table
    from opsassay.bench.core.store import RunStore, read_diagnosis
    from opsassay.bench.domains.diagnosis.scores import COVARIATES, case_labels, first_claim
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
        answers.append(ScoredAnswer.of(name(run), run, verdict, said))
    if not by_protocol:
        answers = [replace(one, method=name(run), protocol="") for one, run in zip(answers, runs, strict=True)]
    return score_table(answers, metric, labels)
