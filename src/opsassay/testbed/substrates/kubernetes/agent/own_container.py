"""The container that this process is in, as the sampler and companions of `local` read one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsassay.core.schema.system import Service, System
from opsassay.testbed.core.fleet import Fleet, Replica
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.kernel.cgroups import ACCOUNTING, CONTROLLERS, Groups, mounts
from opsassay.testbed.workload.containers import Containers


class Alone(Fleet):
    """The one replica that runs in this pod, with the *resource* that its telemetry names."""

    def __init__(
        self, resource: dict[str, str], service: str | None, system: dict[str, Any], pid: int, starts: int
    ) -> None:
        described = System.model_validate(system)
        spec = described.services[service] if service else Service()
        super().__init__(described.model_copy(update={"services": {}, "hosts": ()}), 0)
        self._resource = resource
        pod, node = resource["k8s.pod.name"], resource["k8s.node.name"]
        self.replica = Replica(pod, service or "", spec, node, pod, pid=pid, restarts=starts - 1)
        self.replicas = {pod: self.replica}
        self.companions: set[int] = set()

    def resource(self, replica: Replica) -> dict[str, str]:  # noqa: ARG002 - there is one
        """Return the OpenTelemetry resource attributes of this pod, its only replica."""
        return self._resource


class OwnContainer(Containers):
    """The control groups that the container runtime made for this container."""

    def __init__(self, state: SystemState, fleet: Fleet) -> None:
        super().__init__(state, fleet, own_groups())

    def group_of(self, replica: Replica) -> str:  # noqa: ARG002 - there is one
        """Return '': the root of the mounted control groups is the container's own group."""
        return ""


def own_groups(mountinfo: Path = Path("/proc/self/mountinfo")) -> Groups | None:
    """Return the control groups of this container by *mountinfo*, None unless CPU and memory are both mounted."""
    mounted = mounts(mountinfo.read_text(encoding="utf-8"))
    parents: dict[str, Path] = {}
    versions: dict[str, int] = {}
    for controller in (*CONTROLLERS, ACCOUNTING):
        if controller in mounted:
            parents[controller], versions[controller] = mounted[controller].point, 1
        elif "" in mounted and controller in CONTROLLERS:
            parents[controller], versions[controller] = mounted[""].point, 2
    return Groups(parents, versions) if all(controller in versions for controller in CONTROLLERS) else None
