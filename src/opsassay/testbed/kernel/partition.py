"""A partition: packets are dropped on the wire, where neither end is informed."""

from __future__ import annotations

import select
from types import TracebackType
from typing import Any, Self

from opsassay.testbed.kernel.namespaces import enter
from opsassay.testbed.kernel.netfilter import (
    Expression,
    Table,
    arrives_from_elsewhere,
    arrives_on,
    destination_is,
    drop,
    source_is,
)
from opsassay.testbed.kernel.streams import Streams


class Partition:
    """Drops packets from the replica where they enter the fabric, and packets to it before its sockets see them.

    A drop in the replica's own output would be reported to its sockets, unlike in a real network.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = config
        self._streams = Streams(config["streams"])

    def __enter__(self) -> Self:
        interface = self._config["peer_interface"]
        name = f"{interface}-{self._config['id']}"
        self._fabric = Table("bridge", name)
        self._fabric.chain("prerouting")
        for match in self._match_leaving():
            self._fabric.rule("prerouting", [*arrives_on(interface), *match, *drop()])
        enter(self._config["namespace"])
        self._replica = Table("ip", name)
        self._replica.chain("input")
        for match in self._match_arriving():
            self._replica.rule("input", [*match, *drop()])
        return self

    def _match_leaving(self) -> list[list[Expression]]:
        """Return expressions, one list per peer, that match packets from the replica to the peers cut off."""
        return [destination_is(address) for address in self._streams.addresses(leaving=True)]

    def _match_arriving(self) -> list[list[Expression]]:
        """Return expressions, one list per peer, that match packets to the replica from the peers cut off."""
        return [source_is(address) for address in self._streams.addresses(leaving=False)]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._replica.close()
        self._fabric.close()

    def counts(self) -> dict[str, int]:
        """Return {}: the kernel drops the packets without a count."""
        return {}

    def run(self, end_descriptor: int) -> None:
        """Block until *end_descriptor* becomes readable or its other end closes, which ends the partition."""
        select.select([end_descriptor], [], [])


class Isolation(Partition):
    """Drops all packets from the replica and all packets to it, of any peer."""

    def _match_leaving(self) -> list[list[Expression]]:
        """Return one empty list of expressions, which matches all packets that leave the replica."""
        return [[]]

    def _match_arriving(self) -> list[list[Expression]]:
        """Return expressions that match all packets that arrive at the replica, except by its loopback."""
        return [arrives_from_elsewhere()]
