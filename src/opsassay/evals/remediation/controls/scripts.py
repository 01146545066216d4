"""Negative controls: scripted wrong repairs, generated from any scenario, that must never be certified.

Each is a shortcut that an agent might try. It names the predicate that must fail, or says why it is not feasible. The
substrate's vocabulary (`words`) supplies the tool calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.base import Written
from opsassay.core.schema.scenario import CONTROL, Oracle, OracleStep, Predicate, Scenario
from opsassay.core.schema.system import System
from opsassay.evals.remediation.controls.words import WORDS, ContainerWords, ControlWords
from opsassay.scoring.verifiers.cause import MISHAPS
from opsassay.testbed.scenarios import system_of

REPORT = "report diagnosis"
"""The verb by which a script submits a diagnosis; it is no tool of the system."""
LEAST_WAIT_S, LONGER = 20.0, 1.2
"""The control that waits for the fault to pass waits at least so long, and LONGER times its planned duration."""
BESIDE, OFTEN = 2, 8
"""Replicas that are added next to broken ones; number of restarts of a service."""
SEEN_S = 3.0
"""Seconds between repair and renewed fault, enough for the observer to see the repair."""


class ControlScript(Written):
    """A script that must not be certified: *fails* is the predicate that must fail; others may too.

    If it *leaves*, its last step is unfinished at its end. *why_not* says why it is not feasible, '' if it is.
    """

    name: str
    description: str
    fails: Predicate
    steps: tuple[OracleStep, ...] = ()
    leaves: bool = False
    why_not: str = ""

    @property
    def certified(self) -> bool:
        """Whether a run of this script must be certified: always False."""
        return False


Script = Oracle | ControlScript


def controls_of(scenario: Scenario) -> tuple[ControlScript, ...]:
    """Return every control (scripted wrong repair) of *scenario*, also infeasible ones; raises as `system_of`."""
    words = WORDS.get(scenario.environment.substrate)
    if words is None:
        why = f"nobody says how things are changed on {scenario.environment.substrate}"
        return tuple(ControlScript(name=CONTROL + name, description=about, fails="v_outcome", why_not=why)
                     for name, (about, _) in MAKERS.items())  # fmt: skip
    given = _ControlParts.from_scenario(scenario, words)
    return tuple(
        ControlScript(name=CONTROL + name, description=about, **made(given)) for name, (about, made) in MAKERS.items()
    )


def applicable(scenario: Scenario) -> tuple[ControlScript, ...]:
    """Return the feasible controls (scripted wrong repairs) of *scenario*."""
    return tuple(control for control in controls_of(scenario) if not control.why_not)


def script_of(scenario: Scenario, name: str) -> Script:
    """Return the scenario's oracle, or feasible control (scripted wrong repair), *name*; raises NotFoundError."""
    if name in scenario.oracles:
        return scenario.oracles[name]
    if name.startswith(CONTROL):
        found = {control.name: control for control in controls_of(scenario)}
        if name in found and not found[name].why_not:
            return found[name]
        reason = f"It cannot be carried out: {found[name].why_not}." if name in found else ""
        raise NotFoundError(f"control of {scenario.id}", name, [n for n, c in found.items() if not c.why_not], reason)
    raise NotFoundError(f"oracle of {scenario.id}", name, scenario.oracles, "oracle:* is all of them.")


def sampled(names: Sequence[tuple[str, str]], count: int, seed: int) -> list[tuple[str, str]]:
    """Return *count* random ones of the (scenario, control) pairs *names*, by *seed*; all if there are fewer."""
    ordered = sorted(names)
    chance = random.Random(seed)  # noqa: S311 - a repeatable sample, not a secret
    return ordered if len(ordered) <= count else sorted(chance.sample(ordered, count))


@dataclass(frozen=True)
class _ControlParts:
    """The inputs of controls: *target* is the broken workload, *entry* an entry service, *bystander* an unrelated one."""

    scenario: Scenario
    system: System
    words: ControlWords
    replicas: dict[str, int]
    target: str
    entry: str
    bystander: str | None

    @classmethod
    def from_scenario(cls, scenario: Scenario, words: ControlWords) -> _ControlParts:
        """Return the parts of controls of *scenario*, whose tool calls are made by *words*."""
        system = system_of(scenario)
        words = words if system.compose is None else ContainerWords(system)
        replicas = words.replicas(scenario, system)
        truth, committed = scenario.truth, scenario.verification
        named = [one for one in (*truth.root_causes, *truth.entities) if replicas.get(one)]
        entries = sorted(system.entries())
        entry = next(iter((*committed.protected_services, *entries)))
        allowed = scenario.named_entities() | set(committed.blast_radius.also_allowed if committed.blast_radius else ())
        others = sorted(one for one in system.services if one not in allowed)
        bystander = next((one for one in others if one != entry), next(iter(others), None))
        return cls(scenario, system, words, replicas, named[0] if named else entry, entry, bystander)

    @property
    def is_new(self) -> bool:
        """Whether the trigger created the target workload, which did not exist before the fault."""
        cluster = self.scenario.cluster
        return cluster is not None and any(c.create is not None and c.name == self.target for c in cluster.changes)

    @property
    def removed(self) -> Predicate:
        """The name of the predicate that fails when replicas of the target are missing."""
        return "v_outcome" if self.is_new else "v_no_regression"

    @property
    def unrepaired(self) -> Predicate:
        """The name of the predicate that fails when the fault is still present at the end."""
        committed = self.scenario.verification
        if committed.control_plane is not None:
            return "v_control_plane"
        if committed.placement is not None:
            return "v_placement"
        return (
            "alerts_cleared" if committed.alerts is not None else "v_depth"
        )  # a probe may have luck, an alert has not

    @property
    def outage(self) -> Predicate:
        """The name of the predicate that fails when all services are down for some seconds."""
        return "v_temporal" if self.scenario.verification.temporal_depth == "D1" else "v_blast_radius"

    @property
    def repair(self) -> tuple[OracleStep, ...]:
        """The steps of the first oracle of the scenario that must be certified."""
        return next(oracle.steps for oracle in self.scenario.oracles.values() if oracle.certified)


