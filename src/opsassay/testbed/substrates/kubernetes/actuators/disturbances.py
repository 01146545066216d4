"""What happens on a cluster in an incident in which nothing is broken: more load, or a rollout that harms nobody."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from opsassay.core.errors import OperationError
from opsassay.core.schema.incident import PlannedFault
from opsassay.testbed.injection.disturbances import least_missed
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest

ROLLOUT_TIMEOUT_S, LOOK_EVERY_S = 90.0, 0.5


class ClusterLoadSurge:
    """Users send ``factor`` times as many requests; at its deadline the load generator returns to its own rate."""

    def __init__(self, system: ClusterUnderTest, plan: PlannedFault) -> None:
        self._system, self._factor = system, float(plan.parameters["factor"])

    async def apply(self) -> None:
        """Raise the rate of the load to the factor of the plan; raises OperationError when that fails."""
        system = self._system
        if system.load_pod is None:
            raise OperationError(f"The load generator of {system.name} is not ready; wait and retry.")
        payload = await asyncio.to_thread(system.pod_endpoints.counters, system.load_pod)
        system.rate_rps = payload["rate_rps"] * self._factor
        await system.push_rate()

    async def undo(self) -> None:
        """Restore the former rate of the load."""
        if self._system.rate_rps is not None:
            self._system.rate_rps = None
            await self._system.push_rate()


class RollingRestart:
    """The pods of one service are replaced as a rolling update does it: each successor serves before one goes."""

    def __init__(self, system: ClusterUnderTest, plan: PlannedFault) -> None:
        self._system = system
        self._service = plan.target.name if plan.target else least_missed(system)

    async def apply(self) -> None:
        """Restart the deployment by a rolling update and wait until it is complete; raises OperationError when late."""
        api, name = self._system.api, self._system.name
        now = {"kubectl.kubernetes.io/restartedAt": datetime.now(UTC).isoformat(timespec="seconds")}
        change = {"spec": {"template": {"metadata": {"annotations": now}}}}
        desired = (await asyncio.to_thread(api.patch, "Deployment", self._service, change, name))["metadata"][
            "generation"
        ]
        deadline = time.monotonic() + ROLLOUT_TIMEOUT_S
        while not await asyncio.to_thread(self._is_over, desired):
            if time.monotonic() > deadline:
                raise OperationError(f"The rollout of {self._service} did not end in {ROLLOUT_TIMEOUT_S:g} s.")
            await asyncio.sleep(LOOK_EVERY_S)

    async def undo(self) -> None:
        """Do nothing: the replaced pods cannot come back."""

    def _is_over(self, generation: int) -> bool:
        """Return whether the deployment's *generation* is observed and all its replicas are updated and ready."""
        found = self._system.api.get("Deployment", self._service, self._system.name) or {}
        status, replicas = found.get("status", {}), found.get("spec", {}).get("replicas", 1)
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")]
        return status.get("observedGeneration", 0) >= generation and counts == [replicas] * 3
