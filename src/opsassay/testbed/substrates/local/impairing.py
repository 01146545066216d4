"""Packet faults between places that have a network namespace each: one packet process per target and fault."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import psutil

from opsassay.core.errors import OperationError
from opsassay.testbed.core.fleet import sleep_until
from opsassay.testbed.core.networks import FORWARD, Stream
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.kernel.heal import heal
from opsassay.testbed.kernel.network import Place
from opsassay.testbed.workload.processes import Channels, Template, log_tail

PACKETS_TIMEOUT_S = 10.0


class Impairing:
    """Impairs the packets of places.

    *kernel_can* are the kinds of impairments that this kernel has a queueing discipline for; others take a detour.
    """

    def __init__(
        self,
        state: SystemState,
        template: Template,
        channels: Channels,
        kernel_can: Collection[str],
        expect_exit: Callable[[int], None],
    ) -> None:
        self._state, self._template, self._channels = state, template, channels
        self._kernel_can, self._expect_exit = kernel_can, expect_exit
        self._places: dict[str, Place] = {}
        self._impairing: dict[str, list[tuple[str, int, Place]]] = {}

    async def impair(self, fault: str, target: str, streams: Sequence[Stream], impairment: Mapping[str, Any]) -> None:
        """Start the process that applies *impairment* to *streams* at *target*, wait until it acts; OperationError."""
        name, place = f"packets-{fault}-{target}", self._places[target]
        order = {
            "id": name,
            "management": str(self._state.management_socket),
            "ledger": str(self._state.ledger_dir / f"{name}.jsonl"),
            "namespace": place.path,
            "peer_interface": place.peer_interface,
            "means": self._means(place, impairment["kind"]),
            "streams": [self._seen_from(target, stream) for stream in streams],
            "impairment": dict(impairment),
        }
        pid = await self._template.spawn("packets", name, order)
        self._impairing.setdefault(fault, []).append((name, pid, place))
        started = await sleep_until(
            lambda: name in self._channels.names() or not psutil.pid_exists(pid), PACKETS_TIMEOUT_S, 0.02
        )
        if not started or name not in self._channels.names():
            raise OperationError(f"The packets of {target} could not be caught.", log_tail(self._state.log(name)))

    def _means(self, place: Place, kind: str) -> str:
        """Return "kernel" if the kernel can do *kind* and nothing is impaired at *place* yet, else "queue"."""
        taken = any(other is place for active in self._impairing.values() for _, _, other in active)
        return "kernel" if kind in self._kernel_can and not taken else "queue"

    def _seen_from(self, target: str, stream: Stream) -> dict[str, Any]:
        """Return *stream* as seen from *target*: link, direction, whether it leaves, the other end's address."""
        outward = stream.source == target
        other = stream.destination if outward else stream.source
        return {
            "link": stream.link,
            "direction": stream.direction,
            "leaving": outward == (stream.direction == FORWARD),
            "address": self._places[other].data_address,
        }

    async def heal(self, fault: str) -> list[str]:
        """End the packet processes of *fault* and remove their kernel rules; return notes on what did not work."""
        notes = list[str]()
        for name, pid, place in self._impairing.pop(fault, ()):
            notes += await self._shortfalls(name)
            hears = name in self._channels.names()
            self._channels.hang_up(name)
            await self._end(pid, hung_up=hears)
            if not any(other is place for active in self._impairing.values() for _, _, other in active):
                await asyncio.to_thread(heal, place.path, place.peer_interface)
        return notes

    async def _end(self, pid: int, *, hung_up: bool) -> None:
        """Wait until the packet process *pid* has ended, or kill it: if its channel was not *hung_up*, or it is late.

        Its kernel tables end with it, and only then can other processes remove them.
        """
        if hung_up and await _wait_until_gone(pid):
            return
        self._expect_exit(pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        await _wait_until_gone(pid)

    async def _shortfalls(self, name: str) -> list[str]:
        """Return a sentence for each kind of packets that the process *name* lost, or that it had ended early."""
        target = name.split("-", 2)[2]
        try:
            counts = await self._channels.request(name, "ping")
        except (ConnectionError, TimeoutError, RuntimeError):
            return [f"the packets of {target} passed unimpaired at the end: the process that impaired them was gone"]
        lost = {"overflows": "times the kernel's queue was full and dropped packets", "unsent": "packets were not sent"}
        return [
            f"{counts[kind]} {words} at {target}, beyond what was asked"
            for kind, words in lost.items()
            if counts.get(kind)
        ]


async def _wait_until_gone(pid: int) -> bool:
    """Wait until the process *pid* has ended; return False if that takes longer than PACKETS_TIMEOUT_S."""
    return await sleep_until(lambda: not psutil.pid_exists(pid), PACKETS_TIMEOUT_S, 0.02)
