"""A namespace that exists, under test: its pods have no agent of ours, so they are asked by the probe instead."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from opsassay.core.errors import OpsAssayError
from opsassay.testbed.core.fleet import LOAD_GENERATOR, Replica
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest
from opsassay.testbed.substrates.kubernetes.api import readings
from opsassay.testbed.substrates.kubernetes.api.client import Object
from opsassay.testbed.substrates.kubernetes.endpoints.probing import send_probe
from opsassay.testbed.substrates.kubernetes.manifests.system import LOAD, PROBE

CHECK_TIMEOUT_S = 1.5
"""A pod that takes longer does not answer: what is cut off is asked again soon."""


class ExistingUnderTest(ClusterUnderTest):
    """A namespace that exists, under test; load generator and probe are in the one that watches it."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self._checks: dict[str, list[int]] = {}
        """By replica: requests of the probe, those that failed, and how long all took, ns."""

    @property
    def load_namespace(self) -> str:
        """The namespace that watches the one under test."""
        return self.watch_namespace

    def service_of(self, pod: Object) -> str:
        """Return the deployment or stateful set of *pod*, '' for another pod."""
        return readings.service_of(pod)

    async def push_hooks(self, replica: Replica) -> None:
        """Do nothing: nothing of ours runs in the pod."""

    async def save_ledger(self, pod: str) -> None:
        """Do nothing: the pod keeps no ledger."""

    def addresses_of(self, name: str, *, as_callee: bool) -> list[str]:
        """Return the addresses of *name* as `ClusterUnderTest` does; those of the load generator include the probe's."""
        if name != LOAD_GENERATOR:
            return super().addresses_of(name, as_callee=as_callee)
        pods = [pod for app in (LOAD, PROBE) for pod in self.api.list("Pod", self.watch_namespace, f"app={app}")]
        return [pod["status"]["podIP"] for pod in pods if "podIP" in pod["status"]]

    def _find_load(self, pods: Iterable[Object]) -> str | None:  # noqa: ARG002 - it is not among them
        """Return the load generator's pod, which `_poll_load` found in another namespace; *pods* are not searched."""
        return self.load_pod

    async def _poll_one(self, replica: Replica) -> bool:
        """Have the probe ask the pod of *replica*, and count the answer; return whether the probe could be asked."""
        url = self._url_of(replica)
        if url is None:
            return False
        try:
            answer = await asyncio.to_thread(send_probe, self.api, self.watch_namespace, url, CHECK_TIMEOUT_S)
        except OpsAssayError:
            return False
        counts = self._checks.setdefault(replica.id, [0, 0, 0])
        failed = answer["status"] is None or answer["status"] >= 400
        for at, more in enumerate((1, int(failed), int(answer["latency_s"] * 1e9))):
            counts[at] += more
        replica.history.append((time.monotonic(), {"server": list(counts)}))
        return True

    async def _poll_load(self) -> None:
        """Read the load generator's counters into its history, if it answers."""
        pods = await asyncio.to_thread(self.api.list, "Pod", self.watch_namespace, f"app={LOAD}")
        self.load_pod = super()._find_load(pods)
        await super()._poll_load()

    def _url_of(self, replica: Replica) -> str | None:
        """Return the URL of the page of *replica* that the probe asks for, None without one."""
        assert self.system.namespace is not None
        asked, program = self.system.namespace.probes.get(replica.service), replica.spec.program
        pod = self._pods.objects.get((self.name, replica.pod))
        if asked is None or program is None or pod is None or not (address := pod["status"].get("podIP")):
            return None
        parts = urlsplit(asked)
        return f"http://{address}:{program.port}{parts.path}" + (f"?{parts.query}" if parts.query else "")
