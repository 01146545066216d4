"""What the supervisor reads from the processes of its system again and again: counters, gauges and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING

import aiohttp

from opsassay.testbed.core.fleet import LOAD_GENERATOR, Replica
from opsassay.testbed.workload.sampler import Sampler

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.supervisor import Supervisor

STATS_EVERY_S = 0.5
METRICS_EVERY_S = 2.0


async def poll(system: Supervisor) -> None:
    """Read readiness, gauges and counters of all replicas of *system* and of the load every STATS_EVERY_S, for ever."""
    while True:
        replicas = (_poll_one(system, r) for r in system.fleet.replicas.values() if r.port is not None)
        await asyncio.gather(_poll_load(system), *replicas)
        await asyncio.sleep(STATS_EVERY_S)


async def _poll_load(system: Supervisor) -> None:
    """Append the load generator's counters to its history, if it answers."""
    with contextlib.suppress(TimeoutError, ConnectionError):  # a generator that has ended ends the system elsewhere
        answer = await system.channels.request(LOAD_GENERATOR, "ping", timeout_s=2.0)
        system.fleet.load.history.append((time.monotonic(), answer["stats"]))


async def _poll_one(system: Supervisor, replica: Replica) -> None:
    """Append gauges and counters of *replica* to its history; without an answer in time it is not ready."""
    try:
        answer = await system.channels.request(replica.id, "ping", timeout_s=2.0)
    except (TimeoutError, ConnectionError):
        replica.ready = False
        return
    gauges = answer["gauges"]
    gauges["clock_offset_ms"] = (gauges["clock_ns"] - time.time_ns()) / 1e6
    replica.gauges.append((time.monotonic(), gauges))
    replica.history.append((time.monotonic(), answer["stats"]))
    replica.ready = replica.port is not None and not replica.draining and answer.get("ready", True)


async def sample(system: Supervisor) -> None:
    """Send resource metrics of the replicas of *system* to its receiver every two seconds, for ever."""
    sampler = Sampler(system.fleet, system.endpoint, system.companions, system.containers, system.network.interface)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):  # the receiver counts what it refuses
                await sampler.send(session)
            await asyncio.sleep(METRICS_EVERY_S)
