"""The parts of a generated scenario: one fault at one place, and its repairs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opsassay.core.schema.cluster import ObjectChange, ObjectState
from opsassay.core.schema.plan import FaultPlan
from opsassay.core.schema.scenario import AlertRule, FaultLayer, OpsCall, OracleStep, Predicate, ScenarioTruth
from opsassay.core.schema.system import System
from opsassay.core.schema.trajectory import Depth
from opsassay.testbed.apps import load_system
from opsassay.testbed.scenarios.generated.impact_closure import Edge, ImpactClosure, reach_of

UNANSWERED: tuple[Predicate, ...] = ("v_depth", "alerts_cleared", "v_no_regression")
"""The predicates that fail while user requests fail although everything is ready."""
TAKEN_AWAY: tuple[Predicate, ...] = ("v_outcome", "v_depth", "alerts_cleared", "v_no_regression")
"""The predicates that fail when the faulted workload runs no replica."""


STILL_ENOUGH = 0.95
"""Least share of ready replicas with which a system passes."""
TOLERATED = 0.85
"""A smaller share of ready replicas during the repair is an outage."""


@dataclass(frozen=True)
class WrongRepair:
    """A repair that only looks right: it *fails* exactly these predicates."""

    description: str
    fails: tuple[Predicate, ...]
    steps: tuple[OracleStep, ...]


@dataclass(frozen=True)
class Broken:
    """One fault: its cause, symptom, lasting repair and a wrong repair.

    *edges* are the propagation from the *root*; *looks* are steps of the repair that change nothing; *cores* is the
    number of processors to use up before the alert fires, *onset_s* the seconds for which the wrong repair looks right.
    """

    root: str
    edges: tuple[Edge, ...]
    condition: str
    symptom: str
    alert: AlertRule
    technologies: tuple[str, ...]
    layer: FaultLayer
    depth: Depth
    protected: str
    repair: tuple[OracleStep, ...]
    wrong: WrongRepair
    looks: tuple[OracleStep, ...] = ()
    operations: tuple[OpsCall, ...] = ()
    changes: tuple[ObjectChange, ...] = ()
    faults: tuple[FaultPlan, ...] = ()
    until: tuple[ObjectState, ...] = ()
    entities: tuple[str, ...] = ()
    cores: float = 0.0
    onset_s: float = 0.0


@dataclass(frozen=True)
class FaultPlace:
    """The place of a fault: a *target* in a system, with the services that fail with it."""

    system: System
    target: str
    reach: ImpactClosure

    @property
    def entry(self) -> str:
        """The entry service whose users notice the fault."""
        assert self.reach.entry is not None
        return self.reach.entry

    @property
    def callers(self) -> tuple[str, ...]:
        """The services that fail directly when the target fails."""
        return tuple(effect for cause, effect in self.reach.edges if cause == self.target)

    @property
    def taken_away(self) -> tuple[Predicate, ...]:
        """The predicates that fail when the target has no replica; fewer where most of the system still runs."""
        return TAKEN_AWAY if self.left_without < STILL_ENOUGH else ("alerts_cleared", "v_no_regression")

    @property
    def left_without(self) -> float:
        """The share of the system's replicas that remains when the target has none."""
        return 1 - self.replicas / sum(service.replicas for service in self.system.services.values())

    @property
    def replicas(self) -> int:
        """The number of replicas of the target; 1 for a store."""
        service = self.system.services.get(self.target)
        return 1 if service is None else service.replicas


@dataclass(frozen=True)
class Recipe:
    """One class of the catalogue: the paper's *name*, and a function from a place to the fault, or None."""

    name: str
    make: Callable[[FaultPlace], Broken | None]
    apps: tuple[str, ...]


@functools.cache
def noticed_places(app: str) -> tuple[FaultPlace, ...]:
    """Return a place (target, what fails with it) for each service and store of *app* whose failure users notice."""
    system = load_system(app)
    reached = ((name, reach_of(system, name)) for name in (*system.services, *system.stores))
    return tuple(FaultPlace(system, name, reach) for name, reach in reached if reach.entry is not None)


def truth_of(faults: Iterable[Broken], owned_pattern: str) -> ScenarioTruth:
    """Return the ground truth of a scenario with *faults*; *owned_pattern*, a regex with {name}, matches one's pods."""
    faults = list(faults)
    edges = [(edge, one) for one in faults for edge in one.edges]
    steps: dict[Edge, dict[str, str]] = {}
    for (cause, effect), one in edges:
        wrong = one.condition if cause == one.root else f"requests to {cause} fail"
        steps.setdefault((cause, effect), {"condition": wrong, "effect": f"{effect} cannot do what needs {cause}"})
    roots = tuple(dict.fromkeys(one.root for one in faults))
    named = tuple(dict.fromkeys([*roots, *(end for edge in steps for end in edge)]))
    return ScenarioTruth.model_validate(
        {
            "root_causes": roots,
            "entities": tuple(dict.fromkeys(name for one in faults for name in one.entities if name not in roots)),
            "propagation": [{"source": a, "target": b, **words} for (a, b), words in steps.items()],
            "aliases": {name: (f"deployment/{name}", f"service/{name}") for name in named},
            "filters": {name: (owned_pattern.format(name=name),) for name in named},
        }
    )
