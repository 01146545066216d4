"""The prompts of the RCA agent and of external agents, after OpenRCA 2.0, F.4; they give no topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from opsassay.core.schema.files import packaged_yaml
from opsassay.core.schema.incident import Incident, Window
from opsassay.solvers.agents.contract import contract
from opsassay.solvers.agents.limits import Limits
from opsassay.telemetry.schema import MODALITIES, PERIODS, SCHEMA

PROMPTS_VERSION = "1"
"""Part of the agent's configuration; raised when a prompt changes."""
_PROMPTS: Mapping[str, str] = packaged_yaml(__package__, "prompts.yaml")


def describe(incident: Incident) -> str:
    """Return the description of *incident* for prompts: system, both periods and every alert; no telemetry."""
    alerts = [
        f"- {_format_instant(alert.time_ns)} {alert.service}: {alert.message} "
        f"({alert.signal} {alert.value:.4g}, threshold {alert.threshold:.4g})"
        for alert in incident.alerts
    ]
    return "\n".join(
        [
            incident.description or "The system was reported to misbehave.",
            f"System: {incident.system}",
            f"Normal period: {_format_window(incident.normal)}",
            f"Abnormal period: {_format_window(incident.abnormal)}",
            "Alerts:" if alerts else "No alert was raised.",
            *alerts,
        ]
    )


def investigation_prompt(incident: Incident, limits: Limits) -> str:
    """Return the system prompt for investigating *incident* within *limits*, without the answer's format."""
    return _PROMPTS["investigate"].format(
        date=_incident_date(incident),
        tables=_list_tables(),
        columns=_list_columns(),
        budget=limits.tool_budget,
        cap=limits.tool_calls,
    )


def synthesis_prompt(incident: Incident) -> str:
    """Return the system prompt for writing the answer, with the answer contract."""
    return _PROMPTS["synthesise"].format(date=_incident_date(incident), contract=contract())


def synthesis_request(incident: Incident, investigation: str) -> str:
    """Return the user message for writing the answer: the incident and the *investigation* as text."""
    return _PROMPTS["begin"].format(incident=describe(incident), investigation=investigation)


def repair_request(problem: str) -> str:
    """Return the message that asks the model to correct an invalid answer; *problem* is the error of the contract."""
    return (
        f"That is not an answer by the contract: {problem}. Give the whole answer again, corrected: one strict JSON "
        "object, nothing before or after it."
    )


def task_prompt(incident: Incident, limits: Limits, places: Mapping[str, str]) -> str:
    """Return the prompt of an external agent: task, data, answer contract and the place of the answer.

    *places* are paths and addresses by name: view (the tables) and answer, where served also mcp, prometheus, jaeger, loki,
    alertmanager and tempo.
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
    """Return the prompt of an agent run by another test harness; *places* are lines on where its files are."""
    return _PROMPTS["task"].format(
        date=_incident_date(incident), incident=describe(incident), places="\n".join(places), columns=_list_columns(),
        contract=contract(), seconds=limits.seconds, budget=limits.tool_budget, cap=limits.tool_calls,
    )  # fmt: skip


def apis_prompt(places: Mapping[str, str]) -> tuple[str, ...]:
    """Return one sentence on the addresses of observability APIs in *places*; an empty tuple without "prometheus"."""
    if "prometheus" not in places:
        return ()
    said = (
        f"The same telemetry is served read-only by the HTTP APIs of Prometheus at {places['prometheus']}, of Jaeger "
        f"at {places['jaeger']}, of Loki at {places['loki']}, of Alertmanager at {places['alertmanager']} and of Tempo "
        f"at {places['tempo']}."
    )
    return (said,)


def _incident_date(incident: Incident) -> str:
    """Return the incident's day (YYYY-MM-DD, UTC), which prompts give as today's so that they are reproducible."""
    return datetime.fromtimestamp(incident.abnormal.start_ns / 1e9, UTC).strftime("%Y-%m-%d")


def _format_instant(time_ns: int) -> str:
    """Return *time_ns* as "YYYY-MM-DD hh:mm:ss" in UTC."""
    return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _format_window(window: Window) -> str:
    """Return start and end of *window* as UTC text."""
    return f"{_format_instant(window.start_ns)} to {_format_instant(window.end_ns)} UTC"


def _list_tables() -> str:
    """Return the names of all telemetry tables, one line per period."""
    return "\n".join("- " + ", ".join(f"{period}_{modality}" for modality in MODALITIES) for period in PERIODS)


def _list_columns() -> str:
    """Return the columns of each kind of table, one line per kind."""
    return "\n".join(f"- {modality}: {', '.join(columns)}" for modality, columns in SCHEMA.items())
