"""What the RCA agent reads: the two prompts of OpenRCA 2.0, F.4, over our tables; no topology is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from opsassay.core.schema.incident import Incident, Window
from opsassay.solvers.agents.contract import contract
from opsassay.solvers.agents.limits import Limits
from opsassay.telemetry.schema import MODALITIES, PERIODS, SCHEMA

PROMPTS_VERSION = "1"
"""Part of the agent's configuration; raised when a prompt changes."""


def describe(incident: Incident) -> str:
    """Return all that a solver reads of *incident* beside its tables."""
    alerts = [
        f"- {_moment(alert.time_ns)} {alert.service}: {alert.message} "
        f"({alert.signal} {alert.value:.4g}, threshold {alert.threshold:.4g})"
        for alert in incident.alerts
    ]
    return "\n".join(
        [
            incident.description or "The system was reported to misbehave.",
            f"System: {incident.system}",
            f"Normal period: {_span(incident.normal)}",
            f"Abnormal period: {_span(incident.abnormal)}",
            "Alerts:" if alerts else "No alert was raised.",
            *alerts,
        ]
    )


def investigation_prompt(incident: Incident, limits: Limits) -> str:
    """Return the system prompt of the investigation, which withholds the form of the answer."""
    return _INVESTIGATE.format(
        date=_date(incident), tables=_tables(), columns=_columns(), budget=limits.tool_budget, cap=limits.tool_calls
    )


def synthesis_prompt(incident: Incident) -> str:
    """Return the system prompt of the synthesis, with the contract."""
    return _SYNTHESISE.format(date=_date(incident), contract=contract())


def synthesis_request(incident: Incident, investigation: str) -> str:
    """Return the user's message of the synthesis: the incident and what the investigation said and saw."""
    return _BEGIN.format(incident=describe(incident), investigation=investigation)


def repair_request(problem: str) -> str:
    """Return the message that asks for a better answer."""
    return (
        f"That is not an answer by the contract: {problem}. Give the whole answer again, corrected: one strict JSON "
        "object, nothing before or after it."
    )


def task_prompt(incident: Incident, limits: Limits, places: Mapping[str, str]) -> str:
    """Return the one prompt of an external agent: task, data, contract and where the answer goes.

    *places* tells where things are: view, answer, mcp where there is a server, prometheus, jaeger, loki, alertmanager and
    tempo where they are served.
    """
    lines = [f"- The telemetry lies in {places['view']}, a parquet file per table beside incident.json; read only."]
    if "mcp" in places:
        lines.append(
            "- An MCP server offers list_tables, get_schema, query_sql (DuckDB) and think over the same tables, and submit "
            f"for the answer: {places['mcp']} describes it in the usual form."
        )
    lines += [
        f"- {said[:-1]}; a query without a time is asked of the end of the recording." for said in apis_prompt(places)
    ]
    lines.append(f"- Write the answer to {places['answer']}, or print it as all that you print, or submit it by MCP.")
    return harness_prompt(incident, limits, lines)


def harness_prompt(incident: Incident, limits: Limits, places: Sequence[str]) -> str:
    """Return the prompt of an agent that any harness runs; *places* are lines that say where things are."""
    return _TASK.format(
        date=_date(incident), incident=describe(incident), places="\n".join(places), columns=_columns(),
        contract=contract(), seconds=limits.seconds, budget=limits.tool_budget, cap=limits.tool_calls,
    )  # fmt: skip


def apis_prompt(places: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sentence on where backends' APIs are, nothing where none are served."""
    if "prometheus" not in places:
        return ()
    said = (
        f"The same telemetry is served read-only by the HTTP APIs of Prometheus at {places['prometheus']}, of Jaeger "
        f"at {places['jaeger']}, of Loki at {places['loki']}, of Alertmanager at {places['alertmanager']} and of Tempo "
        f"at {places['tempo']}."
    )
    return (said,)


def _date(incident: Incident) -> str:
    """Return the day of the incident: the same incident gives the same prompt on every day."""
    return datetime.fromtimestamp(incident.abnormal.start_ns / 1e9, UTC).strftime("%Y-%m-%d")


def _moment(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _span(window: Window) -> str:
    return f"{_moment(window.start_ns)} to {_moment(window.end_ns)} UTC"


def _tables() -> str:
    return "\n".join("- " + ", ".join(f"{period}_{modality}" for modality in MODALITIES) for period in PERIODS)


def _columns() -> str:
    return "\n".join(f"- {modality}: {', '.join(columns)}" for modality, columns in SCHEMA.items())


_INVESTIGATE = """\
You are a Root Cause Analysis (RCA) expert investigating an incident of a system of services. Today's date is {date}.

## Goal
Identify the root cause(s) of the violation from the telemetry. There may be more than one, and there may be none: then
nothing is wrong. Let the data tell you how many faults there are and where they sit.

Your job in this phase is INVESTIGATION ONLY. A separate synthesis step will turn your findings into the final structured
output. Do not try to emit JSON or final answers here.

## Available data
Tables of this incident (DuckDB):
{tables}

Columns (get_schema gives their types; names with a dot need double quotes):
{columns}

## Tools
1. query_sql: one DuckDB SELECT over the tables.
2. list_tables: the tables with their sizes.
3. get_schema: columns and types of a table.
4. think: REQUIRED after each query; summarise, plan the next step.

## Hard limits
- Tool calls: aim for about {budget}; go on if the evidence genuinely warrants it. The hard cap is {cap}, at which the
  runtime forces a stop.
- Spend them efficiently: list_tables once, get_schema on the tables you actually query, the rest on query_sql.

## Playbook
1. list_tables to see what was recorded.
2. get_schema on the relevant tables (begin with abnormal_traces).
3. Compare abnormal with normal: error rates, latency, status codes, log levels, resources.
4. Follow the calls (parent_span_id to span_id) to the earliest service whose own work, not its dependency's, went wrong.
5. Decide every root cause and every edge of the propagation. Note each separately when evidence supports it.

Stop calling tools when you are done, and write down what you found with the queries that show it."""

_SYNTHESISE = """\
You are an RCA synthesiser. Today's date is {date}.
Your job: convert the investigation below into a single STRICT JSON object. Output JSON only, with no markdown, commentary
or prose.

{contract}
## Use of the investigation
- Use: query results that show anomalies, errors or elevated latency.
- Do not use: notes of the investigator's own reasoning as evidence."""

_BEGIN = """\
## Incident
{incident}

## Investigation
{investigation}

Synthesise the investigation above into ONE JSON object as specified in the system prompt. No prefix, no suffix, no markdown
fences, no explanation. Begin output now."""

_TASK = """\
You are a Root Cause Analysis (RCA) expert. Today's date is {date}. Identify the root cause(s) of this incident from its
telemetry. There may be more than one, and there may be none: then nothing is wrong.

## Incident
{incident}

## Where things are
{places}
- Tables have these columns (names with a dot need double quotes in SQL):
{columns}
- You have {seconds:g} seconds. Aim for about {budget} tool calls; the cap is {cap}.

{contract}"""
