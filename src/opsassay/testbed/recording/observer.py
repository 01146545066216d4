"""The timeline observer: a process of its own that watches a system at the four depths of "side-effects" (section 3).

At every tick: D1 ready replicas over all replicas, D2 ready backends of each protected service, D4 health of every
control-plane part. D3, on its own schedule and once at the end, is a real request to each protected service: reachable
is an answer 200 within 3 s, though the probe waits up to 10 s to learn its own latency. A tick whose turn passed while
the one before was still busy is recorded as missed. Beside the depths a tick holds what changed since the last one that
got an answer: replicas (readiness, host, release) and the load generator's counts per kind of request; and how short the
machine was. Before the first one the machine is calibrated: a slower one has longer limits. A last look that is asked
for is a probe and a reading after which nothing is written until the observer is asked to go on. The timeline is
JSON lines: a header, then one `Tick` a line; what a cluster's control plane says of itself is in a file beside it, and so
is what the observer logs (``.log``).

    python -m opsassay.testbed.recording.observer --on NAME --output FILE [--substrate local] [--settings JSON]
        [--cadence 1] [--probe-every 20] [--protect SERVICE ...]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from opsassay.core.errors import DatapackError, LostError, OpsAssayError, StartError
from opsassay.core.logs import Log, configure, last_words
from opsassay.core.schema.json_lines import append_line, append_object
from opsassay.core.schema.trajectory import (
    CONTROL_PLANE_SUFFIX,
    Depth,
    Entity,
    LoadCounts,
    Observation,
    Probe,
    Tick,
    Timeline,
    parse_timeline,
)
from opsassay.core.schema.validation_errors import reason
from opsassay.telemetry.clock import boot_id
from opsassay.testbed.core.observer_log import OBSERVER, link_observer_log
from opsassay.testbed.core.probes import REACHABLE_WITHIN_S, DepthReading, SystemProbes, SystemReading
from opsassay.testbed.core.substrate import LOCAL, load_substrate
from opsassay.testbed.recording.pressure import PressureReader, calibrate

_log = Log(__name__)
LOG_SUFFIX = ".log"
START_TIMEOUT_S, END_TIMEOUT_S = 60.0, 60.0
"""The last probe and the last reading are bounded; what takes a busy machine longer than this does not end."""
THREADS = 32
"""For probes that wait in a thread: a request that hangs keeps no tick waiting."""
LOOKED = "looked"
"""What the observer says when it has looked."""
STARTING_S = 20.0
"""For so long what has not answered yet is probed with every tick: who starts is no longer taken for who never answers."""


class Observer:
    """Reads *probes* every *cadence_s* seconds, has requests sent every *probe_every_s*, and appends ticks to *out*.

    *trial* are processes whose descendants are the system and who operates it, where they are known.
    """

    def __init__(
        self, probes: SystemProbes, out: Path, cadence_s: float, probe_every_s: float | None, trial: Sequence[int] = ()
    ) -> None:
        self.probes, self.cadence_s, self.probe_every_s = probes, cadence_s, probe_every_s
        self._pressure = PressureReader(trial)
        self._reachable_within_s = REACHABLE_WITHIN_S
        self._late_s = 0.0
        """How much longer than asked for the observer slept before the tick that comes."""
        self.asked = asyncio.Event()
        """Set for a last look, for going on after one, and with *stopping* for the end."""
        self.stopping = False
        self._out, self._details = out, out.with_suffix(CONTROL_PLANE_SUFFIX)
        self._sent: list[Probe] = []
        self._entities: dict[str, Entity] = {}
        self._load: dict[str, LoadCounts] = {}
        self._count = 0

    async def run(self) -> None:
        """Observe the system until `stop`, with a last observation at the end; raises what prevents that."""
        async with self.probes:
            calibration = await calibrate()
            self._reachable_within_s *= calibration.slowdown
            header = {"boot_id": boot_id(), "cadence_s": self.cadence_s, "schema_version": Timeline.SCHEMA_VERSION}
            append_object(self._out, header | {"calibration": calibration.model_dump()})
            _log.info("ready", protected=list(self.probes.protected), cadence_s=self.cadence_s)
            index, going_on = 0, True
            while going_on:
                index = await self._until_asked(index)
                await self._probe_all()
                await self.tick(index)
                index += 1
                going_on = not self.stopping and await self._goes_on()
            _log.info("stopped", ticks=index)

    async def _goes_on(self) -> bool:
        """Print that an observation is done, then wait for the next line of input; return False if it is to stop."""
        self.asked.clear()
        print(LOOKED, flush=True)
        await self.asked.wait()
        self.asked.clear()
        return not self.stopping

    async def _until_asked(self, index: int) -> int:
        """Write a tick every `cadence_s`, numbered from *index*, until `asked` is set; return the next number."""
        probing = asyncio.create_task(self._probe_on_schedule(self.probe_every_s)) if self.probe_every_s else None
        started = time.monotonic() - index * self.cadence_s
        while not self.asked.is_set():
            await self.tick(index)
            index = await self._wait_for_next(started, index)
        if probing is not None:
            probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await probing
        return index

    def stop(self) -> None:
        """Make the observer stop after a last observation."""
        self.stopping = True
        self.asked.set()

    async def tick(self, index: int) -> None:
        """Read the system and write tick *index* to the timeline."""
        began = time.time_ns()
        reading, pressure = await asyncio.gather(self.probes.read(), self._pressure.read(self._late_s))
        depths: tuple[tuple[Depth, DepthReading], ...] = (
            ("D1", reading.ready_replicas), ("D2", reading.ready_backends), ("D4", reading.control_plane),
        )  # fmt: skip
        if reading.details is not None:
            append_line(self._details, reading.details)
        observations = [_make_observation(depth, began, read) for depth, read in depths]
        self._append_tick(index, observations, pressure=pressure, **self._changes(reading))

    async def _wait_for_next(self, started: float, index: int) -> int:
        """Sleep until the tick after *index*, tick 0 being at *started*; return its index; write skipped ones."""
        index += 1
        while time.monotonic() > started + (index + 1) * self.cadence_s:
            self._append_tick(index, [_make_observation("D1", time.time_ns(), DepthReading(None, ("missed",)))])
            _log.warning("tick missed", tick=index)
            index += 1
        now = time.monotonic()
        pause = max(started + index * self.cadence_s - now, 0.0)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.asked.wait(), pause)
        self._late_s = max(time.monotonic() - now - pause, 0.0)
        return index

    def _changes(self, reading: SystemReading) -> dict[str, Any]:
        """Return the entities, removed entities and load counters that differ from the last reading of each."""
        changes: dict[str, Any] = {}
        if reading.entities is not None:
            entities = {entity.id: entity for entity in reading.entities}
            changes["entities"] = tuple(one for name, one in entities.items() if self._entities.get(name) != one)
            changes["gone"] = tuple(sorted(self._entities.keys() - entities.keys()))
            self._entities = entities
        if reading.load is not None:
            changes["load"] = {name: counts for name, counts in reading.load.items() if self._load.get(name) != counts}
            self._load = dict(reading.load)
        return changes

    async def _probe_on_schedule(self, every_s: float) -> None:
        """Probe all services every *every_s* seconds, counted from the first time when all answer."""
        started = time.monotonic()
        while not await self._probe_all() and time.monotonic() < started + STARTING_S:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(self.cadence_s)
        while True:
            turns = (time.monotonic() - started) // every_s + 1
            await asyncio.sleep(started + turns * every_s - time.monotonic())
            await self._probe_all()

    async def _probe_all(self) -> bool:
        """Probe every protected service; return whether all answered."""
        return all(await asyncio.gather(*(self._probe_service(service) for service in self.probes.protected)))

    async def _probe_service(self, service: str) -> bool:
        """Send one request to *service* and record it; return whether it was answered with 200 in time."""
        began = time.time_ns()
        answer = await self.probes.request(service)
        self._count += 1
        reachable = answer.status == 200 and answer.latency_s <= self._reachable_within_s
        self._sent.append(
            Probe(id=f"probe-{self._count}", target=service, started_ns=began, ended_ns=time.time_ns(),
                  status=answer.status, latency_s=answer.latency_s, reachable=reachable)
        )  # fmt: skip
        return reachable

    def _append_tick(self, index: int, observations: list[Observation], **changes: Any) -> None:
        """Write tick *index*: *observations*, *changes* (fields of `Tick`), and the probes sent since the last tick."""
        probes, self._sent = tuple(self._sent), []
        if probes:
            share = sum(probe.reachable for probe in probes) / len(probes)
            unreachable = tuple(sorted({probe.target for probe in probes if not probe.reachable}))
            read = DepthReading(share, unreachable, max(probe.ended_ns for probe in probes))
            observations.append(_make_observation("D3", min(probe.started_ns for probe in probes), read))
        tick = Tick(index=index, observations=tuple(observations), probes=probes, **changes)
        append_object(self._out, tick.model_dump(mode="json", exclude_defaults=True))


def _make_observation(depth: Depth, began_ns: int, reading: DepthReading) -> Observation:
    """Return *reading* of *depth* (D1 replicas, D2 backends, D4 controller) as an observation from *began_ns* (UTC)."""
    return Observation(
        depth=depth, started_ns=began_ns, ended_ns=reading.ended_ns, value=reading.value, failing=reading.failing
    )


def read_timeline(path: Path) -> Timeline:
    """Return the timeline in the file at *path*; a torn last line is dropped. Raises DatapackError."""
    try:
        return parse_timeline(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatapackError(f"{path} cannot be read ({error.strerror}).") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatapackError(f"{path} is no timeline: {reason(error)}; restore the file.") from error


@contextlib.contextmanager
def observing(
    name: str,
    out: Path,
    *,
    substrate: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    cadence_s: float = 1.0,
    probe_every_s: float | None = 20.0,
    protected: Sequence[str] = (),
    trial: Sequence[int] = (),
) -> Iterator[ObserverProcess]:
    """Start a process that observes the running system *name* and writes the timeline *out* during the block; yield it.

    *settings* are those of the *substrate*. Requests go to the services *protected*, by default the entries of the
    system, every *probe_every_s* seconds (None: at the end only). *trial* are pids; they and their descendants are
    the trial's own, and without them the CPU use of other processes is not recorded. Raises StartError, and
    LostError when it does not end.
    """
    command = [sys.executable, "-m", "opsassay.testbed.recording.observer", "--on", name, "--output", str(out)]
    command += ["--substrate", substrate, "--settings", json.dumps(settings or {})]
    command += ["--cadence", str(cadence_s), "--probe-every", str(probe_every_s or 0), "--protect", *protected]
    command += ["--trial", *map(str, trial)]
    with recorded_by(command, out) as watcher:
        yield watcher


@dataclass(frozen=True)
class ObserverProcess:
    """A process that writes a timeline."""

    process: subprocess.Popen[str]

    def observe_once(self) -> None:
        """Make the observer probe and observe once more, then pause until `go_on`; raises LostError if it is late."""
        self._write_line()
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], END_TIMEOUT_S)
        if not ready or self.process.stdout.readline().strip() != LOOKED:
            raise LostError("The timeline observer did not look in time: is the machine busy?")

    def go_on(self) -> None:
        """Make a paused observer continue. Raises LostError."""
        self._write_line()

    def _write_line(self) -> None:
        """Send an empty line to the observer, its signal; raises LostError when it has ended."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError as error:
            raise LostError("The timeline observer has ended.") from error


