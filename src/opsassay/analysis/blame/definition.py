"""The definition of the decisive step, in one text for annotators and models."""

from __future__ import annotations

DEFINITION = """\
The decisive step is the earliest step from which the failure is inevitable, and the responsible agent is the one that \
acts at it. Judge by role and by what could still be repaired, not by which mistake is visible first: while a later \
component whose duty it is to check (a verifier, an orchestrator) could still catch a mistake, the failure is not \
inevitable. If that component lets the mistake pass, its step is decisive and it is responsible. If nobody had the duty \
to catch a mistake, the step that made it is decisive. A step that passes on what it was given, as its role demands, is \
not responsible."""
"""Source: "trace-elephant", section 2 and App. A.1."""

QUESTION = """\
Answer with one JSON object and nothing else: {"agent": "<name>", "step": <number>, "reason": "<one sentence>"}."""
