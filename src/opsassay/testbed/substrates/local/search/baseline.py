"""The clean baseline that every candidate starts from: taken from the definition, restored and verified between two."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from opsassay.core.errors import OperationError
from opsassay.core.schema.system import System
from opsassay.testbed.substrates.local.operations import NAMES, TIME_SYNC
from opsassay.testbed.substrates.local.substrate import LocalSystem

READY_TIMEOUT_S = 30.0


class RestorableState(NamedTuple):
    """Everything that a candidate or an operator may have changed, as the system itself tells it."""

    settings: Mapping[str, Mapping[str, str]]
    records: Mapping[str, str]
    rules: tuple[str, ...]
    releases: Mapping[str, str]
    replicas: Mapping[str, int]
    clocks: Mapping[str, str]
    not_ready: tuple[str, ...]


def intended(system: System) -> RestorableState:
    """Return the state that the definition of *system* describes; each fault that a search tries starts from it."""
    return RestorableState(
        settings={name: dict(spec.config) for name, spec in system.services.items()},
        records={name: name for name in system.services},
        rules=(),
        releases={f"{name}-{i}": s.release for name, s in system.services.items() for i in range(s.replicas)},
        replicas={name: spec.replicas for name, spec in system.services.items()},
        clocks=dict.fromkeys(system.hosts, "on"),
        not_ready=(),
    )


def present(running: LocalSystem, system: System) -> RestorableState:
    """Return the present state of the *running* system, in the same form as `intended`."""
    rows = running.operate("ps", {})["replicas"]

    def settings(target: str) -> dict[str, str]:
        found: dict[str, str] = running.operate("config get", {"target": target})["settings"]
        return found

    return RestorableState(
        settings={name: settings(name) for name in system.services},
        records=settings(NAMES),
        rules=tuple(rule["rule"] for rule in running.operate("firewall list", {})["rules"]),
        releases={row["replica"]: row["release"] for row in rows},
        replicas={name: sum(row["service"] == name for row in rows) for name in system.services},
        clocks={host: settings(host)[TIME_SYNC] for host in system.hosts},
        not_ready=tuple(sorted(row["replica"] for row in rows if row["state"] != "ready")),
    )


def restore(running: LocalSystem, system: System, touched: frozenset[str]) -> None:
    """Restore the definition of *system*, restart changed and *touched* services, and verify; raises OperationError."""
    desired, found = intended(system), present(running, system)
    for rule in found.rules:
        running.operate("firewall delete", {"rule": rule})
    for name, backend in found.records.items():
        if backend != name:
            running.operate("config unset", {"target": NAMES, "key": name})
    for host, state in found.clocks.items():
        if state != "on":
            running.operate("config set", {"target": host, "key": TIME_SYNC, "value": "on"})
    changed = {name for name in system.services if _settings_back(running, name, desired, found)}
    for name, count in found.replicas.items():
        if count != desired.replicas[name]:
            running.operate("scale", {"service": name, "replicas": desired.replicas[name]})
    for name in {
        replica.rpartition("-")[0]
        for replica, release in found.releases.items()
        if _has_other_release(replica, release, desired)
    }:
        running.operate("release", {"service": name, "version": system.services[name].release, "rolling": False})
    for name in sorted((touched & set(system.services)) | changed):
        running.operate("restart", {"target": name})
    verify(running, system)


def verify(running: LocalSystem, system: System) -> None:
    """Wait until the present state equals the definition and all is ready; raises OperationError with what differs."""
    desired, deadline = intended(system), time.monotonic() + READY_TIMEOUT_S
    while (found := present(running, system)) != desired:
        if time.monotonic() > deadline:
            wrong = [name for name, a, b in zip(RestorableState._fields, found, desired, strict=True) if a != b]
            raise OperationError(f"The clean baseline did not come back: {', '.join(wrong)} differ.")
        time.sleep(0.2)


def _settings_back(running: LocalSystem, name: str, desired: RestorableState, current: RestorableState) -> bool:
    """Set the settings of the service *name* to *desired*; return whether *current* ones differed."""
    ours, theirs = desired.settings[name], current.settings[name]
    for key in theirs.keys() - ours.keys():
        running.operate("config unset", {"target": name, "key": key})
    for key, value in ours.items():
        if theirs.get(key) != value:
            running.operate("config set", {"target": name, "key": key, "value": value})
    return ours != theirs


def _has_other_release(replica: str, release: str, desired: RestorableState) -> bool:
    """Return whether *release*, which the replica with id *replica* runs, differs from that of *desired*."""
    return release != desired.releases.get(replica, release)
