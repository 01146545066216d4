"""The timeline observer on a cluster: the four depths at every tick, from watches, and real requests by the probe pod.

Every kind is listed once and then watched; a tick asks the API for nothing but its own health. A watch that has dropped
makes the readings that need it None until it is resumed: stale objects are no evidence.

    python -m opsassay.testbed.substrates.kubernetes.observer --on NAME --output FILE [--kubeconfig F] [--context C]
        [--cadence 5]
        [--probe-every 20] [--protect SERVICE ...]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from opsassay.errors import LostError, OpsAssayError
from opsassay.model.trajectory import CONTROL_PLANE_SUFFIX, ControlPlaneReading, Depth, Entity, Observation, Probe, Tick
from opsassay.telemetry.clock import boot_id
from opsassay.testbed.substrates.kubernetes.api import readings
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, DeniedError, Object
from opsassay.testbed.substrates.kubernetes.api.mirror import Mirror
from opsassay.testbed.substrates.kubernetes.manifests.system import PROBE, PROBE_PORT
from opsassay.testbed.substrates.kubernetes.running import Watched
from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

REACHABLE_WITHIN_S = 3.0
PROBE_TIMEOUT_S, HEALTH_TIMEOUT_S = 10.0, 10.0
SYSTEM_NAMESPACE = "kube-system"
LISTED = ("Pod", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet", "Endpoints")


class Observer:
    """Appends ticks to *out* every *cadence_s* seconds, and the health of the control plane to a file beside it."""

    def __init__(
        self, api: Api, watched: Watched, out: Path, cadence_s: float = 5.0, probe_every_s: float | None = 20.0
    ) -> None:
        self.api, self.watched, self.cadence_s, self.probe_every_s = api, watched, cadence_s, probe_every_s
        self.mirrors = {kind: Mirror(api, kind) for kind in LISTED}
        self.mirrors |= {"Lease": Mirror(api, "Lease", SYSTEM_NAMESPACE), "Node": Mirror(api, "Node")}
        self.stopping = threading.Event()
        self._out = _appending(out)
        self._health = _appending(out.with_suffix(CONTROL_PLANE_SUFFIX))
        self._probes: list[Probe] = []
        self._known: dict[str, Entity] = {}
        self._probed = 0
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(4, "probe")

    def run(self) -> None:
        """Observe until `stopping` is set, then probe once more and write the last tick."""
        for mirror in self.mirrors.values():
            mirror.start()
        for kind in LISTED:  # the others are told beside the timeline, where this user may see them
            self.mirrors[kind].wait()
        _write(self._out, {"boot_id": boot_id(), "cadence_s": self.cadence_s, "schema_version": 2})
        started = time.monotonic()
        index, next_probe = 0, 0.0
        while not self.stopping.is_set():
            if self.probe_every_s and time.monotonic() - started >= next_probe:
                next_probe += self.probe_every_s
                self.probe_all()
            self._tick(index)
            index = self._wait_for_next(started, index)
        for future in self.probe_all():
            future.result()
        self._tick(index)
        for mirror in self.mirrors.values():
            mirror.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def probe_all(self) -> list[Any]:
        """Have every protected service probed at once; the outcomes are in the next tick."""
        return [self._pool.submit(self._probe, service, url) for service, url in self.watched.protected.items()]

    def _wait_for_next(self, started: float, index: int) -> int:
        """Sleep until the next turn; write those that have passed as missed."""
        index += 1
        while time.monotonic() > started + (index + 1) * self.cadence_s:
            now = time.time_ns()
            self._append(index, [_observed("D1", now, None, ("missed",))])
            index += 1
        self.stopping.wait(max(started + index * self.cadence_s - time.monotonic(), 0.0))
        return index

    def _tick(self, index: int) -> None:
        began = time.time_ns()
        health = api_health(self.api)
        pods = [p for p in self.mirrors["Pod"].all() if p["metadata"]["namespace"] in self.watched.namespaces]
        sets = self.mirrors["ReplicaSet"].objects
        share, failing = readings.availability(pods, self._workloads(), sets)
        endpoints = self.mirrors["Endpoints"].objects
        backed, empty = readings.populated({name: endpoints.get(self._place(name)) for name in self.watched.protected})
        changed, gone = self._changes(readings.entities(pods, sets))
        whole, failed = self._control_plane(health)
        self._note_beside(began, health)
        stated = partial(self._stated, began, reached=health["reached"])
        observations = [
            stated("D1", share, failing, ("Pod", "ReplicaSet", "Deployment", "StatefulSet", "DaemonSet")),
            stated("D2", backed, empty, ("Endpoints",)),
            stated("D4", whole, failed, ("Pod",)),
        ]
        self._append(index, observations, changed, gone)

    def _place(self, service: str) -> tuple[str, str]:
        """Return namespace and name of the protected *service*."""
        name, _, namespace = service.partition(".")
        return namespace or self.watched.namespaces[0], name

    def _workloads(self) -> list[Object]:
        """Return what wants replicas; a replica set only where no deployment is above it. Lists leave the kind out."""
        return [
            {**item, "kind": kind}
            for kind in readings.WORKLOADS
            for item in self.mirrors[kind].all()
            if item["metadata"]["namespace"] in self.watched.namespaces
            and not (kind == "ReplicaSet" and readings.owner_of(item))
        ]

    def _stated(
        self,
        began: int,
        depth: Depth,
        value: float | None,
        failing: Sequence[str],
        kinds: Sequence[str],
        *,
        reached: bool,
    ) -> Observation:
        """Return a reading, without a value when one of the *kinds* that it needs is not followed now.

        While the API server is not *reached* none is followed, though a watch is the last to notice that nobody is there.
        """
        stale = [f"watch:{kind}" for kind in kinds if not (reached and self.mirrors[kind].fresh)]
        return _observed(depth, began, None, tuple(stale)) if stale else _observed(depth, began, value, tuple(failing))

    def _control_plane(self, health: Mapping[str, Any]) -> tuple[float | None, tuple[str, ...]]:
        """Return D4, and what fails."""
        system = [p for p in self.mirrors["Pod"].all() if p["metadata"]["namespace"] == SYSTEM_NAMESPACE]
        components = {} if readings.has_own_control_plane(system) else self._components(health)
        return readings.control_plane(system, components)

    def _note_beside(self, began: int, health: Mapping[str, Any]) -> None:
        """Write how the API server answered, how old leases are, which nodes are lost, how often watches were resumed."""
        leases = {
            item["metadata"]["name"]: _age_s(item["spec"].get("renewTime")) for item in self.mirrors["Lease"].all()
        }
        lost = sorted(node["metadata"]["name"] for node in self.mirrors["Node"].all() if not readings.is_ready(node))
        resumed = sum(mirror.drops for mirror in self.mirrors.values())
        reading = ControlPlaneReading(
            time_ns=began, **health, lease_ages_s=leases, nodes_not_ready=tuple(lost), watches_resumed=resumed
        )
        _write(self._health, reading.model_dump(mode="json"))

    def _components(self, health: Mapping[str, Any]) -> dict[str, bool]:
        """Return the health of a control plane that is no pods: what the API server says of itself and of its parts."""
        found = {"kube-apiserver": bool(health["ready"])}
        if not health["reached"]:
            return found
        try:
            listed = self.api.request("GET", "/api/v1/componentstatuses", timeout_s=5.0, tries=1)["items"]
        except OpsAssayError:
            return found
        for item in listed:
            healthy = any(c["type"] == "Healthy" and c["status"] == "True" for c in item.get("conditions") or ())
            found[item["metadata"]["name"]] = healthy
        return found

    def _changes(self, now: Sequence[Entity]) -> tuple[tuple[Entity, ...], tuple[str, ...]]:
        current = {entity.id: entity for entity in now}
        changed = tuple(entity for name, entity in current.items() if self._known.get(name) != entity)
        gone = tuple(sorted(self._known.keys() - current.keys()))
        self._known = current
        return changed, gone

    def _probe(self, service: str, url: str) -> None:
        began, started = time.time_ns(), time.monotonic()
        status, latency_s = None, 0.0
        try:
            outcome = send_probe(self.api, self.watched.probe or "", url, PROBE_TIMEOUT_S)
            status, latency_s = outcome["status"], outcome["latency_s"]
        except OpsAssayError:
            latency_s = time.monotonic() - started
        with self._lock:
            self._probed += 1
            reachable = status == 200 and latency_s <= REACHABLE_WITHIN_S
            self._probes.append(
                Probe(id=f"probe-{self._probed}", target=service, started_ns=began, ended_ns=time.time_ns(), status=status,
                      latency_s=latency_s, reachable=reachable)
            )  # fmt: skip

    def _append(
        self,
        index: int,
        observations: list[Observation],
        changed: tuple[Entity, ...] = (),
        gone: tuple[str, ...] = (),
    ) -> None:
        with self._lock:
            probes, self._probes = tuple(self._probes), []
        if probes:
            unreachable = tuple(sorted({probe.target for probe in probes if not probe.reachable}))
            share = sum(probe.reachable for probe in probes) / len(probes)
            span = min(p.started_ns for p in probes), max(p.ended_ns for p in probes)
            observations.append(
                Observation(depth="D3", started_ns=span[0], ended_ns=span[1], value=share, failing=unreachable)
            )
        tick = Tick(index=index, observations=tuple(observations), probes=probes, entities=changed, gone=gone)
        _write(self._out, tick.model_dump(mode="json"))


def send_probe(api: Api, namespace: str, url: str, timeout_s: float) -> dict[str, Any]:
    """Have the probe pod in *namespace* send one GET to *url*; return status, latency_s and error.

    The request reaches the pod through the API server, so that nothing is started in it. Raises what `Api.request` raises.
    """
    query = urlencode({"url": url, "timeout": timeout_s})
    path = f"/api/v1/namespaces/{namespace}/services/{PROBE}:{PROBE_PORT}/proxy/?{query}"
    answer: dict[str, Any] = api.request("GET", path, timeout_s=timeout_s + 5)
    return answer


def api_health(api: Api) -> dict[str, Any]:
    """Return whether the API server was reached and says that it is ready, which checks fail, how long the answer took.

    It is asked once: what may pass is what is measured here.
    """
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


def _observed(depth: Depth, began: int, value: float | None, failing: tuple[str, ...]) -> Observation:
    return Observation(depth=depth, started_ns=began, ended_ns=time.time_ns(), value=value, failing=failing)


def _age_s(renewed: str | None) -> float | None:
    if renewed is None:
        return None
    return round((datetime.now(UTC) - datetime.fromisoformat(renewed.replace("Z", "+00:00"))).total_seconds(), 1)


def _appending(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def _write(descriptor: int, line: dict[str, Any]) -> None:
    os.write(descriptor, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def _stop_with_input(observer: Observer) -> None:
    sys.stdin.read()
    observer.stopping.set()


def main() -> None:
    """Run the observer until its standard input ends or it is told to stop."""
    parser = argparse.ArgumentParser(
        prog="python -m opsassay.testbed.substrates.kubernetes.observer", description=__doc__
    )
    parser.add_argument("--on", required=True, help="running system")
    parser.add_argument("--output", required=True, type=Path, help="timeline file")
    parser.add_argument("--kubeconfig", type=Path, help="kubectl's own when left out")
    parser.add_argument("--context", help="the current one when left out")
    parser.add_argument("--cadence", type=float, default=5.0, help="seconds between ticks")
    parser.add_argument(
        "--probe-every", type=float, default=20.0, help="seconds between probes; 0 for none but the last"
    )
    parser.add_argument("--protect", nargs="*", default=[], help="services that are probed; the entries when left out")
    given = parser.parse_args()
    try:
        running = KubernetesSubstrate(given.kubeconfig, given.context).running(given.on)
        observer = Observer(
            running.api, running.watched(given.protect), given.output, given.cadence, given.probe_every or None
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: observer.stopping.set())
        threading.Thread(target=_stop_with_input, args=(observer,), daemon=True).start()
        observer.run()
    except OpsAssayError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
