"""The timeline observer: a process of its own that watches a system at the four depths of "side-effects" (section 3).

At every tick: D1 ready replicas over all replicas, D2 ready backends of each protected service, D4 health of every
control-plane part. D3, on its own schedule and once at the end, is a real request to each protected service: reachable
is an answer 200 within 3 s, though the probe waits up to 10 s to learn its own latency. A tick whose turn passed while
the one before was still busy is recorded as missed. Beside the depths a tick holds what changed since the last one that
got an answer: replicas (readiness, host, release) and the load generator's counts per kind of request. The timeline is
JSON lines: a header, then one `Tick` a line.

    python -m opsassay.testbed.recording.observer --on NAME --output FILE [--cadence 1] [--probe-every 20]
        [--protect SERVICE ...]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import aiohttp

from opsassay.errors import DatapackError, LostError, OpsAssayError, StartError
from opsassay.model.trajectory import (
    Depth,
    Entity,
    Observation,
    Probe,
    Tick,
    Timeline,
    parse_timeline,
)
from opsassay.telemetry.clock import boot_id
from opsassay.telemetry.otlp.client import ReceiverControl
from opsassay.testbed.kernel.namespaces import join
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

REACHABLE_WITHIN_S = 3.0
PROBE_TIMEOUT = aiohttp.ClientTimeout(10.0, sock_connect=REACHABLE_WITHIN_S)
"""A slow answer is waited for; a connection that is not accepted is no answer at all."""
PART_TIMEOUT_S = 2.0
START_TIMEOUT_S, END_TIMEOUT_S = 60.0, 60.0
"""The last probe and the last reading are bounded; what takes a busy machine longer than this does not end."""


class Observed(Protocol):
    """What is asked of a system that is observed; a local one answers it, and so may anything else."""

    @property
    def receiver(self) -> ReceiverControl | None:
        """The receiver of its telemetry, a part of its control plane; None where there is none."""
        ...

    def status(self) -> dict[str, Any]:
        """Return endpoints, backends (protected service to URLs) and probe_paths (protected service to path)."""
        ...

    def command(self, op: str) -> dict[str, Any]:
        """Return on ``observe`` ready and replicas (counts), not_ready, pids (by replica), entities, load and stores."""
        ...


class Observer:
    """Watches *running* every *cadence_s* seconds and appends ticks to *out*; probes *protected* every *probe_every_s*."""

    def __init__(
        self, running: Observed, out: Path, cadence_s: float, probe_every_s: float | None, protected: list[str]
    ) -> None:
        self.running, self.cadence_s, self.probe_every_s = running, cadence_s, probe_every_s
        status = running.status()
        self.protected, self.probe_path = protected or sorted(status["endpoints"]), status["probe_paths"]
        self.stopping = asyncio.Event()
        self._file = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._write({"boot_id": boot_id(), "cadence_s": cadence_s, "schema_version": Timeline.SCHEMA_VERSION})
        self._probes: list[Probe] = []
        self._entities: dict[str, Entity] = {}
        self._load: dict[str, tuple[int, int]] = {}
        self._count = 0

    async def run(self) -> None:
        """Observe until told to stop, then probe once more and write the last tick."""
        async with aiohttp.ClientSession(timeout=PROBE_TIMEOUT) as session:
            probing = asyncio.create_task(self._probe_on_schedule(session)) if self.probe_every_s else None
            started = time.monotonic()
            index = 0
            while not self.stopping.is_set():
                await self._tick(index)
                index = await self._wait_for_next(started, index)
            if probing is not None:
                probing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await probing
            await self._probe_all(session)
            await self._tick(index)

    async def _wait_for_next(self, started: float, index: int) -> int:
        """Sleep until the next turn; write those that have passed as missed."""
        index += 1
        while time.monotonic() > started + (index + 1) * self.cadence_s:
            now = time.time_ns()
            self._append(
                index, [Observation(depth="D1", started_ns=now, ended_ns=now, value=None, failing=("missed",))]
            )
            index += 1
        pause = started + index * self.cadence_s - time.monotonic()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), max(pause, 0.0))
        return index

    async def _tick(self, index: int) -> None:
        began = time.time_ns()
        try:
            status = await asyncio.to_thread(self.running.command, "observe")
        except OpsAssayError:
            status = None
        ended = time.time_ns()
        observations = [*self._from_status(status, began, ended), await self._control_plane(status, began)]
        self._append(index, observations, **self._changes(status))

    def _changes(self, status: dict[str, Any] | None) -> dict[str, Any]:
        """Return entities, gone and load of a tick: what is not as the last answer of the supervisor had it."""
        if status is None:
            return {}
        entities = {
            name: Entity(id=name, service=service, ready=ready, host=host, version=version)
            for name, service, ready, host, version in status["entities"]
        }
        load = {request: (done, failed) for request, (done, failed) in status["load"].items()}
        changed = tuple(one for name, one in entities.items() if self._entities.get(name) != one)
        counted = {request: counts for request, counts in load.items() if self._load.get(request) != counts}
        gone = tuple(sorted(self._entities.keys() - entities.keys()))
        self._entities, self._load = entities, load
        return {"entities": changed, "gone": gone, "load": counted}

    def _from_status(self, status: dict[str, Any] | None, began: int, ended: int) -> list[Observation]:
        """Return D1 and D2, both None when the supervisor did not answer."""
        if status is None:
            return [_observed(depth, began, ended, None, ("supervisor",)) for depth in ("D1", "D2")]
        missing = set(status["not_ready"])
        replicas: dict[str, list[str]] = {}
        for replica in status["pids"]:
            replicas.setdefault(replica.rpartition("-")[0], []).append(replica)
        own = {service: replicas.get(service, []) for service in self.protected}
        shares = {service: _share(len(set(ids) - missing), len(ids)) for service, ids in own.items()}
        empty = tuple(service for service, share in shares.items() if share == 0)
        return [
            _observed("D1", began, ended, _share(status["ready"], status["replicas"]), tuple(sorted(missing))),
            _observed("D2", began, ended, min(shares.values(), default=1.0), empty),
        ]

    async def _control_plane(self, status: dict[str, Any] | None, began: int) -> Observation:
        """Return D4: the share of control-plane parts that answer, and those that do not."""
        parts: dict[str, Callable[[], Awaitable[Any]]] = {}
        if (receiver := self.running.receiver) is not None:
            parts["receiver"] = lambda: asyncio.to_thread(receiver.stats)
        for name, (address, port) in (status or {}).get("stores", {}).items():
            parts[name] = partial(_connect, address, port)
        outcomes = await asyncio.gather(*(_answers(part) for part in parts.values()))
        failing = [name for name, healthy in zip(parts, outcomes, strict=True) if not healthy]
        if status is None:
            failing.append("supervisor")
        return _observed("D4", began, time.time_ns(), 1 - len(failing) / (len(parts) + 1), tuple(sorted(failing)))

    async def _probe_on_schedule(self, session: aiohttp.ClientSession) -> None:
        """Probe at every turn; one that comes while the last probes are still under way is left out."""
        assert self.probe_every_s is not None
        started = time.monotonic()
        while True:
            await self._probe_all(session)
            turns = (time.monotonic() - started) // self.probe_every_s + 1
            await asyncio.sleep(started + turns * self.probe_every_s - time.monotonic())

    async def _probe_all(self, session: aiohttp.ClientSession) -> None:
        try:
            endpoints = (await asyncio.to_thread(self.running.status))["backends"]
        except OpsAssayError:
            endpoints = {}
        await asyncio.gather(*(self._probe(session, service, endpoints.get(service, [])) for service in self.protected))

    async def _probe(self, session: aiohttp.ClientSession, service: str, urls: list[str]) -> None:
        """Send one request to *service*; nowhere to send it is an unreachable service too."""
        began, started = time.time_ns(), time.monotonic()
        status = None
        if urls:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with session.get(urls[0] + self.probe_path[service]) as response:
                    await response.read()
                    status = response.status
        latency_s = time.monotonic() - started
        self._count += 1
        reachable = status == 200 and latency_s <= REACHABLE_WITHIN_S
        self._probes.append(
            Probe(id=f"probe-{self._count}", target=service, started_ns=began, ended_ns=time.time_ns(), status=status,
                  latency_s=latency_s, reachable=reachable)
        )  # fmt: skip

    def _append(self, index: int, observations: list[Observation], **changes: Any) -> None:
        probes, self._probes = tuple(self._probes), []
        reached = [probe.reachable for probe in probes]
        if probes:
            unreachable = tuple(sorted(probe.target for probe in probes if not probe.reachable))
            began, ended = min(p.started_ns for p in probes), max(p.ended_ns for p in probes)
            observations.append(_observed("D3", began, ended, sum(reached) / len(reached), unreachable))
        tick = Tick(index=index, observations=tuple(observations), probes=probes, **changes)
        self._write(tick.model_dump(mode="json", exclude_defaults=True))

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")


def _share(ready: int, replicas: int) -> float:
    """Return the share of replicas that are ready: none of them when an operator has scaled everything away."""
    return ready / replicas if replicas else 0.0


def _observed(depth: Depth, began: int, ended: int, value: float | None, failing: tuple[str, ...]) -> Observation:
    return Observation(depth=depth, started_ns=began, ended_ns=ended, value=value, failing=failing)


async def _answers(part: Callable[[], Awaitable[Any]]) -> bool:
    """Tell whether *part* answers in time."""
    try:
        await asyncio.wait_for(part(), PART_TIMEOUT_S)
    except (OpsAssayError, OSError, TimeoutError):
        return False
    return True


async def _connect(address: str, port: int) -> None:
    _, writer = await asyncio.open_connection(address, port)
    writer.close()


def read_timeline(path: Path) -> Timeline:
    """Return the timeline in the file at *path*; a torn last line is dropped. Raises DatapackError."""
    try:
        return parse_timeline(path.read_text(encoding="utf-8"))
    except (ValueError, KeyError) as error:
        raise DatapackError(f"{path} is no timeline: {str(error).splitlines()[0]}.") from error


@contextlib.contextmanager
def observing(
    name: str,
    out: Path,
    *,
    cadence_s: float = 1.0,
    probe_every_s: float | None = 20.0,
    protected: Sequence[str] = (),
) -> Iterator[int]:
    """Have a process observe the running system *name* into *out* while the block runs; yield its pid.

    *protected* are the services that are probed, the entries of the system when there are none. Raises StartError.
    """
    command = [sys.executable, "-m", "opsassay.testbed.recording.observer", "--on", name, "--output", str(out)]
    command += ["--cadence", str(cadence_s), "--probe-every", str(probe_every_s or 0), "--protect", *protected]
    with recorded_by(command, out) as pid:
        yield pid


@contextlib.contextmanager
def recorded_by(command: Sequence[str], out: Path) -> Iterator[int]:
    """Have *command* write a timeline to *out* until the block ends, which is the end of its input; yield its pid.

    Raises StartError, and LostError when it does not end.
    """
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not out.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                raise StartError("The timeline observer did not start.", process.communicate()[1] or "")
            time.sleep(0.02)
        try:
            yield process.pid
        finally:
            try:
                _, told = process.communicate(timeout=END_TIMEOUT_S)  # the end of its input is its sign to finish
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise LostError("The timeline observer did not end in time: is the machine busy?") from error
            if process.returncode != 0:
                last = (told.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
                raise LostError(f"The timeline observer failed: {last.rstrip('.')}.")


async def observe(
    running: Observed, out: Path, cadence_s: float, probe_every_s: float | None, protected: list[str]
) -> None:
    """Observe until standard input ends or a signal says so."""
    observer = Observer(running, out, cadence_s, probe_every_s, protected)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, observer.stopping.set)
    os.set_blocking(0, False)
    loop.add_reader(0, lambda: observer.stopping.set() if not os.read(0, 4096) else None)
    await observer.run()


def main() -> None:
    """Run the observer until its standard input ends or it is told to stop."""
    parser = argparse.ArgumentParser(prog="python -m opsassay.testbed.recording.observer", description=__doc__)
    parser.add_argument("--on", required=True, help="running system")
    parser.add_argument("--output", required=True, type=Path, help="timeline file")
    parser.add_argument("--cadence", type=float, default=1.0, help="seconds between ticks")
    parser.add_argument(
        "--probe-every", type=float, default=20.0, help="seconds between probes; 0 for none but the last"
    )
    parser.add_argument("--protect", nargs="*", default=[], help="services that are probed; the entries when left out")
    arguments = parser.parse_args()
    try:
        running = LocalSubstrate().running(arguments.on)
        if (place := running.status()["probe"]) is not None:
            join(place["pid"], place["namespace"])
        asyncio.run(
            observe(running, arguments.output, arguments.cadence, arguments.probe_every or None, arguments.protect)
        )
    except OpsAssayError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
