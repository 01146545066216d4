"""Whose turn it is on a cluster: a trial that breaks nodes has it to itself, the others share it.

Everybody claims a namespace first and then looks who was there before: whoever came later waits, of two in one second who
has the later name. That needs no lock that a killed process could keep; a namespace whose owner is gone is nobody's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from opsassay.core.errors import OperationError
from opsassay.testbed.substrates.kubernetes.api.client import Api, Object
from opsassay.testbed.substrates.kubernetes.manifests.system import INSTANCE_LABEL, MANAGED
from opsassay.testbed.substrates.kubernetes.scenario.populating import EXCLUSIVE

CLAIMED_S = 1.1
"""When a namespace was made is known to the second: after so long nobody else can come who seems as early."""
ATTACHED = "opsassay/attached"
"""Label of the namespace that watches one that exists."""
LOOK_EVERY_S = 2.0
TURN_TIMEOUT_S = 900.0


def systems_on(api: Api) -> dict[str, Object]:
    """Return {system name: its namespace object} of OpsAssay's systems on the cluster."""
    selector = ",".join(f"{key}={value}" for key, value in MANAGED.items())
    found = {item["metadata"]["name"]: item for item in api.list("Namespace", selector=selector)}
    return {name: item for name, item in found.items() if item["metadata"]["labels"].get(INSTANCE_LABEL) == name}


def attached_on(api: Api) -> dict[str, Object]:
    """Return {name of an existing namespace under test: the namespace object of its observer}."""
    found = api.list("Namespace", selector=f"{ATTACHED}=true")
    return {one["metadata"]["labels"][INSTANCE_LABEL]: one for one in found}


def in_the_way(mine: Object, others: Mapping[str, Object]) -> list[str]:
    """Return the names in *others* of systems older than *mine* that must end first, as one of the two is exclusive."""
    exclusive = _is_exclusive(mine)
    return sorted(
        name
        for name, item in others.items()
        if (exclusive or _is_exclusive(item)) and _sort_key_of_age(item) < _sort_key_of_age(mine)
    )


def await_turn(api: Api, name: str, is_gone: Callable[[Object], bool]) -> None:
    """Wait until no older system, except those that *is_gone*, prevents *name* from running; raises OperationError."""
    time.sleep(CLAIMED_S)
    deadline = time.monotonic() + TURN_TIMEOUT_S
    while True:
        there = {**systems_on(api), **attached_on(api)}
        systems = {system: item for system, item in there.items() if not is_gone(item)}
        mine = systems.pop(name, None)
        if mine is None or not (waiting := in_the_way(mine, systems)):
            return
        if time.monotonic() > deadline:
            raise OperationError(f"{', '.join(waiting)} cannot share the cluster with {name} and did not end.")
        time.sleep(LOOK_EVERY_S)


def _is_exclusive(namespace: Object) -> bool:
    """Return whether *namespace* is marked as that of a trial that needs the cluster for itself."""
    return bool(namespace["metadata"]["labels"].get(EXCLUSIVE) == "true")


def _sort_key_of_age(namespace: Object) -> tuple[str, str]:
    """Return a key that sorts namespaces by age, the oldest first."""
    return namespace["metadata"]["creationTimestamp"], namespace["metadata"]["name"]
