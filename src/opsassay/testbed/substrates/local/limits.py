"""Limits of processor, memory and local ports as an operator changes them: they hold at once, and at every later start."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from opsassay.core.errors import OperationError, RefusedError
from opsassay.testbed.core.fleet import Replica
from opsassay.testbed.kernel.cgroups import CPU, MEMORY
from opsassay.testbed.kernel.namespaces import local_ports, set_local_ports
from opsassay.testbed.substrates.local.namespaced import NamespacedNetwork

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.supervisor import Supervisor

CPU_LIMIT, MEMORY_LIMIT = "cpu_limit", "memory_limit_mb"
LIMITS = {CPU_LIMIT: CPU, MEMORY_LIMIT: MEMORY}
"""The settings that are limits, as a system's file calls them, and what counts them."""
PORT_RANGE = "ip_local_port_range"
"""The setting of a service that is the kernel's, of the namespace of each of its replicas."""
USUAL_PORTS = "32768 60999"
LEAST = {CPU_LIMIT: 0.01, MEMORY_LIMIT: 64}


def read_ports(value: str) -> str:
    """Return the range of local ports *value* as the kernel writes it, "FIRST LAST"; raises RefusedError."""
    found = re.fullmatch(r"(\d{4,5})[ -](\d{4,5})", value.strip(), re.ASCII)
    if found is None or not 1024 <= int(found[1]) <= int(found[2]) <= 65_535:
        raise RefusedError(f"{PORT_RANGE} is two numbers from 1024 to 65535, like {USUAL_PORTS!r}, not {value!r}.")
    return f"{found[1]} {found[2]}"


class ServiceLimits:
    """The limits of the programs and containers of *supervisor*'s system; its definition says what holds now."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._system = supervisor
        self._written = dict(supervisor.system.services)
        self._changed = set[str]()
        self._ports: dict[str, str] = {}

    def of(self, service: str) -> dict[str, str]:
        """Return the changed port range of each replica of *service*, and of a team's own program CPU and memory."""
        spec = self._system.system.services[service]
        ports = {PORT_RANGE: self._ports[service]} if service in self._ports else {}
        return ports if spec.program is None else {key: f"{getattr(spec, key):g}" for key in LIMITS} | ports

    def knows(self, service: str, key: str) -> bool:
        """Return whether *key* is a limit that can be changed; raises RefusedError for what cannot be here."""
        network = self._system.network
        if key == PORT_RANGE and not isinstance(network, NamespacedNetwork):
            raise RefusedError(
                f"{PORT_RANGE} belongs to a network namespace, and {service} has none of its own on the level "
                f"{network.level}; take the level {NamespacedNetwork.level}."
            )
        if key == PORT_RANGE:
            return True
        limits = self.of(service)
        if key not in limits and self._system.system.compose is not None:
            raise RefusedError(f"The compose file says what {service} is given; its settings are {', '.join(limits)}.")
        return key in limits

    def change(self, service: str, key: str, value: str | None) -> None:
        """Set the limit *key* of *service* to *value* (None: as in the system's file) for all its replicas.

        Raises RefusedError for a value out of range or a machine without control groups, OperationError when it
        fails.
        """
        if key == PORT_RANGE:
            self._change_ports(service, USUAL_PORTS if value is None else value)
            return
        system, written = self._system.system, getattr(self._written[service], key)
        least = min(LEAST[key], written)
        most = system.host_cpu_limit if key == CPU_LIMIT else system.host_memory_limit_mb
        try:
            limit = written if value is None else type(LEAST[key])(value)
        except ValueError:
            limit = 0
        if not least <= limit <= most:
            raise RefusedError(f"{key} is a number from {least:g} to {most:g} here, not {value}.")
        if not self._system.containers.limit(LIMITS[key]):
            raise RefusedError(f"{key} cannot be changed: this machine has no control groups for it.")
        system.services[service] = system.services[service].model_copy(update={key: limit})
        self._changed.add(service)
        for replica in self._system.fleet.replicas_of(service):
            self.hold(replica)

    def _change_ports(self, service: str, value: str) -> None:
        """Set the range of local ports of *service* to *value*, "FIRST LAST", for all its replicas; raises as `change`.

        A namespace ends with its last process, and its range with it: nothing of it is left, whatever ends the system.
        """
        self._ports[service] = read_ports(value)
        for replica in self._system.fleet.replicas_of(service):
            self.hold_ports(replica)
        if self._ports[service] == USUAL_PORTS:
            del self._ports[service]

    def local_ports(self, replicas: Iterable[Replica]) -> dict[str, Any]:
        """Return, by replica, its range of local ports and its connections by state; {} without own namespaces."""
        network = self._system.network
        if not isinstance(network, NamespacedNetwork):
            return {}
        return {one.id: local_ports(network.place(one.id).path) for one in replicas}

    def hold_ports(self, replica: Replica) -> None:
        """Apply the changed port range of the service to the namespace of *replica*; raises OperationError."""
        network = self._system.network
        if replica.service not in self._ports or not isinstance(network, NamespacedNetwork):
            return
        first, last = map(int, self._ports[replica.service].split())
        try:
            set_local_ports(network.place(replica.id).path, first, last)
        except OSError as error:
            raise OperationError(f"The kernel refuses the port range of {replica.id}: {error.strerror}.") from error

    def hold(self, replica: Replica) -> None:
        """Apply changed limits of the service to a new process of *replica*; raises OperationError."""
        self.hold_ports(replica)
        if replica.service not in self._changed:
            return
        replica.spec = self._system.system.services[replica.service]
        try:
            self._system.containers.make_for(replica)
        except OSError as error:
            raise OperationError(f"The kernel refuses the limits of {replica.id}: {error.strerror}.") from error