@contextlib.contextmanager
def recorded_by(command: Sequence[str], out: Path) -> Iterator[ObserverProcess]:
    """Run *command*, which observes and writes the timeline *out*, during the block; raises StartError, LostError."""
    with (
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        deadline = time.monotonic() + START_TIMEOUT_S
        while not out.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                process.wait()
                raise StartError("The timeline observer did not start.", _read_log(log))
            time.sleep(0.02)
        try:
            yield ObserverProcess(process)
        finally:
            try:
                process.communicate(timeout=END_TIMEOUT_S)  # the end of its input is its sign to finish
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise LostError("The timeline observer did not end in time: is the machine busy?") from error
            if process.returncode != 0:
                last = last_words(_read_log(log)) or f"exit code {process.returncode}"
                raise LostError(f"The timeline observer failed: {last.rstrip('.')}.")


def _read_log(log: IO[str]) -> str:
    """Return the whole text of the file *log*."""
    log.seek(0)
    return log.read().strip()


async def observe(
    probes: SystemProbes, out: Path, cadence_s: float, probe_every_s: float | None, trial: Sequence[int] = ()
) -> None:
    """Write what *probes* read to the timeline *out* until stdin ends or SIGTERM; the rest is as in `observing`."""
    observer = Observer(probes, out, cadence_s, probe_every_s, trial)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(THREADS, "probe"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, observer.stop)
    os.set_blocking(0, False)
    loop.add_reader(0, lambda: observer.asked.set() if os.read(0, 1) else observer.stop())
    await observer.run()


def main() -> None:
    """Run the observer until its standard input ends or it is asked to stop."""
    parser = argparse.ArgumentParser(prog="python -m opsassay.testbed.recording.observer", description=__doc__)
    parser.add_argument("--on", required=True, help="running system")
    parser.add_argument("--output", required=True, type=Path, help="timeline file")
    parser.add_argument("--substrate", default=LOCAL, help="what runs the system")
    parser.add_argument("--settings", type=json.loads, default={}, help="what the substrate is made with, as JSON")
    parser.add_argument("--cadence", type=float, default=1.0, help="seconds between ticks")
    parser.add_argument(
        "--probe-every", type=float, default=20.0, help="seconds between probes; 0 for none but the last"
    )
    parser.add_argument("--protect", nargs="*", default=[], help="services that are probed; the entries when left out")
    parser.add_argument("--trial", type=int, nargs="*", default=[], help="processes of the system and its operator")
    given = parser.parse_args()
    configure(OBSERVER, given.on, str(given.output.with_suffix(LOG_SUFFIX)))
    link_observer_log(given.substrate, given.on, given.output.with_suffix(LOG_SUFFIX))
    try:
        probes = load_substrate(given.substrate, given.settings).running(given.on).probes(given.protect)
        asyncio.run(observe(probes, given.output, given.cadence, given.probe_every or None, given.trial))
    except OpsAssayError as error:
        _log.error("failed", reason=str(error))
        sys.exit(f"Error: {error}")
    except Exception as error:
        _log.exception("failed", error)
        raise


if __name__ == "__main__":
    main()
