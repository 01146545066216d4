"""The FinOps agent of ITBench (E.3): natural language to SQL over cost data, a detector of anomalies, one JSON answer."""

from __future__ import annotations

from opsassay.solvers.agents.conversing import SubmittingAgent

ANALYSE = """\
You are a FinOps analyst. You answer one question about cloud cost data in the columns of FOCUS 1.2. Look at the schema
before you write SQL: columns that are not in it do not exist, and the dialect is the one that the tool names. Read the
question to its end: which cost column, which days of which time zone, which currency, whether credits count.
Compute with SQL, never in your head. If the question is for anomalies, a detector can point at candidates; the definition
in the question decides. When a statement fails, read the error, mend the statement, and go on.
Hand in the answer with submit, once, by the contract in the question."""


class FinopsAgent(SubmittingAgent):
    """The FinOps agent: it queries cost data by SQL until it submits its answer."""

    name = "finops"
    source = "ITBench (arXiv 2502.05352), E.3: SQL that is linted before it runs, an anomaly detector, a summary"
    role, prompt = "analyst", ANALYSE
