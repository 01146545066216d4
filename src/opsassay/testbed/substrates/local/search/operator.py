"""The scripted operator of "side-effects", Table 16, in the verbs of a local system: it repairs what meets the eye.

It stops as soon as the surface is healthy. Its blind spots are the point: it sends no request of its own, reads no firewall
rule, no name record and no clock.
"""

from __future__ import annotations

import time
from typing import Any

from opsassay.core.schema.system import System
from opsassay.testbed.operations.search import Repair, repair_what_shows
from opsassay.testbed.substrates.local.substrate import LocalSystem

LOOK_S = 6.0
"""How long it looks before it acts: a replica that is just starting is no symptom."""


def repair(running: LocalSystem, system: System) -> Repair:
    """Repair visible symptoms and check in turn until the system looks healthy; return actions and last check."""
    return repair_what_shows(lambda: _settled(running, system), lambda: _one_pass(running, system))


def _one_pass(running: LocalSystem, system: System) -> list[str]:
    """Repair missing replicas, wrong releases and crashing services; return a text on each repair."""
    rows, done = _list_replicas(running), list[str]()
    for name, spec in system.services.items():
        own = [row for row in rows if row["service"] == name]
        if len(own) < spec.replicas:
            running.operate("scale", {"service": name, "replicas": spec.replicas})
            done.append(f"scale {name} to {spec.replicas}")
        if any(row["release"] != spec.release for row in own):
            running.operate("release", {"service": name, "version": spec.release})
            done.append(f"release {name} {spec.release}")
        elif any(row["state"] == "crashing" for row in own):
            done += _mend(running, name, spec.config)
    return done


def _mend(running: LocalSystem, name: str, good_settings: dict[str, str]) -> list[str]:
    """Restore *good_settings* of the service *name* and restart it; return a one-element list of what was done."""
    settings = running.operate("config get", {"target": name})["settings"]
    for key, value in good_settings.items():
        if settings.get(key) != value:
            running.operate("config set", {"target": name, "key": key, "value": value})
    running.operate("restart", {"target": name})
    return [f"restart {name} with its last known good settings"]


def _settled(running: LocalSystem, system: System) -> bool:
    """Wait up to LOOK_S until all replicas exist, are ready and of the right release; return whether they are."""
    deadline = time.monotonic() + LOOK_S
    while True:
        rows = _list_replicas(running)
        if all(row["state"] == "ready" for row in rows) and all(
            _is_complete(rows, name, system) for name in system.services
        ):
            return True
        if time.monotonic() > deadline or any(row["state"] == "crashing" for row in rows):
            return False
        time.sleep(0.3)


def _is_complete(rows: list[dict[str, Any]], name: str, system: System) -> bool:
    """Return whether *rows* of `ps` have all replicas of the service *name*, of the system file's release."""
    own = [row for row in rows if row["service"] == name]
    spec = system.services[name]
    return len(own) >= spec.replicas and all(row["release"] == spec.release for row in own)


def _list_replicas(running: LocalSystem) -> list[dict[str, Any]]:
    """Return the rows of the operation `ps`, one per replica."""
    found: list[dict[str, Any]] = running.operate("ps", {})["replicas"]
    return found
