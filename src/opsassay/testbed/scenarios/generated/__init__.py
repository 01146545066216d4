"""Scenarios that follow from a seed: catalogue x system x target, each with its oracles (ITBench, C.4, Tables 12, 13).

Their names are ``gen<SEED>-<class>-<number>``. Each class has at most `EACH` on each substrate; further ones have several
faults at once, unrelated events, or a fault that hides another.
"""

from __future__ import annotations

import functools
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.scenario import OpsCall, OracleStep, Scenario
from opsassay.testbed.scenarios.generated import cluster, cluster_parts, hidden, local
from opsassay.testbed.scenarios.generated.assembling import ScenarioPhrases, everything_restarted, scenario_of
from opsassay.testbed.scenarios.generated.recipes import Broken, FaultPlace, Recipe, noticed_places

EACH = 2
"""Most scenarios of a class on one substrate."""
MOST_CORES = 1.0
"""Most cores that a fault may need for its alert: the smallest machine has two, and the rest of the system needs some."""
SEVERAL, STORMS, HIDDEN, DELETED = "SeveralFaults", "EventStorm", "HiddenFault", "DeletedServiceInFront"
NAME = re.compile(r"gen(\d{1,6})-[a-z0-9-]+")
LOCAL = ScenarioPhrases(
    "local", local.OWNED, everything_restarted((OracleStep(verb="restart", arguments={"target": "all"}),) * 3)
)
"""The harmful repair restarts all three times, since a small system may be back between two readings."""
CLUSTER = ScenarioPhrases("kubernetes", cluster.OWNED, cluster={})
GRID = ScenarioPhrases(
    "kubernetes", cluster.OWNED, everything_restarted(cluster.EVERYTHING), {"stand_ins": True, "fillers": 12}
)

Drawn = tuple[FaultPlace, Broken]


@functools.lru_cache(maxsize=8)
def generated(seed: int = 0) -> tuple[Scenario, ...]:
    """Return the scenarios that *seed* generates, those of the local substrate first; cached."""
    counted: dict[str, int] = defaultdict(int)

    def scenario_name(category: str) -> str:
        """Return the name of the next scenario of *category*, such as "gen0-wrong-port-2"."""
        counted[category] += 1
        words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", category).lower()
        return f"gen{seed}-{words}-{counted[category]}"

    found = []
    for substrate, recipes in ((LOCAL, local.RECIPES), (CLUSTER, cluster.RECIPES)):
        chance = random.Random(f"{seed} {substrate.name}")  # noqa: S311 - a repeatable draw, not a secret
        drawn = _draw_scenarios(recipes, chance)
        found += [
            scenario_of(scenario_name(category), category, _phrases_for(substrate, one[0]), [one])
            for category, chosen in drawn.items()
            for one in chosen
        ]
        if substrate is LOCAL:
            found += [scenario_of(scenario_name(SEVERAL), SEVERAL, LOCAL, parts) for parts in _draw_several(chance)]
            found += [
                scenario_of(scenario_name(STORMS), STORMS, LOCAL, [one], storm=_draw_storm(one, chance))
                for one in _storm_targets(drawn, chance)
            ]
            found += [
                scenario_of(scenario_name(HIDDEN), HIDDEN, LOCAL, parts) for parts in hidden.hidden_faults(chance)
            ]
            chance = random.Random(f"{seed} {substrate.name} deleted")  # noqa: S311
            drawn = _draw_scenarios((local.DELETED,), chance)
            found += [
                scenario_of(scenario_name(local.DELETED.name), local.DELETED.name, LOCAL, [one])
                for one in drawn[local.DELETED.name]
            ]
            sets = hidden.hidden_faults(chance, hidden.DELETED, hidden.DELETED_COUNT)
            found += [scenario_of(scenario_name(DELETED), DELETED, LOCAL, parts) for parts in sets]
    return tuple(found)


