"""What the processes of a system are sent when they start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from opsassay.testbed.catalogue.network import ENGINE_ACTIVITY
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Fleet, Replica
from opsassay.testbed.core.networks import Network
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.workload.containers import Containers
from opsassay.testbed.workload.runtime.ledger import LOAD_RECORD
from opsassay.testbed.workload.runtime.settings import PREVIEW_PORT


@dataclass(frozen=True)
class Orders:
    """Writes orders for one running system, whose receiver is at *endpoint* and whose name server has *names_port*.

    Callees report to whoever holds the *token* what the fault cost.
    """

    state: SystemState
    fleet: Fleet
    network: Network
    containers: Containers
    endpoint: str
    names_port: int
    token: str
    seed: int
    clocks: dict[str, int] = field(default_factory=dict)
    """By how many nanoseconds the clock of a host is wrong."""

    def replica(self, replica: Replica) -> dict[str, Any]:
        """Return the settings (order) with which the next process of *replica* is started.

        Where a preview shares its pod, it keeps to the first port of its site, the one that others know of.
        """
        return {
            **self._common(replica.id),
            **self.network.site(replica.id).parameters(0 if PREVIEW_PORT in replica.settings else replica.starts),
            "groups": self.containers.entrances(self.containers.group_of(replica)),
            "service": replica.service,
            "ledger": str(self.state.ledger_dir / f"{replica.id}.jsonl"),
            "resource": self.fleet.resource(replica),
            "stores": {
                name: self._store(replica, name)
                for service, name in self.fleet.system.uses()
                if service == replica.service
            },
            "token": self.token,
            "release": replica.release,
            "settings": replica.settings,
            "clock_offset_ns": self.clocks.get(replica.host, 0),
            "beside_mb": 0,
        }

    def program(self, replica: Replica) -> dict[str, Any]:
        """Return the settings with which the next process of *replica*, a user's program, is started."""
        system, program = self.fleet.system, replica.spec.program
        assert program is not None
        return {
            "id": replica.id,
            "management": str(self.state.management_socket),
            "endpoint": self.endpoint,
            "names": [self.network.home, self.names_port],
            "resolver": self.network.resolver,
            **self.network.site(replica.id).parameters(),
            "program_groups": self.containers.entrances(self.containers.group_of(replica)),
            "program": program.model_dump(mode="json"),
            "sidecar": replica.spec.sidecar,
            "variables": system.variables(program),
            "settings": replica.settings,
            "resource": self.fleet.resource(replica),
            "services": {
                called: name
                for name, service in system.services.items()
                if name != replica.service
                for called in (name, *(service.program.aliases if service.program else ()))
            },
            "stores": {name: ENGINE_ACTIVITY[store.engine] + name for name, store in system.stores.items()},
        }

    def container(self, replica: Replica, container: str) -> dict[str, Any]:
        """Return the settings for the process that watches the container with id *container* for *replica*."""
        project = self.fleet.system.compose
        assert project is not None
        ours = {"inside": None, "engine": list(project.engine), "attached": project.attached is not None}
        return {**self.program(replica), **ours, "container": container}

    def load(self, rate_rps: float) -> dict[str, Any]:
        """Return the settings with which the load generator is started at *rate_rps* requests per second."""
        return {
            **self._common(LOAD_GENERATOR),
            **self.network.site(LOAD_GENERATOR).parameters(),
            "resource": {
                "service.name": LOAD_GENERATOR,
                "k8s.namespace.name": self.fleet.system.system,
                "k8s.pod.name": f"{LOAD_GENERATOR}-0",
            },
            "record": str(self.state.ledger_dir / LOAD_RECORD),
            "rate_rps": rate_rps,
        }

    def own_load(self) -> dict[str, Any]:
        """Return the settings for the process that runs the user's own load command."""
        load = self.fleet.system.load
        return {
            "load": load.model_dump(mode="json"),
            "management": str(self.state.management_socket),
            "resolver": self.network.resolver,
            "variables": self.fleet.system.variables(load),
            "program_groups": self.containers.entrances(self.containers.of_load),
            **self.network.site(LOAD_GENERATOR).parameters(),
        }

    def _common(self, name: str) -> dict[str, Any]:
        """Return the settings that all processes of the system get, for the one called *name*."""
        return {
            "id": name,
            "system": self.fleet.system.model_dump(mode="json"),
            "management": str(self.state.management_socket),
            "endpoint": self.endpoint,
            "names": [self.network.home, self.names_port],
            "seed": self.seed,
        }

    def _store(self, replica: Replica, store: str) -> dict[str, Any]:
        """Return address, port and engine at which *replica* reaches the store called *store*."""
        endpoint = self.network.endpoint(replica.id, store)
        assert endpoint is not None, "every store that a service uses has a link from it"
        return {"address": endpoint[0], "port": endpoint[1], "engine": self.fleet.system.stores[store].engine}
