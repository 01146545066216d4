"""Imports answers given elsewhere as runs of a store, which are graded like any other run.

All of an answer is converted before any of it is written. Imported runs are *unsealed*: graded but not ranked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from opsassay.analysis.answers import ANSWER_FORMS, PREDICTIONS
from opsassay.analysis.answers.external_answers import AnswerForm, Cases, Document, ExternalAnswer, Reading
from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
from opsassay.core.schema.run import Run
from opsassay.core.text import plural
from opsassay.core.untrusted import CAUSED_BY_CONTENT, is_plain, one_sentence
from opsassay.evals.diagnosis.harnesses.inspect_logs import write_steps
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.runner.run import AttemptOutcome, RunSpec, attempt
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run
from opsassay.telemetry.tree import Case

GIVEN_AS = "given as: "
"""Prefix of a run's note that names the file, and the place in it, of its imported answer."""


@dataclass(frozen=True)
class KeptAnswer:
    """An imported answer: the *run* in its *folder*, made by this import or (*known*) by an earlier one."""

    source: str
    folder: Path
    run: Run
    known: bool

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what could not be converted exactly."""
        return tuple(note for note in self.run.notes if not note.startswith(GIVEN_AS))


@dataclass
class AnswerReport:
    """The result of an import: answers *kept*, a sentence per problem, and files without answers (*passed_over*)."""

    kept: list[KeptAnswer] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)


def import_answers(
    source: Path, cases: list[Case], out: Path, form: str | None = None, solver: str | None = None
) -> AnswerReport:
    """Import the answers in *source*, a file or folder, about the incidents *cases* as runs of the store *out*.

    *form* names their format (None: recognised by file), *solver* the solver of answers that do not name theirs.
    Unreadable answers are listed as problems. An answer is imported once; a further one of the same solver on the same
    incident is a repeat. Raises UserError where nothing can be read; then nothing is written.
    """
    if not source.exists():
        raise UserError(f"{source} is not there; name a file of answers, or a folder of them.")
    chosen = None if form is None else find_form(form)
    known, store, report = Cases(cases), RunStore(out), AnswerReport()
    items: dict[str, IncidentItem] = {}
    for document, reader in _answer_documents(source.resolve(), chosen, solver, report):
        try:
            for read in reader.entries(document, known):
                _keep_entry(read, document, store, items, report)
        except (OpsAssayError, *CAUSED_BY_CONTENT) as error:
            report.problems.append(sentence_about(document, error))
    if not report.kept:
        raise UserError(_why_nothing_read(source, report, form))
    return report


def _answer_documents(
    source: Path, named_form: AnswerForm | None, solver: str | None, report: AnswerReport
) -> Iterator[tuple[Document, AnswerForm]]:
    """Yield each file of *source* that holds answers, and its format (*named_form* if given); others go to *report*."""
    looked_at: dict[Path, AnswerForm | Exception | None] = {}
    forms = {name: find_form(name) for name in ANSWER_FORMS.names()}
    for path in list_files(source):
        document = Document(path, source)
        try:
            looked_at[path] = (
                _recognise_form(document, forms)
                if named_form is None
                else named_form
                if _is_selected(named_form, document)
                else None
            )
        except (OpsAssayError, *CAUSED_BY_CONTENT) as error:
            looked_at[path] = error
    trials = {
        path.parent: path for path, form in looked_at.items() if isinstance(form, AnswerForm) and form.owns_folder
    }
    for path, form in looked_at.items():
        document = Document(path, source, solver)
        if any(trials.get(folder, path) != path for folder in path.parents):
            continue
        if isinstance(form, AnswerForm):
            yield document, form
        elif form is None:
            report.passed_over.append(document.name)
        else:
            report.problems.append(sentence_about(document, form))


def find_form(name: str) -> AnswerForm:
    """Return the answer format called *name*; raises NotFoundError."""
    try:
        form: AnswerForm = ANSWER_FORMS.load(name)
    except NotFoundError as error:
        raise NotFoundError("form of answers", name, [*error.valid, *PREDICTIONS]) from error
    return form


def list_files(source: Path) -> Iterator[Path]:
    """Yield the files at or below *source* in natural order ("a2" before "a10"), without hidden files and links."""
    if source.is_file():
        yield source
        return
    inside = [path for path in source.rglob("*") if not _is_hidden(path.relative_to(source)) and is_plain(path)]
    yield from sorted(inside, key=lambda path: [_natural_key(part) for part in path.parts])


def _natural_key(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts ``a2`` before ``a10`` before ``b``."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"(\D*)(\d*)", name)]


def _is_hidden(path: Path) -> bool:
    """Whether a part of *path* begins with a dot."""
    return any(part.startswith(".") for part in path.parts)


def _recognise_form(document: Document, forms: Mapping[str, AnswerForm]) -> AnswerForm | None:
    """Return the format among *forms* that fits *document*, None for none; raises UserError for several."""
    if any(document.suffix in form.suffixes for form in forms.values()):
        document.require_content()
    found = [name for name, form in forms.items() if document.suffix in form.suffixes and form.recognises(document)]
    if len(found) > 1:
        raise UserError(f"{document.name} may be in the forms {' and '.join(found)}; say which with --form.")
    return forms[found[0]] if found else None


def _is_selected(form: AnswerForm, document: Document) -> bool:
    """Return whether *document*, the only file or by suffix and path one of *form*, is to be read in that format."""
    return document.path == document.root or (document.suffix in form.suffixes and form.fits(document.path))


def _keep_entry(
    read: Reading, document: Document, store: RunStore, items: dict[str, IncidentItem], report: AnswerReport
) -> None:
    """Store the answers that *read* returns as runs of *store*, errors in *report*; *items* caches incidents by id."""
    try:
        answers = list(read())
        for answer in answers:
            id_ = answer.case.datapack.incident.id
            item = items.get(id_) or items.setdefault(id_, IncidentItem.from_datapack(answer.case.datapack))
            report.kept.append(keep_answer(store, item, answer, {one.folder for one in report.kept}))
    except (OpsAssayError, *CAUSED_BY_CONTENT) as error:
        report.problems.append(sentence_about(document, error))


_CAUSES: Mapping[type[Exception], str] = {
    AttributeError: "a value is of another type",
    TypeError: "a value is of another type",
    LookupError: "a value is missing",
    ArithmeticError: "a number is too large",
    RecursionError: "it is nested too deeply",
}
"""The explanation of each type of exception in reading a file; other types explain themselves."""


def sentence_about(document: Document, error: Exception) -> str:
    """Return one line on the *error* in reading *document*."""
    said = str(error)
    if not isinstance(error, OpsAssayError):
        why = next((words for kind, words in _CAUSES.items() if isinstance(error, kind)), said)
        said = f"it is not in the form ({why}); restore it, or leave it out."
    return one_sentence(said if document.name in said else f"{document.name}: {said}")


def keep_answer(store: RunStore, item: IncidentItem, answer: ExternalAnswer, used_runs: set[Path]) -> KeptAnswer:
    """Store *answer* to *item* as a run of *store* and return it; an answer that was imported before is returned as it is.

    *used_runs* are the folders of runs of this import, which are not reused. Raises UserError if the same place in the
    source had another answer before.
    """
    digest, seed = answer.solver.digest(), answer.seed
    while True:
        cell = RunSpec(item.task, answer.solver, digest, seed=seed)
        folder = store.finished(cell.hash)
        if folder is None:
            break
        run = read_run(folder)
        sources = [note for note in run.notes if note.startswith(GIVEN_AS)]  # none of a log that was imported as such
        is_same = _is_same(folder, run, answer.outcome)
        if folder not in used_runs and (f"{GIVEN_AS}{answer.source}" in sources or (is_same and not sources)):
            if not is_same:
                raise UserError(
                    f"{answer.source} gave another answer when it was imported before ({folder}); import it into another "
                    "store."
                )
            return KeptAnswer(answer.source, folder, run, known=True)
        seed += 1
    repeat = () if seed == answer.seed else (f"answer {seed + 1} of {answer.solver.name} to this incident: a repeat",)
    outcome = replace(answer.outcome, notes=(f"{GIVEN_AS}{answer.source}", *answer.outcome.notes, *repeat))

    def solve(folder: Path, _: object) -> AttemptOutcome:
        """Write the steps of the answer's trace, if it has one, and return the outcome that was read."""
        if answer.trace is not None:
            write_steps(folder, answer.trace)
        return outcome

    folder = attempt(store, cell, solve, limits={}, isolation="unsealed")
    return KeptAnswer(answer.source, folder, read_run(folder), known=False)


def _is_same(folder: Path, run: Run, outcome: AttemptOutcome) -> bool:
    """Return whether *run*, in *folder*, has the status and diagnosis of *outcome*."""
    kept = read_diagnosis(folder)
    given = outcome.diagnosis
    return (run.status, kept and kept.canonical_json()) == (outcome.status, given and given.canonical_json())


def _why_nothing_read(source: Path, report: AnswerReport, form: str | None) -> str:
    """Return a sentence: why no answer of *source* could be read in *form* (None: any)."""
    if report.problems:
        more = len(report.problems) - 3
        return " ".join(
            [*report.problems[:3], *([f"{plural(more, 'more answer')} could not be read."] if more > 0 else [])]
        )
    if not report.passed_over:
        return f"{source} holds no files; name a folder of answers."
    forms = (
        f"no answers in the form {form}"
        if form
        else f"no answers in a form that is read ({', '.join(ANSWER_FORMS.names())})"
    )
    first = ", ".join(report.passed_over[:3])
    return f"{source} holds {forms}: {first}; say with --form which one it is in."
