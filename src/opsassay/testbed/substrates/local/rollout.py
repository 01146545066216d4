"""Stopping, starting, replacing and scaling the replicas of a running system, as an operator does it.

What is stopped takes nothing new, drains as long as its service says, and ends; what is started warms up and is ready when
it says hello. Either shows in the readiness that everybody sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opsassay.testbed.core.fleet import Replica, sleep_until
from opsassay.testbed.workload.engine import CALL_S

if TYPE_CHECKING:
    from opsassay.testbed.substrates.local.supervisor import Supervisor

TERM_TIMEOUT_S = 6.0
READY_TIMEOUT_S = 15.0


async def redeploy(system: Supervisor, replicas: Sequence[Replica], *, rolling: bool) -> dict[str, Any]:
    """Restart *replicas* all at once, or *rolling*: one after the other until one does not become ready.

    Returns {restarted, not_ready, left_alone: ids}; those after a replica that failed are left alone.
    """
    done: list[Replica] = []
    if rolling:
        for replica in replicas:
            await stop(system, replica)
            done.append(replica)
            if not await start(system, replica):
                break
    else:
        await stop_all(system, replicas)
        await asyncio.gather(*(start(system, replica) for replica in replicas))
        done = list(replicas)
    return {
        "restarted": [replica.id for replica in done],
        "not_ready": [replica.id for replica in done if not replica.ready],
        "left_alone": [replica.id for replica in replicas if replica not in done],
    }


async def stop_all(system: Supervisor, replicas: Sequence[Replica]) -> dict[str, Any]:
    """Stop *replicas* at the same time; return {stopped: ids}."""
    await asyncio.gather(*(stop(system, replica) for replica in replicas))
    return {"stopped": [replica.id for replica in replicas]}


async def start_all(system: Supervisor, replicas: Sequence[Replica]) -> dict[str, Any]:
    """Start, at the same time, those of *replicas* that do not run; return {started, not_ready: ids}."""
    down = [replica for replica in replicas if replica.pid is None]
    await asyncio.gather(*(start(system, replica) for replica in down))
    return {
        "started": [replica.id for replica in down],
        "not_ready": [replica.id for replica in down if not replica.ready],
    }


async def stop(system: Supervisor, replica: Replica) -> None:
    """Drain *replica* and end its process; it is not restarted until `start`."""
    replica.desired, replica.draining, replica.ready = False, True, False
    if (pid := replica.pid) is None:
        return
    await asyncio.sleep(replica.spec.drain_s)
    system.unexpected_exits.expect(pid)
    if system.system.compose is not None:
        with contextlib.suppress(ConnectionError):
            await system.channels.request(replica.id, "stop", timeout_s=CALL_S)
        await sleep_until(lambda: replica.pid != pid, TERM_TIMEOUT_S, 0.02)
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if await sleep_until(lambda: replica.pid != pid, TERM_TIMEOUT_S, 0.02):
            return


async def start(system: Supervisor, replica: Replica) -> bool:
    """Start a new pod of *replica*; return whether it became ready in time; if it crashes, it is restarted further."""
    replica.desired, replica.draining, replica.deaths_in_a_row, replica.restarts = True, False, 0, 0
    replica.pod = system.fleet.pod_name(replica.service)
    await sleep_until(lambda: not replica.held, READY_TIMEOUT_S)
    if replica.held:
        system.revive(replica)  # as soon as what holds it down lets go
        return False
    await system.start_replica(replica)
    limit_s = READY_TIMEOUT_S + replica.spec.start_s
    await sleep_until(lambda: replica.ready or replica.deaths_in_a_row > 0, limit_s, 0.05)
    return replica.ready


async def scale(system: Supervisor, service: str, count: int, host: str | None = None) -> dict[str, Any]:
    """Set *service* to *count* replicas, new ones on *host* (None: the emptiest); return removed, added, not_ready."""
    present = sorted(system.fleet.replicas_of(service), key=_index_of_replica)
    gone, fresh = present[count:], []
    await asyncio.gather(*(_remove_replica(system, replica) for replica in gone))
    taken = {_index_of_replica(replica) for replica in present[:count]}
    for index in [number for number in range(count + len(taken)) if number not in taken][
        : max(0, count - len(present))
    ]:
        replica = system.fleet.add(service, index, host or _emptiest(system, service))
        replica.desired = False
        system.containers.make_for(replica)
        await system.network.admit(replica.id, replica.host)
        fresh.append(replica)
    await asyncio.gather(*(start(system, replica) for replica in fresh))
    return {
        "removed": [replica.id for replica in gone],
        "added": [replica.id for replica in fresh],
        "not_ready": [replica.id for replica in fresh if not replica.ready],
    }


async def _remove_replica(system: Supervisor, replica: Replica) -> None:
    """Stop *replica* and remove it from the fleet."""
    await stop(system, replica)
    system.fleet.replicas.pop(replica.id, None)
    await system.operations.side_processes.end_pod(replica.id)


def _emptiest(system: Supervisor, service: str) -> str:
    """Return the host that the system's file gives *service*, else that with the fewest of its replicas."""
    if (desired := system.system.services[service].host) is not None:
        return desired
    everywhere = [replica.host for replica in system.fleet.replicas.values()]
    here = [replica.host for replica in system.fleet.replicas_of(service)]
    return min(system.system.hosts, key=lambda host: (here.count(host), everywhere.count(host), host))


def _index_of_replica(replica: Replica) -> int:
    """Return the number at the end of the replica's id."""
    return int(replica.id.rpartition("-")[2])
