"""Impairs packets in this process: the replica's packets pass it through a netfilter queue."""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import os
import random
import select
import threading
import time
from types import TracebackType
from typing import Any

from opsassay.testbed.kernel.namespaces import enter
from opsassay.testbed.kernel.netfilter import Table, destination_is, not_marked, source_is
from opsassay.testbed.kernel.packet_decision import PacketDecision, decision
from opsassay.testbed.kernel.queue import MOST_HELD, Packet, Queue
from opsassay.testbed.kernel.streams import Streams, flip_a_bit
from opsassay.testbed.kernel.wire import Inward, Outward
from opsassay.testbed.workload.runtime.ledger import LedgerWriter

AT_ONCE = 256
PRIORITY = -10
PR_SET_TIMERSLACK = 29


def wake_at_once() -> None:
    """Give the calling thread real-time priority, or a higher one, if permitted, so that packets are sent when due."""
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), PRIORITY)


class Detour:
    """Rules and queue in the replica's namespace; entered, run and left by one thread, which starts in the fabric's."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._streams = Streams(config["streams"])
        self._kind = config["impairment"]["kind"]
        self._rng = random.Random()  # noqa: S311 - chance of packets, no secret
        self._decide = {leaving: decision(config["impairment"], self._rng) for leaving in (True, False)}
        self._in_order = self._kind == "delay" and not config["impairment"]["jitter_s"]
        self._ledger = LedgerWriter(config["ledger"], config["id"])
        self._arriving: list[tuple[float, int]] = []
        self._leaving: list[tuple[float, int, bytes, int]] = []
        self._packets = 0

    def __enter__(self) -> Detour:
        wake_at_once()
        leaving, arriving = (self._streams.addresses(leaving=side) for side in (True, False))
        self._inward = Inward(self._config["peer_interface"])
        enter(self._config["namespace"])
        self._inward.address()
        resent = bool(leaving) and self._kind != "loss"
        self._queue = Queue(
            whole=resent or self._kind in {"corrupt", "duplicate"},
            cut=resent or self._kind not in {"delay", "bandwidth"},
        )
        mark = 1 << self._queue.number
        self._outward = Outward(mark)
        self._table = Table("ip", f"{self._config['peer_interface']}-{self._config['id']}")
        self._table.chain("output")
        self._table.chain("input")
        for address in leaving:
            self._table.queue_rule("output", [*not_marked(mark), *destination_is(address)], self._queue.number)
        for address in arriving:
            self._table.queue_rule("input", source_is(address), self._queue.number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._table.clear("output")
        self._table.clear("input")
        self._release(float("inf"))
        for packet in self._queue.packets(MOST_HELD):
            self._queue.accept(packet.number)
        for part in (self._table, self._queue, self._outward, self._inward):
            part.close()

    def counts(self) -> dict[str, int]:
        """Return {packets: seen, held: waiting, overflows: of the kernel's buffer, unsent: refused by the kernel}."""
        return {
            "packets": self._packets,
            "held": len(self._arriving) + len(self._leaving),
            "overflows": self._queue.overflows,
            "unsent": self._outward.unsent + self._inward.unsent,
        }

    def run(self, end_descriptor: int) -> None:
        """Impair queued packets until *end_descriptor* becomes readable or its other end closes."""
        descriptors = [self._queue.fileno(), end_descriptor]
        while True:
            readable, _, _ = select.select(descriptors, [], [], self._patience())
            self._release(time.monotonic())
            if end_descriptor in readable:
                return
            for packet in self._queue.packets(AT_ONCE):
                self._treat_packet(packet)

    def _patience(self) -> float | None:
        """Return the seconds until the next held packet is due, None when none is held."""
        next_due = [held[0][0] for held in (self._arriving, self._leaving) if held]
        return max(0.0, min(next_due) - time.monotonic()) if next_due else None

    def _treat_packet(self, packet: Packet) -> None:
        """Decide on *packet* by the impairment, and accept, drop, hold, copy or corrupt it."""
        self._packets += 1
        if not packet.leaving and self._kind == "duplicate" and self._inward.is_copy(packet.data):
            self._queue.accept(packet.number)
            return
        now = time.monotonic()
        fate = self._decide[packet.leaving](int.from_bytes(packet.data[2:4]), now)
        changed = flip_a_bit(packet.data, self._rng) if fate.corrupted else None
        if fate.corrupted and changed is None:
            fate = PacketDecision((now,))  # nothing but headers: there is no payload to spoil
        self._note(packet, fate)
        if not fate.due:
            self._queue.drop(packet.number)
        elif fate.due[0] <= now:
            self._queue.accept(packet.number, changed)
        elif packet.leaving:
            self._queue.drop(packet.number)
            heapq.heappush(self._leaving, (fate.due[0], packet.number, packet.data, packet.mark))
        else:
            heapq.heappush(self._arriving, (fate.due[0], packet.number))
        for _ in fate.due[1:]:
            if packet.leaving:
                self._outward.send(packet.data, packet.mark)
            else:
                self._inward.send(packet.data)

    def _release(self, now: float) -> None:
        """Send the held packets that are due at the monotonic time *now*."""
        last = None
        while self._arriving and self._arriving[0][0] <= now:
            last = heapq.heappop(self._arriving)[1]
            if not self._in_order:
                self._queue.accept(last)
        if self._in_order and last is not None:
            self._queue.accept_up_to(last)
        while self._leaving and self._leaving[0][0] <= now:
            _, _, data, mark = heapq.heappop(self._leaving)
            self._outward.send(data, mark)

    def _note(self, packet: Packet, decision: PacketDecision) -> None:
        """Record the *decision* in the ledger, if *packet* has TCP payload and the decision changes something."""
        stream = self._streams.stream_of(packet) if decision.kind else None
        if stream is not None:
            self._ledger.write(decision.kind, link=stream.link, direction=stream.direction, ns=decision.ns)
