"""Answers that others gave, read in their own forms; packages add to the forms by the entry point `opsassay.answers`.

A form is an `AnswerForm`: what files it reads, how it recognises them, and how it makes answers of one.
"""

from __future__ import annotations

from opsassay.core.registry import Registry

ANSWER_FORMS = Registry(
    "form of answers",
    "opsassay.answers",
    {
        "rcabench": "opsassay.analysis.answers.rcabench:FORM",
        "openrca": "opsassay.analysis.answers.openrca:FORM",
        "itbench": "opsassay.analysis.answers.itbench:FORM",
        "rcaeval": "opsassay.analysis.answers.rcaeval:FORM",
        "harbor": "opsassay.analysis.answers.harbor:FORM",
        "inspect": "opsassay.analysis.answers.inspect:FORM",
    },
)

PREDICTIONS = {"whoandwhen": 0, "traceelephant": 1}
"""Forms of predictions about traces, with the number that their first step has."""
