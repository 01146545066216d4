"""opsassay new schema."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import click
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from opsassay.cli.output import NewFile, echo, json_option, print_json, print_table
from opsassay.evals.runner.plan import DEFAULT_DOMAIN

KINDS = {
    "agent": ("opsassay.solvers.agents.command:AgentFile", "an external agent, for every domain: agent.yaml"),
    "plan": ("opsassay.evals.runner.plan:TaskPlan", "a plan of `opsassay run`, of parts"),
    "trials": (
        "opsassay.evals.remediation.plan:TrialPlan",
        "a plan of `opsassay run trials`, and a part of domain sre",
    ),
    "fault": (
        "opsassay.core.schema.plan:FaultPlan",
        "what `opsassay incident record` and `opsassay system inject` break",
    ),
    "campaign": ("opsassay.testbed.campaign:CampaignPlan", "a plan of `opsassay incident campaign`"),
    "system": ("opsassay.core.schema.system:System", "a system of your own for `opsassay system up`"),
    "compose": (
        "opsassay.core.schema.system:ComposeSystem",
        "a compose project of your own, with the load of its users",
    ),
    "scenario": ("opsassay.core.schema.scenario:Scenario", "a remediation scenario"),
    "cluster": ("opsassay.testbed.substrates.kubernetes.settings:ClusterSettings", "which cluster is meant"),
    "task-set": ("opsassay.server.task_sets:TaskSet", "what agents are asked on the platform"),
    "incident": (
        "opsassay.telemetry.importers.backends.settings:PastIncident",
        "a past incident for `opsassay incident import backends`: incident.yaml",
    ),
    "recording": (
        "opsassay.telemetry.importers.stated:StatedIncident",
        "what a team states of its OTLP files: incident.yaml of `opsassay incident import otlp`",
    ),
    "annotate": ("opsassay.annotation.verdict.settings:AnnotateSettings", "settings of `opsassay incident annotate`"),
    "audit": ("opsassay.analysis.audit.settings:AuditSettings", "settings of `opsassay audit`"),
    "blame": ("opsassay.analysis.blame.settings:BlameSettings", "settings of `opsassay trace blame`"),
    "resolutions": ("opsassay.analysis.blame.annotations:Resolutions", "how annotators settled what they disagreed on"),
    "script": ("opsassay.solvers.agents.models.scripted:Script", "what a scripted model answers"),
    "intervention": (
        "opsassay.solvers.proxy.policies:StepIntervention",
        "an edit of `opsassay trace proxy --intervene`",
    ),
    "redaction": ("opsassay.solvers.proxy.redaction:RedactionRules", "what `opsassay trace redact` takes out"),
}
"""Every kind of file that users write: its model ("module:Class"), and a description."""

PARTS = {
    "diagnosis": "opsassay.evals.diagnosis.plan:IncidentPlan",
    "sre": "opsassay.evals.remediation.plan:TrialPlan",
    "ciso": "opsassay.evals.compliance.plan:CompliancePlan",
    "finops": "opsassay.evals.cost.plan:CostPlan",
    "triage": "opsassay.evals.triage.plan:TriagePlan",
}
"""The model of a plan's part, by its domain."""


@click.command("schema")
@click.argument("kind", required=False, type=click.Choice(list(KINDS)), metavar="[KIND]")
@click.option("-o", "--output", type=NewFile(), help="File to write; it is printed when left out.")
@json_option
def command(kind: str | None, output: Path | None, *, as_json: bool) -> None:
    """Print the JSON Schema of a KIND of file that people write, for editors; list the kinds when none is given."""
    if kind is not None:
        text = json.dumps(schema_of(kind), indent=1, ensure_ascii=False)
        if output is None:
            echo(text)
            return
        output.write_text(text + "\n", encoding="utf-8")
        echo(f"Written to {output}. Next: `# yaml-language-server: $schema={output}` as the first line of your file.")
    elif as_json:
        print_json("new schema", [{"kind": name, "describes": about} for name, (_, about) in KINDS.items()])
    else:
        print_table(
            "Files that people write", ("kind", "what it is"), [(name, about) for name, (_, about) in KINDS.items()]
        )


def schema_of(kind: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of the *kind* of file, one of `KINDS`, made from the model that reads it."""
    place, about = KINDS[kind]
    schema = _plan_schema() if kind == "plan" else _import_model(place).model_json_schema()
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"OpsAssay: {about}"}
    return {**schema, **head}


def _plan_schema() -> dict[str, Any]:
    """Return the JSON Schema of a run plan, of one part or several; parts of other packages' domains may hold anything."""
    models = {domain: _import_model(place) for domain, place in PARTS.items()}
    named, schema = models_json_schema([(model, "validation") for model in models.values()])
    parts: list[dict[str, Any]] = [{"type": "object", "required": ["domain"]}]
    parts[0]["properties"] = {"domain": {"type": "string", "not": {"enum": list(PARTS)}}}
    for domain, model in models.items():
        own = schema["$defs"][named[model, "validation"]["$ref"].rpartition("/")[2]]
        own["properties"]["domain"] = {"const": domain}
        if domain != DEFAULT_DOMAIN:
            own["required"] = [*own.get("required", ()), "domain"]
        parts.append(named[model, "validation"])
    several = {"type": "array", "minItems": 1, "items": {"anyOf": parts}}
    whole = {"type": "object", "properties": {"parts": several}, "required": ["parts"], "additionalProperties": False}
    return {**schema, "anyOf": [whole, *parts]}


def _import_model(path: str) -> type[BaseModel]:
    """Import the pydantic model that *path* names as "module:Class"."""
    module, _, name = path.partition(":")
    found: type[BaseModel] = getattr(importlib.import_module(module), name)
    return found
