"""The compliance agent of ITBench (D.6.4): it plans, writes policy as code, runs it, and mends what failed."""

from __future__ import annotations

from opsassay.solvers.agents.conversing import SubmittingAgent

ASSESS = """\
You are a compliance engineer. You turn one requirement into policy as code.
Plan first, with think: what has to be asked of the system, where a violation can hide, which files are to be written.
Write the files into the workspace with write_file, under the names that the task gives. Then run them with the tools that
there are, on the examples and on the target: lint, check, collect, evaluate, apply. An example that is judged wrongly shows
what the files miss; so does a kind of object or a place that no example has, so think of those too.
When a call fails, read the error, mend the file, and call again; do not repeat a call that failed as it was.
Never decide by the names of objects or hosts. Hand in the workspace with submit, once, when every example is judged as it
is called."""


class ComplianceAgent(SubmittingAgent):
    """The compliance agent: it calls tools in its workspace until it submits the policy written there."""

    name = "ciso"
    source = "ITBench (arXiv 2502.05352), D.6.4: plan, generate, run, reflect, with three repairs of a call at most"
    role, prompt = "assessor", ASSESS
