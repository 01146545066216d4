"""Checks for the author of a scenario: complexity, the verification depth that its faults need, and inconsistencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from opsassay.core.schema.base import Written
from opsassay.core.schema.faults import NO_FAULT, Category, fault_type
from opsassay.core.schema.scenario import FaultLayer, Scenario
from opsassay.core.schema.system import System
from opsassay.core.schema.trajectory import Depth
from opsassay.core.schema.validation_errors import problem
from opsassay.evals.remediation.authoring.cluster import VERBS, ScenarioFinding, entities_on_cluster, on_cluster
from opsassay.testbed.operations.state_alerts import DEFINITIONS
from opsassay.testbed.operations.tools import operator_tools
from opsassay.testbed.scenarios import system_of
from opsassay.testbed.scenarios.generated.impact_closure import longest
from opsassay.testbed.substrates.local.operations import BREAKING

DEPTH_OF_LAYER: dict[FaultLayer, Depth] = {
    "node": "D1",
    "pod": "D1",
    "scheduling": "D1",
    "store": "D3",
    "application": "D3",
    "service": "D3",
    "name_service": "D3",
    "network": "D3",
    "policy": "D3",
    "control_plane": "D4",
}
"""The lowest observation depth at or above each layer (Table 6). D2 is never it: endpoints are no proxy for a request.
Stores, applications, names and networks are ours: what is wrong there shows first to whoever sends a request."""

LAYER_OF_CATEGORY: dict[Category, FaultLayer] = {
    Category.POD: "pod",
    Category.STRESS: "application",  # a replica that is short of CPU or memory stays ready
    Category.HTTP: "service",
    Category.DNS: "name_service",
    Category.NETWORK: "network",
    Category.TIME: "application",
    Category.JVM: "application",
}

LAYER_OF_VERB: dict[str, FaultLayer] = {
    "config": "application",
    "release": "application",
    "secret": "application",
    "clock": "application",
    "consumer": "application",
    "pool": "application",
    "firewall": "policy",
    "dns": "name_service",
    "scale": "scheduling",
    "restart": "pod",
    "stop": "pod",
    "hang": "application",
}
"""The layer that a verb changes, by the first word of the verb."""


def layers(scenario: Scenario) -> tuple[FaultLayer, ...]:
    """Return the layers of the system that the trigger changes: the declared one, else those of its faults and verbs."""
    if scenario.trigger.layer is not None:
        return (scenario.trigger.layer,)
    parts = [part for plan in scenario.trigger.faults for part in plan.parts if part.fault != NO_FAULT]
    found = [LAYER_OF_CATEGORY[fault_type(part.fault).category] for part in parts]
    found += [
        LAYER_OF_VERB[word] for call in scenario.trigger.operations if (word := call.verb.split()[0]) in LAYER_OF_VERB
    ]
    return tuple(dict.fromkeys(found))


def proposed_depth(scenario: Scenario) -> Depth | None:
    """Return the verification depth (D1 to D4) that the trigger's deepest layer needs, None without a layer."""
    return max((DEPTH_OF_LAYER[layer] for layer in layers(scenario)), default=None)


ALERT_DELAY_S = 4.0
"""Seconds from an instant until the alert rules have been evaluated for it."""
NAME_SERVER = "names"
"""The entity at which faults of the name service are; it is no service of the system."""


Verbs = Mapping[str, type[Written]]
"""The operations of an operator: verb to the model of its arguments."""


def has_own_stage(scenario: Scenario) -> bool:
    """Return whether *scenario* runs on a user's Compose file, whose services and verbs are unknown here."""
    return scenario.environment.substrate == "compose"


def findings_here(scenario: Scenario) -> list[ScenarioFinding]:
    """Return the problems of *scenario*, checked against its own system and tools; raises as `system_of`."""
    system = None if has_own_stage(scenario) else system_of(scenario)
    tools = operator_tools(system) if system is not None else {}
    return findings(scenario, system, {t.verb or name.replace("_", " "): t.arguments for name, t in tools.items()})


