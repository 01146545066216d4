"""Limits of processor and memory as an operator changes them: they hold at once, and at every later start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsassay.core.errors import OperationError, RefusedError
from opsassay.testbed.core.fleet import Replica
from opsassay.testbed.kernel.cgroups import CPU, MEMORY

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.supervisor import Supervisor

CPU_LIMIT, MEMORY_LIMIT = "cpu_limit", "memory_limit_mb"
LIMITS = {CPU_LIMIT: CPU, MEMORY_LIMIT: MEMORY}
"""The settings that are limits, as a system's file calls them, and what counts them."""
LEAST = {CPU_LIMIT: 0.01, MEMORY_LIMIT: 64}


class ServiceLimits:
    """The limits of the programs and containers of *supervisor*'s system; its definition says what holds now."""

    def __init__(self, supervisor: Supervisor) -> None:
        self._system = supervisor
        self._written = dict(supervisor.system.services)
        self._changed = set[str]()

    def of(self, service: str) -> dict[str, str]:
        """Return the CPU and memory limits of each replica of *service*; {} if it is of OpsAssay's own runtime."""
        spec = self._system.system.services[service]
        return {} if spec.program is None else {key: f"{getattr(spec, key):g}" for key in LIMITS}

    def knows(self, service: str, key: str) -> bool:
        """Return whether *key* is a limit that can be changed; raises RefusedError for other keys of a container."""
        limits = self.of(service)
        if key not in limits and self._system.system.compose is not None:
            raise RefusedError(f"The compose file says what {service} is given; its settings are {', '.join(limits)}.")
        return key in limits

    def change(self, service: str, key: str, value: str | None) -> None:
        """Set the limit *key* of *service* to *value* (None: as in the system's file) for all its replicas.

        Raises RefusedError for a value out of range or a machine without control groups, OperationError when it
        fails.
        """
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

    def hold(self, replica: Replica) -> None:
        """Apply changed limits of the service to a new process of *replica*; raises OperationError."""
        if replica.service not in self._changed:
            return
        replica.spec = self._system.system.services[replica.service]
        try:
            self._system.containers.make_for(replica)
        except OSError as error:
            raise OperationError(f"The kernel refuses the limits of {replica.id}: {error.strerror}.") from error
