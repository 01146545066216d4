"""A partition: packets are dropped on the wire, where neither end is told."""

from __future__ import annotations

import select
from types import TracebackType
from typing import Any

from assay.testbed.kernel.namespaces import enter
from assay.testbed.kernel.netfilter import Table, arrives_on, destination_is, drop, source_is
from assay.testbed.kernel.streams import Streams


class Partition:
    """Drops what leaves the replica where it enters the fabric, and what arrives before the replica's sockets see it.

    Dropping in the replica's own output would be reported to its sockets, as no network does.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._streams = Streams(config["streams"])

    def __enter__(self) -> Partition:
        interface = self._config["peer_interface"]
        name = f"{interface}-{self._config['id']}"
        self._fabric = Table("bridge", name)
        self._fabric.chain("prerouting")
        for address in self._streams.addresses(leaving=True):
            self._fabric.rule("prerouting", [*arrives_on(interface), *destination_is(address), *drop()])
        enter(self._config["namespace"])
        self._replica = Table("ip", name)
        self._replica.chain("input")
        for address in self._streams.addresses(leaving=False):
            self._replica.rule("input", [*source_is(address), *drop()])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._replica.close()
        self._fabric.close()

    def counts(self) -> dict[str, int]:
        """Return nothing: the kernel drops without asking."""
        return {}

    def run(self, ended: int) -> None:
        """Wait until the descriptor *ended* becomes readable or its other end closes."""
        select.select([ended], [], [])