def findings(scenario: Scenario, system: System | None, verbs: Verbs) -> list[ScenarioFinding]:
    """Return the problems of *scenario*: its depth, names that *system* lacks, calls that are not in *verbs*.

    Names and calls are not checked when *system* is None, as for Compose.
    """
    return [
        *_check_depth(scenario),
        *(_check_names(scenario, system) if system is not None else ()),
        *(_check_calls(scenario, verbs) if system is not None else ()),
        *on_cluster(scenario),
        *_check_oracles(scenario),
        *_check_record_length(scenario),
    ]


def _check_depth(scenario: Scenario) -> list[ScenarioFinding]:
    """Return a finding if the declared verification depth differs from the one that the broken layer needs; else []."""
    committed, proposed = scenario.verification.committed_depth, proposed_depth(scenario)
    if scenario.no_fault or proposed == committed:
        return []
    if proposed is None:
        return [ScenarioFinding("trigger", "no layer is named, so no depth can be proposed; say `layer`", error=False)]
    where = ", ".join(layers(scenario))
    shallower = committed < proposed
    remark = "cannot show what happens there" if shallower else "is deeper than that; say why in the description"
    return [
        ScenarioFinding(
            "verification.committed_depth",
            f"a fault of the {where} layer asks for {proposed}; {committed} {remark}",
            error=shallower,
        )
    ]


def _check_names(scenario: Scenario, system: System) -> list[ScenarioFinding]:
    """Return a finding for each name in truth and verification that *system* lacks, and for a too long propagation."""
    services, entries = set(system.services), system.entries()
    known = services | set(system.stores) | set(system.hosts) | {NAME_SERVER} | entities_on_cluster(scenario)
    found = [
        ScenarioFinding("truth", f"{name} is no service, store or host of {system.system}")
        for name in (*scenario.truth.root_causes, *scenario.truth.entities)
        if name not in known and name.rpartition("-")[0] not in services
    ]
    if not scenario.no_fault and not scenario.named_entities():
        found.append(ScenarioFinding("truth", "the truth names nothing; give root_causes"))
    chain = [(step.source, step.target) for step in scenario.truth.propagation]
    if (length := longest(chain, scenario.true_causes())) > scenario.difficulty.propagation:
        found.append(ScenarioFinding("difficulty.propagation", f"the truth's longest way has {length} entities"))
    committed = scenario.verification
    found += [
        ScenarioFinding("verification.protected_services", f"{name} is no entry of {system.system}: no user calls it")
        for name in committed.protected_services
        if name not in entries
    ]
    if committed.control_plane is not None and scenario.cluster is None:
        found.append(ScenarioFinding("verification.control_plane", "only a cluster has one that could be asked"))
    for rule in committed.alerts.triggering if committed.alerts else ():
        if rule.service and rule.service not in known:
            found.append(ScenarioFinding("verification.alerts", f"{rule.service} is no service of {system.system}"))
    kinds = {kind.request for kind in system.load.mix}
    found += [
        ScenarioFinding("verification.impact.weights", f"{kind!r} is no request of the load of {system.system}")
        for kind in (committed.impact.weights if committed.impact else ())
        if kind not in kinds
    ]
    found += _check_own_load(scenario, system) if system.load.command else ()
    services |= entities_on_cluster(scenario)
    placed = [rule.service for rule in committed.placement.spread] if committed.placement else []
    placed += [name for pair in committed.placement.apart for name in pair] if committed.placement else []
    return found + [
        ScenarioFinding("verification.placement", f"{name} is no service of {system.system}")
        for name in placed
        if name not in services
    ]