def by_name(name: str) -> Scenario | None:
    """Return the generated scenario called *name*; None if *name* has another form; raises NotFoundError."""
    if (match := NAME.fullmatch(name)) is None:
        return None
    known = {one.id: one for one in generated(int(match[1]))}
    if name not in known:
        raise NotFoundError("generated scenario", name, known)
    return known[name]


def _phrases_for(substrate: ScenarioPhrases, place: FaultPlace) -> ScenarioPhrases:
    """Return the phrases of *substrate*, or those of the system of stand-in services if *place* is in that."""
    return GRID if place.system.system == cluster_parts.STAND_INS else substrate


def _draw_variants(recipes: Iterable[Recipe]) -> Iterator[tuple[str, Drawn]]:
    """Yield (class, (place, fault)) for each service or store of a system at which one of *recipes* gives a fault."""
    for recipe in recipes:
        for app in recipe.apps:
            for place in noticed_places(app):
                if (broken := recipe.make(place)) is not None:
                    yield recipe.name, (place, broken)


def _draw_scenarios(recipes: Iterable[Recipe], chance: random.Random) -> dict[str, list[Drawn]]:
    """Draw with *chance* at most `EACH` faults of each class of *recipes*, from systems in turn, by class."""
    by_class: dict[str, list[Drawn]] = defaultdict(list)
    for category, one in _draw_variants(recipes):
        by_class[category].append(one)
    found = {}
    for category, everything in by_class.items():
        chance.shuffle(everything)
        candidates = [one for one in everything if one[1].cores <= MOST_CORES]
        seen: dict[str, int] = defaultdict(int)
        ranks = []
        for place, _ in candidates:
            ranks.append(seen[place.system.system])
            seen[place.system.system] += 1
        ordered = sorted(zip(ranks, range(len(candidates)), candidates, strict=True))
        found[category] = [one for *_, one in ordered[:EACH]]
    return found


def _draw_several(chance: random.Random) -> Iterator[list[Drawn]]:
    """Yield three lists, of two, three and four faults at different places of the system "desk"."""
    everything = [(name, one) for name, one in _draw_variants(local.RECIPES) if one[0].system.system == "desk"]
    for count in (2, 3, 4):
        chance.shuffle(everything)
        first = next(one for name, one in everything if name == "RedisOOM")
        chosen = [first] if count > 2 else []
        for name, one in everything:
            others = {name for _, part in chosen for name in _entities_of(part)}
            apart = not others & set(_entities_of(one[1]))
            if len(chosen) < count and apart and _stays_ready(one[1]) and not (name.startswith("Network")):
                chosen.append(one)
        yield chosen


def _entities_of(fault: Broken) -> tuple[str, ...]:
    """Return the names of the root of *fault* and of the other entities that it touches."""
    return (fault.root, *fault.entities)


def _stays_ready(fault: Broken) -> bool:
    """Return whether all replicas stay ready despite *fault*, although user requests fail."""
    return fault.depth == "D3" and bool(fault.edges) and "v_blast_radius" not in fault.wrong.fails


def _storm_targets(by_class: dict[str, list[Drawn]], chance: random.Random) -> Sequence[Drawn]:
    """Draw from *by_class* `EACH` faults in the system "desk" that leave all replicas ready; they get a storm."""
    candidates = [one for chosen in by_class.values() for one in chosen if _stays_ready(one[1])]
    desk = [one for one in candidates if one[0].system.system == "desk"]
    return chance.sample(desk, EACH)


def _draw_storm(target: Drawn, chance: random.Random) -> list[OpsCall]:
    """Draw changes unrelated to the fault *target*: restarts of three unaffected services, less load for 40 s."""
    place, broken = target
    concerned = {*_entities_of(broken), *(end for edge in broken.edges for end in edge), place.entry}
    bystanders = sorted(set(place.system.services) - concerned)
    calls = [local.call("restart", target=name, rolling=True) for name in chance.sample(bystanders, 3)]
    return [*calls, local.call("load dip", factor=0.4, seconds=40)]
