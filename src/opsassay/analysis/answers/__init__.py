"""Answers given outside of OpsAssay, read in their own formats ("forms"); packages add some by `opsassay.answers`.

A form is an `AnswerForm`: which files it reads, how it recognises them, and how it reads answers from one.
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
"""Forms of predictions about traces, with the number of their first step."""
