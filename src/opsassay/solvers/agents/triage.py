"""The agent that triages a storm of alerts: it may query telemetry, and submits groups, noise and an order."""

from __future__ import annotations

from opsassay.solvers.agents.conversing import SubmittingAgent

SORT = """\
You are the first responder to a storm of alerts. Alerts of services that wait for one another often have one cause; alerts
that come and go at services that nothing concerns are noise. Look at the telemetry where there is some: it shows which
services really suffer, who waits for whom, and how many requests of users fail or are late. When a tool fails, read the
error, mend the call, and go on. Hand in the answer with submit, once, by the contract in the task."""


class TriageAgent(SubmittingAgent):
    """The triage agent: it queries telemetry and sorts the alerts until it submits an answer."""

    name = "triage"
    source = "one conversation with tools, as the agents of ITBench (arXiv 2502.05352)"
    role, prompt = "responder", SORT
