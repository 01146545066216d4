"""One hop of a path: from a component by a rule to the next, if it passes the gates deviation, rule, temporal, carried."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from opsassay.annotation.evidence.states import NANO, NodeState
from opsassay.annotation.search.failing import Bypass
from opsassay.annotation.search.propagation_gate import Carriage
from opsassay.annotation.search.rules import FAILURE, LATENCY, Rule

Place = tuple[str, str]
"""A component in a state (one of the paper's names, or healthy)."""

Evidence = dict[str, float | int | str]
Carries = Callable[[str], Evidence | None]

HEALTHY = "healthy"


@dataclass(frozen=True)
class Hop:
    """An accepted step from *source* to *target*, with its rule and the evidence that the carried gate found."""

    source: Place
    target: Place
    rule: Rule
    evidence: Evidence


@dataclass(frozen=True)
class Refusal:
    """A step refused by a *gate* (deviation, rule, temporal or carried); *component* is its target."""

    source: Place
    component: str
    gate: str
    reason: str


@dataclass(frozen=True, eq=False)
class Terrain:
    """All that the search reads: node states (by span name without type), neighbours, and what calls carry (*carriage*).

    *own*: component of the root -> spans of its service (of a host: of each of its *parts*). *shared*: span of the root
    -> spans of other services in its pods. *crowded*: overloaded host of the root -> spans of other services there.
    *gates_off*: gates to skip. *began_ns*: start of the fault, ns of UTC.
    """

    root: Place
    own: Mapping[str, tuple[str, ...]]
    states: Mapping[str, NodeState]
    callers: Mapping[str, Sequence[str]]
    callees: Mapping[str, Sequence[str]]
    shared: Mapping[str, Sequence[str]]
    carriage: Carriage
    rules: tuple[Rule, ...]
    began_ns: int
    parts: tuple[str, ...] = ()
    crowded: Mapping[str, Sequence[str]] = field(default_factory=dict)
    gates_off: frozenset[str] = frozenset()

    def onset_ns(self, place: Place) -> int:
        """Return when *place* began to deviate, ns of UTC; the fault's start for the root and for unknown onsets."""
        state = self.states.get(place[0].removeprefix("span|"))
        return self.began_ns if place == self.root or state is None else state.onsets.get(place[1], self.began_ns)

    def width_ns(self, component: str) -> int:
        """Return the width (ns) of the time windows in which *component* was tested, 0 when it has no state."""
        state = self.states.get(component.removeprefix("span|"))
        return 0 if state is None else state.width_ns


def steps(terrain: Terrain, place: Place) -> Iterator[Hop | Refusal]:
    """Yield every step of propagation from *place* in *terrain*, and for each refused one the first failed check."""
    kind, _, name = place[0].partition("|")
    if kind == "node":
        yield from _steps_from_host(terrain, place)
        return
    if kind != "span":
        for node in terrain.own.get(place[0], ()):
            yield from _hops_of_first_rules(terrain, place, kind, node)
        for host, nodes in terrain.crowded.items() if place == terrain.root else ():
            for node in nodes:
                yield from _hops_to_host_neighbour(terrain, place, host, node)
        return
    if place[1] != HEALTHY:
        for caller in terrain.callers.get(name, ()):
            yield from _hops_to_caller(terrain, place, name, caller)
        for callee in terrain.callees.get(name, ()):
            if (name, callee) in terrain.carriage.starved or "carried" in terrain.gates_off:
                yield from _hops_to_starved_callee(terrain, place, name, callee)
        for sibling in terrain.shared.get(name, ()):
            yield from _hops_to_pod_sibling(terrain, place, sibling)
    for bypass in _bypasses_of(terrain, name):
        yield from _hops_past_failed_callee(terrain, place, bypass)


def _bypasses_of(terrain: Terrain, name: str) -> Iterator[Bypass]:
    """Yield the failures of span *name* that passed a healthy caller; all conceivable ones if gate carried is off."""
    if "carried" not in terrain.gates_off:
        yield from (bypass for bypass in terrain.carriage.bypasses if bypass.source == name)
        return
    for healthy in terrain.callers.get(name, ()):
        if healthy not in terrain.states:
            for target in terrain.callers.get(healthy, ()):
                yield Bypass(name, healthy, target, 0)


def _steps_from_host(terrain: Terrain, place: Place) -> Iterator[Hop | Refusal]:
    """Yield the hops from the host *place* down to the components on it at which the fault shows."""
    rules = _select_rules(terrain, place, "node")
    for part in terrain.parts:
        admitting = [r for r in rules if r.destination == part.partition("|")[0] and place[1] in r.effects]
        if admitting:
            yield Hop(place, (part, place[1]), admitting[0], {"at": "on the host"})
        else:
            yield Refusal(place, part, "rule", f"no rule lets {place[1]} of a host reach {part}")


def _hops_of_first_rules(terrain: Terrain, place: Place, kind: str, node: str) -> Iterator[Hop | Refusal]:
    """Yield the first hops: from *place*, a root component of *kind*, to its own span *node*, by rules without a host."""
    carriage = terrain.carriage

    def carries(reason: str) -> Evidence | None:
        """Return the evidence that *node* deviates by *reason* (lat, err, missing, ...) due to the root; else None."""
        if reason in LATENCY and carriage.slow(node):
            return {"explained_share": round(carriage.latency[node], 3)}
        if reason in FAILURE and carriage.failing(node):
            return {"carried_failures": carriage.errors[node][0]}
        if reason in ("missing", "inj_affected") and node in carriage.at_links:
            return {"at": "the faulted end"}
        return None

    rules = [r for r in _select_rules(terrain, place, kind) if "node" not in r.path]
    changed = [r for r in rules if HEALTHY in r.effects]
    if changed and node in carriage.changed:
        yield Hop(place, (f"span|{node}", HEALTHY), changed[0], {"answers": "changed"})
    yield from _apply_gates(terrain, place, f"span|{node}", rules, carries)


def _hops_to_caller(terrain: Terrain, place: Place, source: str, target: str) -> Iterator[Hop | Refusal]:
    """Yield the hops from *place*, span *source* in a state, by which slowness or failures reach its caller *target*."""
    carriage, pair = terrain.carriage, (source, target)

    def carries(reason: str) -> Evidence | None:
        """Return the evidence that calls to *source* explain enough of *target*'s deviation *reason*; else None."""
        if reason in LATENCY and carriage.slow(target):
            share = carriage.latency_edges.get(pair, 0.0)
            if share > 0 and share >= carriage.limits.edge_share * carriage.latency[target]:
                return {"explained_share": round(share, 3)}
            return None
        if reason in FAILURE and carriage.failing(target):
            failures = carriage.error_edges.get(pair, 0)
            enough = failures and failures >= carriage.limits.edge_share * carriage.errors[target][0]
            return {"carried_failures": failures} if enough else None
        return None

    plain = [r for r in _select_rules(terrain, place, "span") if r.path == ()]
    yield from _apply_gates(terrain, place, f"span|{target}", plain, carries)


def _hops_to_starved_callee(terrain: Terrain, place: Place, source: str, target: str) -> Iterator[Hop | Refusal]:
    """Yield the hops from *place* (span *source*) to its callee *target*, which *source* calls less often than before."""
    share = terrain.carriage.starved.get((source, target), 0.0)

    def carries(_: str) -> Evidence | None:
        """Return the missing share of calls when it is large enough, else None."""
        return {"missing_share": round(share, 3)} if share >= terrain.carriage.limits.starved_share else None

    yield from _apply_gates(
        terrain, place, f"span|{target}", _select_rules(terrain, place, "span", forward=True), carries
    )


def _hops_to_pod_sibling(terrain: Terrain, place: Place, sibling: str) -> Iterator[Hop | Refusal]:
    """Yield the hops from *place* to *sibling*, a span of another service in the same pod that became slow."""
    beside = [r for r in _select_rules(terrain, place, "span") if "pod" in r.path]
    yield from _apply_gates(terrain, place, f"span|{sibling}", beside, _slow_from_pressure(terrain, sibling))


def _hops_to_host_neighbour(terrain: Terrain, place: Place, host: str, node: str) -> Iterator[Hop | Refusal]:
    """Yield the hops from *place* over *host* to *node*, a span of another service there that became slow."""
    rules = [r for r in _select_rules(terrain, place, "container") if "node" in r.path]
    yield from _apply_gates(terrain, place, f"span|{node}", rules, _slow_from_pressure(terrain, node, host=host))


def _slow_from_pressure(terrain: Terrain, node: str, **evidence: str) -> Carries:
    """Return a test (reason -> evidence or None) whether *node* is slow by the root's pressure; *evidence* is added."""
    carriage = terrain.carriage

    def carries(reason: str) -> Evidence | None:
        """Return the evidence that *node* is slow, when *reason* is latency; else None."""
        slow = reason in LATENCY and carriage.slow(node)
        return {"explained_share": round(carriage.latency[node], 3), **evidence} if slow else None

    return carries


def _hops_past_failed_callee(terrain: Terrain, place: Place, bypass: Bypass) -> Iterator[Hop | Refusal]:
    """Yield the hops from *place* past a healthy-looking node to the target of *bypass*, which fails because of it."""

    def carries(reason: str) -> Evidence | None:
        """Return the carried failures when *reason* is failure and the target fails; else None."""
        if reason not in FAILURE or not terrain.carriage.failing(bypass.target):
            return None
        through: Evidence = {"through": f"span|{bypass.healthy}"} if bypass.healthy else {}
        return {"carried_failures": bypass.failures, **through}

    rules = [
        r
        for r in _select_rules(terrain, place, "span")
        if r.through_healthy == (bypass.healthy is not None) and (r.through_healthy or HEALTHY in r.states)
    ]
    yield from _apply_gates(terrain, place, f"span|{bypass.target}", rules, carries)


def _select_rules(terrain: Terrain, place: Place, kind: str, *, forward: bool = False) -> list[Rule]:
    """Return the rules for a source of *kind* in the state of *place*; *forward*: from caller to callee, else others."""
    return [
        r
        for r in terrain.rules
        if r.source == kind and r.forward == forward and (place[1] in r.states or "*" in r.states)
    ]


def _apply_gates(
    terrain: Terrain, place: Place, target: str, rules: Sequence[Rule], carries: Carries
) -> Iterator[Hop | Refusal]:
    """Yield the hops from *place* to *target* that pass all gates; if none does, a Refusal with the first failed gate.

    *carries* maps a state of the target to the evidence that it came from *place*, None without any.
    """
    node = terrain.states.get(target.removeprefix("span|"))
    if node is None or not node.onsets:
        if "deviation" not in terrain.gates_off:
            yield Refusal(place, target, "deviation", f"{target} behaves as before")
            return
        node = NodeState({effect: terrain.began_ns for rule in rules for effect in rule.effects})
    narrowest = sorted(rules, key=lambda rule: len(rule.effects))  # what says most about an effect explains it
    options = [(r, reason) for reason in sorted(node.reasons) for r in narrowest if reason in r.effects]
    if not options:
        yield Refusal(place, target, "rule", f"no rule lets {place[1]} become {', '.join(sorted(node.reasons))}")
        return
    # An onset is known to the width of a window, and a slow call is stamped with its start, before its callee's.
    slack = max(node.width_ns, terrain.width_ns(place[0]))
    cause = terrain.onset_ns(place)
    late = "temporal" in terrain.gates_off
    timely = [(r, e) for r, e in options if late or node.onsets[e] + slack + r.tolerance_s * NANO >= cause]
    if not timely:
        early = (cause - min(node.onsets[e] for _, e in options)) / NANO
        yield Refusal(place, target, "temporal", f"{target} deviated {early:.0f} s before {place[0]}")
        return
    accepted: set[str] = set()
    for rule, reason in timely:
        evidence = None if reason in accepted else {} if "carried" in terrain.gates_off else carries(reason)
        if evidence is not None:
            accepted.add(reason)
            yield Hop(place, (target, reason), rule, evidence)
    if not accepted:
        yield Refusal(place, target, "carried", f"what {target} suffers did not come from {place[0]}")