def _check_own_load(scenario: Scenario, system: System) -> Iterator[ScenarioFinding]:
    """Yield a finding per setting that a user's own load command, as in *system*, cannot satisfy."""
    load = f"the load of {system.system} is {system.load.command_line}"
    if scenario.verification.impact is not None:
        yield ScenarioFinding("verification.impact", f"what users lose is not known: {load}; leave it out")
    if scenario.environment.rate_rps is not None:
        yield ScenarioFinding("environment.rate_rps", f"{load}, which alone says how much it sends; leave it out")
    for number, change in enumerate(scenario.trigger.operations):
        if change.verb == "load dip":
            yield ScenarioFinding(f"trigger.operations.{number}", f"{load}, which alone says how much it sends")


def _check_calls(scenario: Scenario, verbs: Verbs) -> Iterator[ScenarioFinding]:
    """Yield a finding per call, of an oracle or the trigger, with an unknown verb or invalid arguments."""
    verbs = verbs if scenario.cluster is None else VERBS
    calls = [
        (f"oracles.{name}.steps.{number}", step.verb, step.arguments)
        for name, oracle in scenario.oracles.items()
        for number, step in enumerate(oracle.steps)
        if step.verb is not None
    ]
    for where, verb, arguments in calls:
        if problem := _complain_about_call(verb, arguments, verbs):
            yield ScenarioFinding(where, problem)
    for number, change in enumerate(scenario.trigger.operations):
        if change.verb not in BREAKING and (problem := _complain_about_call(change.verb, change.arguments, verbs)):
            yield ScenarioFinding(f"trigger.operations.{number}", problem)


def _complain_about_call(verb: str, arguments: Mapping[str, Any], verbs: Verbs) -> str | None:
    """Return what is wrong with a call of *verb*, None when verb and arguments are valid."""
    if verb not in verbs:
        return f"there is no verb {verb!r}"
    model = verbs[verb]
    try:
        model.model_validate(dict(arguments), strict=True)
    except ValidationError as error:
        return f"{verb}: {problem(error)}; it takes {', '.join(model.model_fields) or 'none'}"
    return None


def _check_record_length(scenario: Scenario) -> list[ScenarioFinding]:
    """Return a finding per time window that ends after the recording, if the agent stops at once."""
    committed = scenario.verification
    aftermath_s = max(scenario.environment.aftermath_s, committed.settling.hold_s if committed.settling else 0.0)
    found = []
    if committed.alerts is not None and committed.alerts.hold_s + ALERT_DELAY_S > aftermath_s:
        found.append(("verification.alerts.hold_s", f"{committed.alerts.hold_s:g} s and {ALERT_DELAY_S:g} s of delay"))
    for number, rule in enumerate(committed.alerts.triggering if committed.alerts else ()):
        for_s = DEFINITIONS[rule.signal].for_s
        if for_s + committed.gap_s + ALERT_DELAY_S > aftermath_s:  # what is broken again would end unseen
            what = f"{for_s:g} s of {rule.signal} before it fires again, {committed.gap_s:g} s from reading to reading"
            found.append((f"verification.alerts.triggering.{number}", f"{what} and {ALERT_DELAY_S:g} s of delay"))
    if committed.temporal_window_s is not None and committed.temporal_window_s > aftermath_s:
        found.append(("verification.temporal_window_s", f"{committed.temporal_window_s:g} s"))
    probed = committed.settling is not None and "D3" in (committed.committed_depth, committed.temporal_depth)
    if probed and committed.probe_every_s is not None and committed.probe_every_s > aftermath_s:
        found.append(("verification.probe_every_s", f"{committed.probe_every_s:g} s from probe to probe"))
    return [
        ScenarioFinding(field, f"{what} do not fit into what is recorded after the agent, {aftermath_s:g} s")
        for field, what in found
    ]


def _check_oracles(scenario: Scenario) -> list[ScenarioFinding]:
    """Return a remark if no oracle passes V_outcome, the usual final check, and fails another predicate; else []."""
    hidden = [o for o in scenario.oracles.values() if o.fails and "v_outcome" not in o.fails]
    if hidden or scenario.no_fault:
        return []
    message = "no oracle passes V_outcome and fails another predicate, so nothing shows what the verifier is for"
    return [ScenarioFinding("oracles", message, error=False)]
