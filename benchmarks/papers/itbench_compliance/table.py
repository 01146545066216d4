"""What the public evaluators accept wrongly: answers to the four examples, judged by their rules and by ours."""

from __future__ import annotations

from collections.abc import Sequence

from opsassay.core.errors import UserError
from opsassay.core.untrusted import safe_text
from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.runner.tables import ResultTable

from ..running import part_of
from .examples import ItbenchExamples
from .new_policies import new_submissions
from .rego_answers import Rego, rego_submissions
from .updates import update_submissions
from .verdicts import JudgedSubmission

COLUMNS = ("class", "answer", "right", "public evaluator", "ours", "why")
NEEDS_REGO = "needs Rego"
_NOTE = (
    "The public evaluators are stated again from their sources, and read the reports that our evaluator of Kyverno's "
    "subset writes. The goals ask for a check, so a world is found to violate where a rule fails on it; where the "
    "repository enforces, it has to be kept out. What OPA prints is stated where no engine is given."
)


def accepted_wrongly(examples: ItbenchExamples, rego: Rego | None = None) -> ResultTable:
    """Return a row for each answer: whether it is right, what the public rule and ours say of it, and why it is refused.

    Where ours takes a Rego engine and there is no *rego*, it says so. The statistics count. Raises UserError when a policy
    that ships with the examples cannot be judged.
    """
    try:
        rows = [
            *new_submissions(examples.new_kyverno),
            *rego_submissions(examples, rego),
            *update_submissions(examples.update_kyverno),
        ]
    except UnsupportedError as error:
        raise UserError(f"A policy of the examples cannot be judged: {safe_text(str(error))}") from error
    title = "Answers to ITBench's public examples, by their evaluators and by ours"
    return ResultTable(title, COLUMNS, tuple(map(_row, rows)), _NOTE, statistics=_counts(rows))


def _row(one: JudgedSubmission) -> tuple[str, ...]:
    ours = NEEDS_REGO if one.ours is None else _word(one.ours)
    return one.task_class, one.name, "yes" if one.right else "no", _word(one.public), ours, one.why


def _word(accepted: bool) -> str:
    return "accepted" if accepted else "refused"


def _counts(rows: Sequence[JudgedSubmission]) -> dict[str, int]:
    wrong, right = ([one for one in rows if one.right is label] for label in (False, True))
    return {
        "wrong_answers": len(wrong),
        "wrong_answers_accepted_by_the_public_evaluators": sum(one.public for one in wrong),
        "wrong_answers_accepted_by_ours": sum(one.ours is True for one in wrong),
        "right_answers": len(right),
        "right_answers_refused_by_the_public_evaluators": sum(not one.public for one in right),
        "right_answers_refused_by_ours": sum(one.ours is False for one in right),
        "not_judged_without_rego": sum(one.ours is None for one in rows),
    }


if __name__ == "__main__":
    part_of("itbench_compliance")
