"""Logs of inspect_ai on our task: each sample is an answer, with its trace."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from opsassay.analysis.answers.external_answers import AnswerForm, Cases, Document, ExternalAnswer, Reading
from opsassay.core.errors import UserError
from opsassay.core.schema.run import RunStatus
from opsassay.evals.diagnosis.harnesses.inspect_logs import LoggedSample, log_payload, logged_samples
from opsassay.solvers.proxy.formats.inspect_log import is_inspect


def _list_readings(document: Document, cases: Cases) -> Iterator[Reading]:
    """Yield for each sample of the log a function that returns the sample's answer."""
    for sample in logged_samples(log_payload(document.path), document.path):
        yield partial(_read_answer, sample, document, cases)


def _read_answer(sample: LoggedSample, document: Document, cases: Cases) -> list[ExternalAnswer]:
    """Return the one answer of *sample*; raises UserError when the sample has no result."""
    cell = sample.cell()
    case = cases.find_named(cell.task.id)
    outcome = sample.outcome()
    if outcome.status is RunStatus.ABORTED:
        raise UserError(f"{document.name}: sample {sample.name} came to no result ({outcome.error}).")
    solver = cell.solver.model_copy(update={"name": document.solver}) if document.solver else cell.solver
    place = f"{document.name} sample {sample.name}"
    return [ExternalAnswer(place, case, solver, outcome, cell.seed, sample.trace())]


def _is_log(document: Document) -> bool:
    """Return whether *document* is a log of inspect_ai; raises DatapackError when it is no JSON."""
    return document.suffix == ".eval" or is_inspect(document.content)


FORM = AnswerForm((".eval", ".json"), _is_log, _list_readings, lambda path: _is_log(Document(path, path)))
