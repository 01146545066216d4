"""The detour through a queue: the replica's packets pass this process, which plays the network that they have to cross."""

from __future__ import annotations

import heapq
import random
import select
import time
from types import TracebackType
from typing import Any

from assay.testbed.kernel.fate import Fate, decision
from assay.testbed.kernel.namespaces import enter
from assay.testbed.kernel.netfilter import Table, destination_is, source_is
from assay.testbed.kernel.queue import Packet, Queue
from assay.testbed.kernel.streams import Streams
from assay.testbed.runtime.ledger import LedgerWriter

AT_ONCE = 256


class Detour:
    """Rules and queue in the replica's namespace; entered, run and left by one thread."""

    def __init__(self, config: dict[str, Any], rng: random.Random, ledger: LedgerWriter) -> None:
        self._config = config
        self._streams = Streams(config["streams"])
        self._decide = decision(config["impairment"], rng)
        self._ledger = ledger
        self._held: list[tuple[float, int, Packet]] = []
        self._packets = 0

    def __enter__(self) -> Detour:
        enter(self._config["namespace"])
        self._queue = Queue(whole=False)
        self._table = Table("ip", self._config["id"])
        for hook, match, addresses in (
            ("output", destination_is, self._streams.addresses(leaving=True)),
            ("input", source_is, self._streams.addresses(leaving=False)),
        ):
            self._table.chain(hook)
            for address in addresses:
                self._table.queue_rule(hook, match(address), self._queue.number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._table.close()
        for packet in self._queue.packets(1 << 16):
            self._queue.accept(packet.number)
        for _, _, packet in sorted(self._held):
            self._queue.accept(packet.number)
        self._queue.close()

    async def ping(self, _: dict[str, Any]) -> dict[str, Any]:
        """Answer with what has been seen so far."""
        return {"packets": self._packets, "overflows": self._queue.overflows}

    def run(self, ended: int) -> None:
        """Treat packets until the descriptor *ended* becomes readable or closes."""
        while True:
            timeout = max(0.0, self._held[0][0] - time.monotonic()) if self._held else None
            readable, _, _ = select.select([self._queue.fileno(), ended], [], [], timeout)
            self._release(time.monotonic())
            if ended in readable:
                return
            for packet in self._queue.packets(AT_ONCE):
                self._treat(packet)

    def _treat(self, packet: Packet) -> None:
        self._packets += 1
        now = time.monotonic()
        fate = self._decide(int.from_bytes(packet.data[2:4]), now)
        heapq.heappush(self._held, (fate.due[0], packet.number, packet))
        self._note(packet, fate)

    def _release(self, now: float) -> None:
        while self._held and self._held[0][0] <= now:
            self._queue.accept(heapq.heappop(self._held)[2].number)

    def _note(self, packet: Packet, fate: Fate) -> None:
        stream = self._streams.of(packet) if fate.kind else None
        if stream is not None:
            self._ledger.write(fate.kind, link=stream.link, direction=stream.direction, ns=fate.ns)
