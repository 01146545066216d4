"""Checks of a Kubernetes scenario for its author."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from opsassay.core.errors import UserError
from opsassay.core.schema.cluster import CONTROL_PLANE, OnCluster
from opsassay.core.schema.scenario import OracleStep, Scenario
from opsassay.testbed.injection.preconditions import objections
from opsassay.testbed.operations.telemetry_view import LOOKS
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.substrates.kubernetes.access.kubectl import parse_kubectl
from opsassay.testbed.substrates.kubernetes.access.tools import TOOLS
from opsassay.testbed.substrates.kubernetes.actuators.mechanisms import CLUSTER
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS
from opsassay.testbed.substrates.kubernetes.scenario.populating import FILLER


@dataclass(frozen=True)
class ScenarioFinding:
    """A problem of a scenario at the dotted *field*; only an *error* makes the check fail."""

    field: str
    message: str
    error: bool = True


LOOKING = {name.replace("_", " "): tool.arguments for name, tool in LOOKS.items()}
VERBS = {**LOOKING, **{name: tool.arguments for name, tool in TOOLS.items() if name not in LOOKS}}
"""Verbs of oracles on a cluster -> the models of their arguments."""
_WORKER = re.compile(r"\{worker(\d+)\}")


def entities_on_cluster(scenario: Scenario) -> set[str]:
    """Return the names of all objects and nodes that *scenario* creates or changes on its cluster."""
    block = scenario.cluster
    if block is None:
        return set()
    named = {one.name for one in (*block.objects, *block.changes)} | {state.name for state in block.until}
    granted = {f"{{worker{number}}}" for number in range(1, block.workers + 1)}
    return named | granted | {CONTROL_PLANE, FILLER} | _created_by_oracles(scenario)


def _created_by_oracles(scenario: Scenario) -> set[str]:
    """Return the names of objects that oracles create with `kubectl create KIND NAME`."""
    steps = [step.arguments.get("args") or [] for oracle in scenario.oracles.values() for step in oracle.steps]
    return {str(words[2]) for words in steps if len(words) > 2 and words[0] == "create"}


def on_cluster(scenario: Scenario) -> Iterator[ScenarioFinding]:
    """Yield a finding per problem of the scenario's `cluster` block and of oracle steps that use it."""
    if (block := scenario.cluster) is None:
        return
    yield from _check_kinds(block)
    for number, plan in enumerate(scenario.trigger.faults):
        if any(part.target is not None and part.target.host for part in plan.parts):
            continue  # which nodes there are is known when it runs
        for one in objections(system_of(scenario), plan, CLUSTER.refusal):
            yield ScenarioFinding(f"trigger.faults.{number}.{one.field}", str(one.error).rstrip("."))
    if block.nodes and not block.exclusive:
        yield ScenarioFinding(
            "cluster.exclusive", "a broken node is felt by every system on the cluster; say `exclusive: true`"
        )
    most = max((int(number) for number in _WORKER.findall(scenario.model_dump_json())), default=0)
    if most > block.workers:
        yield ScenarioFinding("cluster.workers", f"{{worker{most}}} is named, and {block.workers} nodes are asked for")
    for name, oracle in scenario.oracles.items():
        for number, step in enumerate(oracle.steps):
            if problem := _check_step(step, block):
                yield ScenarioFinding(f"oracles.{name}.steps.{number}", problem)


def _check_kinds(block: OnCluster) -> Iterator[ScenarioFinding]:
    """Yield a finding per object, change or condition whose Kubernetes kind is not supported."""
    for field in ("objects", "changes", "until"):
        for number, one in enumerate(getattr(block, field)):
            if one.kind not in KINDS:
                yield ScenarioFinding(f"cluster.{field}.{number}.kind", f"there is no kind {one.kind!r} here")


def _check_step(step: OracleStep, block: OnCluster) -> str | None:
    """Return why the tools would refuse the oracle's *step* on this cluster, None when they would not."""
    if step.verb == "node" and step.arguments.get("op") not in block.node_tool:
        return f"{step.arguments.get('op')} at nodes is not granted; add it to cluster.node_tool"
    if step.verb in LOOKING and block.silent:
        return f"{step.verb}: its services send no telemetry here that could be looked at"
    if step.verb not in ("kubectl", "kubectl_read"):
        return None
    try:
        parse_kubectl([str(word) for word in step.arguments.get("args") or ()], has_input="input" in step.arguments)
    except UserError as error:
        return str(error)
    return None
