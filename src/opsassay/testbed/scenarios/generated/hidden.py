"""Several faults of which one hides another: the front one stops the requests that would show the one behind.

The front fault shows at once. A restart seems to repair the one behind for `ONSET_S` seconds: it fails only that long after
its process has started.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from opsassay.core.schema.scenario import AlertRule
from opsassay.core.schema.system import Service
from opsassay.testbed.scenarios.generated import local
from opsassay.testbed.scenarios.generated.local import call, feature, step
from opsassay.testbed.scenarios.generated.recipes import (
    UNANSWERED,
    Broken,
    FaultPlace,
    Recipe,
    WrongRepair,
    noticed_places,
)

APP, DEEPEST_ENTRY = "depot", "gate"
COUNT = 36
ONSET_S = 70.0
"""Lifetime in seconds of the system's tokens, and about the time until its processes run out of descriptors."""
LEAST_WAY = 3
FILES_PER_S = "3"
ASKER, REPORTER = "tracking", "archive"

Drawn = tuple[FaultPlace, Broken]


def _delayed_feature(place: FaultPlace, key: str, value: str, condition: str, technology: str) -> Broken | None:
    """Return the fault that *key* = *value* switches on a feature that fails a while after each restart.

    *condition* describes it, *technology* is the knowledge that its repair needs. None for a target that calls no service.
    """
    broken = feature(key, value, condition, technology)(place)
    if broken is None or not any(one.call for one in _service_of_place(place).steps()):
        return None
    wrong = replace(broken.wrong, description=f"Restarts {place.target}, which is well for {ONSET_S:.0f} s.")
    operations = (broken.operations[0], call("restart", target=place.target, rolling=True))
    return replace(broken, operations=operations, wrong=wrong, onset_s=ONSET_S)


def _service_of_place(place: FaultPlace) -> Service:
    """Return the definition of the service that *place* targets."""
    return place.system.services[place.target]


def _never_renews_token(place: FaultPlace) -> Broken | None:
    """Return the fault of a service that signs only its first call, so that its token expires; None without a token."""
    if "TOKEN_SECRET" not in getattr(place.system.services.get(place.target), "config", {}):
        return None
    return _delayed_feature(place, "FEATURE_SIGN_ONCE", "1", "its credential is never renewed and expires", "tokens")


def _leaks_files(place: FaultPlace) -> Broken | None:
    """Return the fault of a service that leaks file descriptors until it has none left; None for a store."""
    if place.target not in place.system.services:
        return None
    what = "it opens files until it can open no socket"
    return _delayed_feature(place, "FEATURE_FILE_WATCH", FILES_PER_S, what, "file descriptors")


def _locked_by_report(place: FaultPlace) -> Broken | None:
    """Return the fault of a report that locks the rows that the service "shelf" changes; None for other targets."""
    if place.target != "shelf":
        return None

    def ask(path: str) -> dict[str, object]:
        """Return the arguments of the call that posts to *path* of the report service."""
        return {"source": ASKER, "url": f"http://{REPORTER}:8080{path}", "method": "POST"}

    ended = step("exec curl", **ask("/sessions/end"))
    return Broken(
        root=REPORTER,
        edges=((REPORTER, place.target), *place.reach.edges),
        condition="its report holds the rows that pages change",
        symptom=f"requests to {place.entry} fail",
        alert=AlertRule(service=place.entry, signal="error_rate"),
        technologies=("PostgreSQL", "locks", "batch jobs"),
        layer="store",
        depth="D3",
        protected=place.entry,
        operations=(call("exec curl", **ask("/reports")),),
        looks=(step("traces", service=place.target, failed=True, limit=2),),
        repair=(step("exec curl", **ask("/reports/cancel")), ended),
        wrong=WrongRepair(
            f"Has the report made {ONSET_S:.0f} s later.",
            UNANSWERED,
            (step("exec curl", **ask("/reports/later")), ended),
        ),
        entities=("db",),
        onset_s=ONSET_S,
    )


BEHIND = (
    Recipe("ExpiredCredential", _never_renews_token, (APP,)),
    Recipe("DescriptorExhaustion", _leaks_files, (APP,)),
    Recipe("LockContention", _locked_by_report, (APP,)),
)
DELETED = (replace(local.DELETED, apps=(APP,)),)
DELETED_COUNT = 6
IN_FRONT = tuple(
    replace(one, apps=(APP,))
    for one in local.RECIPES
    if one.name in {"ServiceFailure", "HTTPRequestAbortFault", "HTTPRequestBodyTamperFault", "NetworkPartition",
                    "PortMisconfigure", "IncorrectAuthentication"}
)  # fmt: skip


def _list_variants(recipes: tuple[Recipe, ...]) -> Iterator[Drawn]:
    """Yield (place, fault) for each fault that *recipes* make at places whose failure users notice at DEEPEST_ENTRY."""
    for recipe in recipes:
        for place in noticed_places(APP):
            if place.entry == DEEPEST_ENTRY and (broken := recipe.make(place)) is not None:
                yield place, broken


def hidden_faults(
    chance: random.Random, in_front: tuple[Recipe, ...] = IN_FRONT, count: int = COUNT
) -> Iterator[list[Drawn]]:
    """Yield *count* lists of two or three (place, fault) drawn by *chance*; each fault hides the next, the last is behind.

    The first fault of a list comes from the recipes *in_front*.
    """
    behind = [one for one in _list_variants(BEHIND) if len(_affected_by(one[1])) >= LEAST_WAY]
    first = [one for one in _list_variants(in_front) if one[1].depth == "D3"]
    chance.shuffle(behind)
    drawn: list[list[Drawn]] = []
    for number in range(count):
        chosen = [behind[number % len(behind)]]
        for pool in (behind, first) if number % 3 == 2 else (first,):
            fitting = [one for one in pool if _is_in_front(one[1], chosen[0][1]) and [one, *chosen] not in drawn]
            if fitting:
                chosen.insert(0, chance.choice(fitting))
        drawn.append(chosen)
        yield chosen


def _affected_by(fault: Broken) -> set[str]:
    """Return the entities to which *fault* propagates, without its root."""
    return {effect for _, effect in fault.edges}


def _is_in_front(first: Broken, second: Broken) -> bool:
    """Return whether requests fail at *first* before they reach *second*, and the two touch different entities."""
    return first.root in _affected_by(second) and not {first.root, *first.entities} & {second.root, *second.entities}
