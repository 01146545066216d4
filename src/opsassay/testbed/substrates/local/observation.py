"""What the supervisor reports of its system: the status, and the observation that a timeline records."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from opsassay.testbed.core.fleet import LOAD_GENERATOR
from opsassay.testbed.core.status import SystemStatus

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.supervisor import Supervisor


def status_of(system: Supervisor) -> SystemStatus:
    """Return the status of *system*, as `opsassay system status` shows it."""
    return SystemStatus(
        name=system.state.name,
        system=system.system.system,
        phase=system.phase,
        isolation=system.network.level,
        machine=system.machine,
        pid=os.getpid(),
        replicas=len(system.fleet.lasting()),
        ready=len(system.fleet.lasting()) - len(system.fleet.not_ready()),
        not_ready=tuple(system.fleet.not_ready()),
        pids={replica.id: replica.pid for replica in system.fleet.lasting()},
        fault=system.injection,
        receiver=system.endpoint,
        stores={store.name: (store.site.management, store.port) for store in system.stores.values()},
        probe_paths=system.system.probe_paths(),
        endpoints={
            entry: [f"http://{address}:{port}" for address, port in system.network.entrances(entry)]
            for entry in sorted(system.system.entries())
        },
        backends={
            entry: [
                f"http://{address}:{port}" for address, port in system.directory.lookup(entry, LOAD_GENERATOR) or ()
            ]
            for entry in sorted(system.system.entries())
        },
        probe=system.network.probe(),
        rate_rps=system.rate_rps,
        unexpected_exits=tuple(system.unexpected_exits.found),
    )


def observation_of(system: Supervisor) -> dict[str, Any]:
    """Return the status of *system* with a row for each replica and the load's counters, for the timeline."""
    counted = system.fleet.load.history[-1][1] if system.fleet.load.history else {}
    return {
        **status_of(system).payload(),
        "entities": [
            [r.id, r.service, r.ready, r.host, r.release, f"{r.pod}/{r.restarts}"] for r in system.fleet.lasting()
        ],
        "load": {
            request: counted[f"call:{request}"]
            for request in (kind.request for kind in system.system.load.mix)
            if f"call:{request}" in counted
        },
    }
