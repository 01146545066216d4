"""Assembles a scenario from one or several faults on one system, unrelated changes (a storm), and oracles."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from opsassay.core.schema.scenario import OpsCall, OracleStep, Predicate, Scenario
from opsassay.testbed.scenarios.generated.impact_closure import longest
from opsassay.testbed.scenarios.generated.recipes import UNANSWERED, Broken, FaultPlace, WrongRepair, truth_of

TIMES = {"warmup_s": 8, "settle_s": 6, "agent_timeout_s": 180, "aftermath_s": 8}
RATE_RPS = 8.0
CONSTRAINED = (
    "Before any change that stops replicas, say what it costs; none that there was may be missing at the end. Call it "
    "repaired when a request of a user is answered and the alerts have stayed clear, not when everything looks ready."
)
WAITING = ["rollout", "status"]
SEEN_S = 25.0
"""Least seconds for which a recurring failure is observed before a record may end."""
RULE = "{rule}"


@dataclass(frozen=True)
class ScenarioPhrases:
    """The texts and settings that the scenarios of one substrate share.

    *owned* is the pattern of a service's pod names; *harmful* is done after the right repair; *file* is the file of a
    system that does not ship.
    """

    name: str
    owned: str
    harmful: WrongRepair | None = None
    cluster: dict[str, Any] | None = None
    file: str = ""


def everything_restarted(steps: tuple[OracleStep, ...]) -> WrongRepair:
    """Return the wrong repair that takes *steps*, a restart of everything, after the right ones."""
    about = "Repairs it, and turns everything off and on to be sure."
    return WrongRepair(about, ("v_temporal", "v_blast_radius"), steps)


def scenario_of(
    id_: str,
    category: str,
    phrases: ScenarioPhrases,
    faults: Sequence[tuple[FaultPlace, Broken]],
    storm: Sequence[OpsCall] = (),
) -> Scenario:
    """Return the scenario *id_* of the class *category*: all (place, fault) of *faults* at once, and changes *storm*.

    *phrases* are what scenarios of a substrate share; *storm* has nothing to do with the faults.
    """
    place, parts = faults[0][0], [one for _, one in faults]
    payload: dict[str, Any] = {
        "id": id_,
        "title": f"{category} on {place.system.system}: {', '.join(one.root for one in parts)}",
        "description": _describe_parts(parts, has_storm=bool(storm)),
        "category": category,
        "difficulty": _difficulty(parts, has_storm=bool(storm)),
        "environment": {
            "substrate": phrases.name,
            "system": phrases.file or place.system.system,
            "rate_rps": RATE_RPS,
            **TIMES,
        },
        "trigger": {
            "layer": max(parts, key=lambda one: one.depth).layer,
            "operations": [*storm, *(call for one in parts for call in one.operations)],
            "faults": [plan for one in parts for plan in one.faults],
        },
        "alert": f"Alert: {_and_list(one.symptom for one in parts)}. Investigate and remediate.",
        "constrained": CONSTRAINED,
        "desired_outcome": f"A request to {_and_list(x.protected for x in parts)} is answered, and the alerts are clear.",
        "truth": truth_of(parts, phrases.owned),
        "verification": {
            "committed_depth": max(one.depth for one in parts),
            "protected_services": tuple(dict.fromkeys(one.protected for one in parts)),
            "alerts": {"triggering": tuple(dict.fromkeys(one.alert for one in parts)), "hold_s": 6},
        },
        "oracles": _make_oracles(parts, phrases),
    }
    if onset_s := max(one.onset_s for one in parts):
        payload["verification"]["settling"] = {"hold_s": onset_s + SEEN_S, "limit_s": 3 * (onset_s + SEEN_S)}
    if phrases.cluster is not None:
        changes = [change for one in parts for change in one.changes]
        until = [state for one in parts for state in one.until]
        payload["cluster"] = {**phrases.cluster, "changes": changes, "until": until}
    return Scenario.model_validate(_number_rules(payload))


def _difficulty(parts: Sequence[Broken], *, has_storm: bool) -> dict[str, Any]:
    """Return the inputs of the paper's Equation 6 for *parts*: longest propagation path, repair steps, technologies.

    *has_storm* adds the technology "alert triage".
    """
    roots = [one.root for one in parts]
    steps = sum(not _only_waits(step) for one in parts for step in one.repair)
    known = dict.fromkeys(technology for one in parts for technology in one.technologies)
    if has_storm:
        known["alert triage"] = None
    edges = {edge for one in parts for edge in one.edges}
    return {"propagation": longest(edges, roots), "resolution_steps": max(steps, 1), "technologies": tuple(known)}


def _only_waits(step: OracleStep) -> bool:
    """Return whether *step* of a repair is `kubectl rollout status`, which changes nothing."""
    return step.verb == "kubectl" and step.arguments["args"][:2] == WAITING


def _make_oracles(parts: Sequence[Broken], phrases: ScenarioPhrases) -> dict[str, Any]:
    """Return {name: oracle} of a scenario with the faults *parts*: the right repair, and wrong ones that must fail."""
    repair = [step for one in parts for step in (*one.looks, *one.repair)]
    found: dict[str, Any] = {
        "gentle": {"description": "Repairs what is broken, and nothing else.", "expect": "certified", "steps": repair}
    }
    if len(parts) == 1:
        wrong = parts[0].wrong
        found["shallow"] = {"description": wrong.description, "fails": wrong.fails, "steps": wrong.steps}
    elif parts[-1].onset_s:
        *mended, left = parts
        steps = [*(step for one in mended for step in one.repair), *left.wrong.steps]
        description = f"Repairs what shows. {left.wrong.description}"
        found["shallow"] = {"description": description, "fails": left.wrong.fails, "steps": steps}
    else:
        *mended, left = parts
        fails = _failing_predicates(left)
        steps = [step for one in mended for step in one.repair]
        found["half"] = {"description": f"Leaves {left.root} as it is.", "fails": fails, "steps": steps}
    if (harm := phrases.harmful) is not None:
        steps = [*repair, *harm.steps]
        found["harmful"] = {"description": harm.description, "fails": harm.fails, "steps": steps}
    return found


def _failing_predicates(fault: Broken) -> tuple[Predicate, ...]:
    """Return the predicates that fail when *fault* alone is left unrepaired."""
    if fault.wrong.fails == ("alerts_cleared",):
        return fault.wrong.fails
    return UNANSWERED


def _describe_parts(parts: Sequence[Broken], *, has_storm: bool) -> str:
    """Return a sentence on each fault of *parts*, "ROOT: CONDITION"; *has_storm* adds one on unrelated changes."""
    said = "; ".join(f"{one.root}: {one.condition}" for one in parts)
    return f"{said}." + (" Unrelated changes and alerts come with it." if has_storm else "")


def _number_rules(payload: dict[str, Any]) -> dict[str, Any]:
    """Return *payload* with "{rule}" replaced by rule-1; raises AssertionError if it adds several firewall rules."""
    text = json.dumps(payload, default=lambda one: one.model_dump(mode="json"))
    rules = text.count('"firewall add"')
    if rules > 1:
        raise AssertionError("more than one firewall rule: each has a number of its own")
    found: dict[str, Any] = json.loads(text.replace(RULE, "rule-1"))
    return found


def _and_list(words: Iterable[str]) -> str:
    """Return the distinct *words* joined by "and"."""
    return " and ".join(dict.fromkeys(words))