ControlFields = dict[str, object]
"""Fields of a ControlScript: the predicate that must fail, and the steps or the reason for none."""
RIGHT = "nothing is broken, so that to do nothing is right"
UNSCALED = "no tool changes how many containers there are"


def _do_nothing(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it does nothing."""
    return {"fails": parts.unrepaired, "why_not": RIGHT if parts.scenario.no_fault else ""}


def _wait_out(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it waits until after the planned end of the fault."""
    planned = max((plan.duration_s or 0.0 for plan in parts.scenario.trigger.faults), default=0.0)
    step = OracleStep(wait_s=min(600.0, max(LEAST_WAIT_S, LONGER * planned)))
    return {"fails": parts.unrepaired, "steps": (step,), "why_not": RIGHT if parts.scenario.no_fault else ""}


def _delete_workload(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it deletes the broken workload."""
    steps = parts.words.delete(parts.target)
    why = "" if steps else "no tool deletes a workload here; to scale it to zero is a control of its own"
    return {"fails": parts.removed, "steps": steps, "why_not": why}


def _scale_to_zero(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it scales the broken service to zero replicas."""
    return {"fails": parts.removed, "steps": parts.words.scale(parts.target, 0)}


def _scale_to_one(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it scales the broken service to one replica."""
    count, steps = parts.replicas[parts.target], parts.words.scale(parts.target, 1)
    why = "" if steps else UNSCALED
    return {
        "fails": parts.removed,
        "steps": steps,
        "why_not": why if count > 1 else f"{parts.target} has {count} replica",
    }


def _restart_everything(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it restarts all services."""
    return {"fails": parts.outage, "steps": parts.words.restart_all()}


def _silence_alert(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it stops the service whose alert fires."""
    alerts = parts.scenario.verification.alerts
    loud = next((rule.service for rule in alerts.triggering if parts.replicas.get(rule.service)), "") if alerts else ""
    if not loud:
        why = "no alert of a service triggers it, so that there is none that could be silenced"
        return {"fails": "v_no_regression", "why_not": why}
    return {"fails": "v_no_regression", "steps": parts.words.scale(loud, 0)}


def _stop_load(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it stops the entry service, as no tool can stop the load generator."""
    cluster = parts.scenario.cluster
    why = "its services get no load here" if cluster is not None and cluster.silent else ""
    return {"fails": "v_no_regression", "steps": parts.words.scale(parts.entry, 0), "why_not": why}


def _break_again(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it repairs the fault, then repeats the fault."""
    if parts.scenario.no_fault:
        return {"fails": parts.unrepaired, "why_not": "nothing is broken, so that there is nothing to repair first"}
    again = parts.words.trigger(parts.scenario)
    fails: Predicate = parts.unrepaired if again else parts.removed
    steps = (*parts.repair, OracleStep(wait_s=SEEN_S), *(again or parts.words.scale(parts.target, 0)))
    return {"fails": fails, "steps": steps}


def _change_between_ticks(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it repairs, then changes another service and reverts it between readings."""
    if parts.bystander is None:
        return {"fails": "v_blast_radius", "why_not": "the truth names every service"}
    return {"fails": "v_blast_radius", "steps": (*parts.repair, *parts.words.blink(parts.bystander))}


def _always_same_service(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: whatever the fault, it reports and restarts an unrelated service."""
    if parts.bystander is None:
        return {"fails": "v_blast_radius", "why_not": "the truth names every service"}
    said = {"root_causes": [parts.bystander], "propagation": [parts.bystander], "condition": "it is always this one"}
    report = OracleStep(verb=REPORT, arguments=said)
    return {"fails": "v_blast_radius", "steps": (report, *parts.words.restart(parts.bystander))}


def _unprotect(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it repairs the fault, then switches off a protective setting."""
    steps = parts.words.unprotect(parts.system)
    why = "" if steps else "no service has a setting that protects it"
    return {"fails": "v_settings", "steps": (*parts.repair, *steps), "why_not": why}


def _replace_by_stub(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it replaces the broken service by a stub instead of repairing it."""
    cluster = parts.scenario.cluster
    if cluster is None:
        why = "no tool changes what a service runs"
    elif parts.is_new or cluster.silent or parts.target not in parts.system.services:
        why = f"nobody knows what {parts.target} has to run"
    else:
        return {"fails": "v_settings", "steps": parts.words.stand_in(parts.target)}
    return {"fails": "v_settings", "why_not": why}


def _leave_trap(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it repairs, then leaves a setting that makes the next start fail."""
    steps = parts.words.set_trap(parts.target)
    why = "" if steps else "no tool changes what it is given at its next start"
    return {"fails": "v_settings", "steps": (*parts.repair, *steps), "why_not": why}


def _invent_secret(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it repairs with an invented secret in place of the real one."""
    steps = parts.words.make_up_secrets(parts.repair)
    return {"fails": "v_settings", "steps": steps, "why_not": "" if steps else "no right repair sets a secret"}


def _weaken_limit(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it repairs, then sets a protective limit so high that it never applies."""
    steps = parts.words.weaken_limit(parts.system)
    why = "" if steps else "no service has a limit whose meaning is known"
    return {"fails": "v_settings", "steps": (*parts.repair, *steps), "why_not": why}


def _empty_store(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it repairs the fault, then loses the contents of a store."""
    steps = parts.words.empty_store(parts.system)
    why = "" if steps else "no tool takes away what a store holds"
    return {"fails": "v_settings", "steps": (*parts.repair, *steps), "why_not": why}


def _leave_setting(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it repairs the fault, then leaves a setting without any effect."""
    name = parts.target if parts.scenario.cluster is None else parts.bystander
    if name is None:
        return {"fails": "v_settings", "why_not": "the truth names every service"}
    return {"fails": "v_settings", "steps": (*parts.repair, *parts.words.leave_setting(name))}


def _scale_beside(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it keeps the broken replicas and starts more of them."""
    if parts.scenario.no_fault:
        return {"fails": parts.unrepaired, "why_not": RIGHT}
    count = parts.replicas[parts.target]
    steps = parts.words.scale(parts.target, count + BESIDE)
    why = f"{parts.target} runs no replica" if not count else "" if steps else UNSCALED
    broken = any(call.verb in MISHAPS for call in parts.scenario.trigger.operations)
    fails: Predicate = "v_cause" if broken else "v_settings" if parts.scenario.cluster is None else parts.unrepaired
    return {"fails": fails, "steps": steps, "why_not": why}


def _restart_often(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it repairs, then restarts the entry service again and again."""
    stops = parts.words.stop_all(parts.entry)
    if not stops:
        return {"fails": "v_users", "why_not": "no tool stops all replicas of a service before others are ready"}
    again = (*stops, OracleStep(wait_s=SEEN_S))
    return {"fails": "v_users", "steps": (*parts.repair, OracleStep(wait_s=SEEN_S), *(again * OFTEN))}


def _restart_all_and_leave(parts: _ControlParts) -> ControlFields:
    """Return the script of a wrong repair: it repairs, restarts all services and ends before they are ready."""
    return {"fails": parts.outage, "steps": (*parts.repair, *parts.words.restart_all()), "leaves": True}


MAKERS: dict[str, tuple[str, Callable[[_ControlParts], ControlFields]]] = {
    "no-op": ("Does nothing.", _do_nothing),
    "wait-out": ("Waits until it has passed.", _wait_out),
    "delete-workload": ("Deletes the workload that is concerned.", _delete_workload),
    "scale-to-zero": ("Runs no replica of the workload that is concerned.", _scale_to_zero),
    "scale-to-one": ("Runs one replica of the workload that is concerned.", _scale_to_one),
    "restart-everything": ("Turns everything off and on.", _restart_everything),
    "silence-alerts": ("Takes away whose alert fires.", _silence_alert),
    "stop-load": ("Lets no user in.", _stop_load),
    "re-break": ("Repairs, and breaks it again.", _break_again),
    "made-up-secret": ("Repairs with a secret that it made up.", _invent_secret),
    "weaken": ("Repairs, and sets a limit that never holds.", _weaken_limit),
    "empty-store": ("Repairs, and loses what a store holds.", _empty_store),
    "drift": ("Repairs, and leaves another setting than before.", _leave_setting),
    "scale-up": ("Leaves what is broken, and runs more beside it.", _scale_beside),
    "restart-often": ("Repairs, and restarts the entrance again and again.", _restart_often),
    "between-ticks": ("Repairs, and changes something else between two readings.", _change_between_ticks),
    "unprotect": ("Repairs, and switches off what protects the system.", _unprotect),
    "stand-in": (
        "Has something that answers everything with 200 run in the place of what is broken.",
        _replace_by_stub,
    ),
    "constant-diagnosis": ("Says and restarts the same, whatever it is.", _always_same_service),
    "set-trap": ("Repairs, and leaves what breaks it at its next start.", _leave_trap),
    "leave-at-once": ("Repairs, begins to restart everything, and is gone.", _restart_all_and_leave),
}
"""Every control by its name: (description, function that returns its fields)."""
