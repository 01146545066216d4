"""The probes of a system on a cluster: the depths from watches, and requests by the probe pod.

Every kind is listed once and then watched; a tick asks the API for nothing but its own health. A watch that has dropped
makes the readings that need it None until it is resumed: stale objects are no evidence.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from opsassay.core.errors import LostError, OpsAssayError
from opsassay.core.schema.trajectory import ControlPlaneReading
from opsassay.testbed.core.probes import PROBE_TIMEOUT_S, DepthReading, ProbeAnswer, SystemReading
from opsassay.testbed.substrates.kubernetes.api import readings
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, DeniedError, Object
from opsassay.testbed.substrates.kubernetes.api.mirror import Mirror
from opsassay.testbed.substrates.kubernetes.endpoints.probing import send_probe

HEALTH_TIMEOUT_S = 10.0
PARTS_WAIT_S = 1.0
"""For so long a tick waits for what is said of parts: what is read of the system is not to be late for it."""
PARTS_GOOD_S = 10.0
"""What was asked longer ago than this tells nothing of the parts any more."""
SYSTEM_NAMESPACE = "kube-system"
LISTED = ("Pod", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Endpoints")


@dataclass(frozen=True)
class Watched:
    """What is observed: *namespaces* together are the system, *protected* are URLs by service, *probe* sends requests.

    The host of such a URL is SERVICE.NAMESPACE, or SERVICE in the first of the namespaces; *probe* is the namespace of the
    probe pod, None for a run without probes.
    """

    namespaces: tuple[str, ...]
    protected: Mapping[str, str]
    probe: str | None = None


class ClusterProbes:
    """The probes of what is *watched* through *api*."""

    def __init__(self, api: Api, watched: Watched) -> None:
        self.api, self.watched = api, watched
        self.protected: Sequence[str] = tuple(watched.protected)
        self.mirrors = {kind: Mirror(api, kind) for kind in LISTED}
        self._parts: dict[str, int] | None = None
        self._health_of_parts = HealthOfParts(api)
        self.mirrors |= {"Lease": Mirror(api, "Lease", SYSTEM_NAMESPACE), "Node": Mirror(api, "Node")}

    async def __aenter__(self) -> Self:
        """Begin to watch; raises what keeps it from listing the system's objects."""
        for mirror in self.mirrors.values():
            mirror.start()
        for kind in LISTED:  # the others are recorded beside the timeline, where this user may see them
            await asyncio.to_thread(self.mirrors[kind].wait)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""
        for mirror in self.mirrors.values():
            mirror.stop()

    async def read(self) -> SystemReading:
        """Return the ready shares of replicas (D1), backends (D2) and control plane (D4), from watched objects."""
        return await asyncio.to_thread(self._read_system)

    async def request(self, service: str) -> ProbeAnswer:
        """Have the probe pod send one request to the URL of *service*; return status and latency."""
        return await asyncio.to_thread(self._send_request, self.watched.protected[service])

    def _read_system(self) -> SystemReading:
        """Return the ready shares of D1, D2 and D4 from mirrors, replicas to control plane; blocks for one API call."""
        began = time.time_ns()
        health = api_health(self.api)
        pods = [p for p in self.mirrors["Pod"].all() if p["metadata"]["namespace"] in self.watched.namespaces]
        sets, endpoints = self.mirrors["ReplicaSet"].objects, self.mirrors["Endpoints"].objects
        ready = readings.availability(pods, self._workloads(), sets)
        backed = readings.populated(
            {name: endpoints.get(self._resolve_service(url)) for name, url in self.watched.protected.items()}
        )
        return SystemReading(
            self._fresh(ready, ("Pod", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet"), health),
            self._fresh(backed, ("Endpoints",), health),
            self._fresh(self._control_plane(health), ("Pod",), health),
            readings.entities(pods, sets),
            details=self._details(began, health),
        )

    def _send_request(self, url: str) -> ProbeAnswer:
        """Send one request to *url* from the probe pod; return its status, None without an answer, and latency."""
        started = time.monotonic()
        try:
            answer = send_probe(self.api, self.watched.probe or "", url, PROBE_TIMEOUT_S)
        except OpsAssayError:
            return ProbeAnswer(None, time.monotonic() - started)
        return ProbeAnswer(answer["status"], answer["latency_s"])

    def _resolve_service(self, url: str) -> tuple[str, str]:
        """Return (namespace, name) of the Service in the host name of *url*."""
        name, namespace, *_ = [*(urlsplit(url).hostname or "").split("."), ""]
        return namespace or self.watched.namespaces[0], name

    def _workloads(self) -> list[Object]:
        """Return the system's workloads; of replica sets only those without an owner."""
        return [
            {**item, "kind": kind}
            for kind in readings.WORKLOADS
            for item in self.mirrors[kind].all()
            if item["metadata"]["namespace"] in self.watched.namespaces
            and not (kind == "ReplicaSet" and readings.owner_of(item))
        ]

    def _fresh(
        self, reading: tuple[float | None, Sequence[str]], kinds: Sequence[str], health: Mapping[str, Any]
    ) -> DepthReading:
        """Return *reading* (share, failing); share None if a mirror of *kinds* is stale or, by *health*, the API is."""
        stale = [f"watch:{kind}" for kind in kinds if not (health["reached"] and self.mirrors[kind].fresh)]
        return DepthReading(None, tuple(stale)) if stale else DepthReading(reading[0], tuple(reading[1]))

    def _control_plane(self, health: Mapping[str, Any]) -> tuple[float | None, tuple[str, ...]]:
        """Return (D4: ready share of the cluster's critical parts, names of the others); *health* is of the API server.

        The expected parts are those of the first reading at which the API server answered.
        """
        system = [p for p in self.mirrors["Pod"].all() if p["metadata"]["namespace"] == SYSTEM_NAMESPACE]
        components, sets = {}, self.mirrors["ReplicaSet"].objects
        if not readings.has_own_control_plane(system):
            if (said := self._health_of_parts.read()) is None:
                return None, ("componentstatuses",)
            components = {"kube-apiserver": bool(health["ready"]), **said}
        if self._parts is None and health["reached"]:
            self._parts = readings.critical_parts(system, components, sets)
        return readings.control_plane(system, components, self._parts, sets)

    def _details(self, began: int, health: Mapping[str, Any]) -> ControlPlaneReading:
        """Return *health* with lease ages, lost nodes, and how often watches were resumed, at *began* (UTC ns)."""
        leases = {
            item["metadata"]["name"]: _age_s(item["spec"].get("renewTime")) for item in self.mirrors["Lease"].all()
        }
        nodes = {node["metadata"]["name"]: readings.is_ready(node) for node in self.mirrors["Node"].all()}
        lost = sorted(name for name, ready in nodes.items() if not ready)
        resumed = sum(mirror.drops for mirror in self.mirrors.values())
        return ControlPlaneReading(
            time_ns=began, **health, lease_ages_s=leases, nodes_not_ready=tuple(lost), nodes_ready=len(nodes) - len(lost),
            watches_resumed=resumed,
        )  # fmt: skip


class HealthOfParts:
    """What the API server of *api* says of the parts of a control plane that is no pods.

    It asks each part before it answers, and one that is slow can take it longer than there is between two ticks. So it is
    asked beside the other readings, one question at a time.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._answer: tuple[float, dict[str, bool]] | None = None
        self._asking: threading.Thread | None = None

    def read(self) -> dict[str, bool] | None:
        """Return {component: healthy} of the latest answer, {} if the API does not tell, None if it is too old."""
        if self._asking is None or not self._asking.is_alive():
            self._asking = threading.Thread(target=self._read_health, name="health-of-parts", daemon=True)
            self._asking.start()
        self._asking.join(PARTS_WAIT_S)
        if self._answer is None or time.monotonic() - self._answer[0] > PARTS_GOOD_S:
            return None
        return self._answer[1]

    def _read_health(self) -> None:
        """Read componentstatuses and store them; a failed request keeps the former, a denied one stores {}."""
        asked, found = time.monotonic(), {}
        try:
            path = "/api/v1/componentstatuses"
            for item in self._api.request("GET", path, timeout_s=HEALTH_TIMEOUT_S, tries=1)["items"]:
                conditions = item.get("conditions") or ()
                found[item["metadata"]["name"]] = any(
                    c["type"] == "Healthy" and c["status"] == "True" for c in conditions
                )
        except DeniedError:
            pass
        except ApiError as error:
            if error.status != 404:
                return
        except OpsAssayError:
            return
        self._answer = asked, found


def api_health(api: Api) -> dict[str, Any]:
    """Return {reached, ready, failing: names of checks, latency_s} of the API server's /readyz."""
    started, words, ready, reached = time.monotonic(), "", True, True
    try:
        api.request("GET", "/readyz", query={"verbose": ""}, timeout_s=HEALTH_TIMEOUT_S, tries=1)
    except ApiError as error:
        words, ready = error.answer, False
    except LostError as error:
        words, ready, reached = f"[-]unreachable: {error}", False, False
    except DeniedError:  # it answers; what it would say is not for this user
        pass
    failing = [line[3:].split()[0].rstrip(":") for line in words.splitlines() if line.startswith("[-]")]
    latency_s = round(time.monotonic() - started, 4)
    return {"reached": reached, "ready": ready, "failing": failing, "latency_s": latency_s}


def _age_s(renewed: str | None) -> float | None:
    """Return the seconds since *renewed*, an ISO 8601 time; None for None."""
    if renewed is None:
        return None
    return round((datetime.now(UTC) - datetime.fromisoformat(renewed.replace("Z", "+00:00"))).total_seconds(), 1)
