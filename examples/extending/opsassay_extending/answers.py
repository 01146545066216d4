"""A form of answers: a text file, called after who gave them, with ``INCIDENT: SERVICE`` on each line."""

from collections.abc import Iterator
from functools import partial

from opsassay.analysis.answers.external_answers import AnswerForm, Cases, Document, ExternalAnswer, Reading
from opsassay.core.errors import UserError
from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.run import RunStatus
from opsassay.evals.runner.run import AttemptOutcome


def _entries(document: Document, cases: Cases) -> Iterator[Reading]:
    for number, line in enumerate(document.content.splitlines(), 1):
        yield partial(_read, f"{document.name}:{number}", line, document, cases)


def _read(place: str, line: str, document: Document, cases: Cases) -> list[ExternalAnswer]:
    incident, _, service = line.partition(": ")
    if not service:
        raise UserError(f"{place} is {line!r}; expected INCIDENT: SERVICE.")
    solver, notes = cases.find_solver(document, document.path.stem, fault_kinds=())
    diagnosis = Diagnosis(root_causes=(RootCauseClaim(service=service),))
    outcome = AttemptOutcome(RunStatus.DONE, diagnosis=diagnosis, notes=notes)
    return [ExternalAnswer(place, cases.find_named(incident), solver, outcome)]


FORM = AnswerForm((".lines",), lambda document: ": " in document.content, _entries)
