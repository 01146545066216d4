"""nftables rules over netlink: they drop packets of a replica or pass them to a queue.

A table belongs to the socket that made it (kernel 5.12 and later): the kernel removes it when the process ends.
"""

from __future__ import annotations

import errno
import struct
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError
from pyroute2.netlink.nfnetlink.nftsocket import NFPROTO_BRIDGE, NFPROTO_IPV4
from pyroute2.nftables.expressions import genex, ipv4addr, verdict
from pyroute2.nftables.main import NFTables

from opsassay.core.errors import OperationError

PREFIX = "opsassay-"
FAMILIES = {"ip": NFPROTO_IPV4, "bridge": NFPROTO_BRIDGE}
OWNED = 0x2
NF_DROP, NF_ACCEPT = 0, 1
META_PROTOCOL, META_MARK, META_INPUT_NAME, META_TRANSPORT = 1, 3, 6, 16
TRANSPORT_HEADER, PORT_OFFSET, TCP, UDP = 2, 2, b"\x06", b"\x11"
BEFORE_ROUTING = -100
"""The priority at which the kernel translates addresses of arriving packets."""
BEFORE_DOCKER = -150
"""A priority before -100, at which Docker rewrites the port of queries to its resolver."""
REGISTER, EQUAL, UNEQUAL = 1, 0, 1
ETHERTYPE_IPV4 = b"\x08\x00"
QUEUE_BYPASS = 1
OWNER_TIMEOUT_S, OWNER_POLL_S = 5.0, 0.05
LATE_PACKETS = Path("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal")
"""Kernel setting; 1 sends a late packet where its connection goes, not to a program that does not know it."""

Expression = dict[str, Any]


class Table:
    """A table *name* of *family* ("ip" or "bridge") in the calling thread's namespace; `close` deletes it."""

    def __init__(self, family: str, name: str) -> None:
        self.name = PREFIX + name
        self._nft = NFTables(nfgen_family=FAMILIES[family])
        self._owned = True
        try:
            self._nft.table("add", kwarg={"name": self.name, "flags": OWNED})
        except NetlinkError as error:
            if error.code not in (errno.EOPNOTSUPP, errno.EINVAL):
                self._nft.close()
                raise
            self._owned = False  # older than 5.12: `heal` removes what a killed process leaves
            self._nft.table("add", name=self.name)

    def chain(self, hook: str) -> None:
        """Add a chain named *hook* to the netfilter hook of that name (prerouting, input and so on)."""
        self._nft.chain("add", table=self.name, name=hook, hook=hook, type="filter", policy=NF_ACCEPT)

    def rule(self, chain: str, expressions: Sequence[Expression]) -> None:
        """Append a rule with *expressions* to *chain*."""
        self._nft.rule("add", table=self.name, chain=chain, expressions=[expressions])

    def queue_rule(self, chain: str, expressions: Sequence[Expression], number: int) -> str:
        """Append to *chain* a rule: packets that match *expressions* go to queue *number*, or pass if none listens.

        Returns the kind of rule, "nft_queue" or, where the kernel lacks that, "xt_NFQUEUE".
        """
        try:
            self.rule(chain, [*expressions, *_queue_expression(number)])
        except NetlinkError as error:
            if error.code not in (errno.ENOENT, errno.EOPNOTSUPP):
                raise
            self.rule(chain, [*expressions, *_queue_target(number)])
            return "xt_NFQUEUE"
        return "nft_queue"

    def redirect(self, port: int, target_port: int) -> None:
        """Redirect TCP connections from other interfaces to *port* to *target_port* of the same address."""
        self._redirect("prerouting", BEFORE_ROUTING, [*arrives_from_elsewhere(), *_asks_for(TCP, port)], target_port)

    def redirect_sent(self, port: int, target_port: int, mark: int) -> None:
        """Redirect UDP packets from here to *port*, of any address, to *target_port*; those with bits of *mark* pass."""
        self._redirect("output", BEFORE_DOCKER, [*not_marked(mark), *_asks_for(UDP, port)], target_port)

    def _redirect(self, hook: str, priority: int, expressions: Sequence[Expression], target_port: int) -> None:
        """Redirect packets that match *expressions* at *hook* to *target_port* of this machine."""
        chain = {"hook": hook, "type": "nat", "priority": priority, "policy": NF_ACCEPT}
        self._nft.chain("add", table=self.name, name="redirect", **chain)
        other = [
            genex("immediate", {"dreg": REGISTER, "data": _data_value(struct.pack(">H", target_port))}),
            genex("redir", {"reg_proto_min": REGISTER}),
        ]
        self.rule("redirect", [*expressions, *other])

    def clear(self, chain: str) -> None:
        """Remove the rules of *chain*, not the chain: that would drop all queued packets of the namespace."""
        self._nft.rule("del", table=self.name, chain=chain)

    def close(self) -> None:
        """Delete the table with all its rules."""
        if not self._owned:
            self._nft.table("del", name=self.name)
        self._nft.close()

    def __enter__(self) -> Table:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def remove_tables(family: str, prefix: str = "", owner_timeout_s: float = OWNER_TIMEOUT_S) -> None:
    """Delete OpsAssay's tables of *family* whose names begin with *prefix*, in the calling thread's namespace.

    The kernel refuses for a table whose owner still runs; the owner gets *owner_timeout_s* to end. Raises
    OperationError when it has not ended by then.
    """
    deadline = time.monotonic() + owner_timeout_s
    with NFTables(nfgen_family=FAMILIES[family]) as nft:
        while owned := _removed_but_owned(nft, PREFIX + prefix):
            if time.monotonic() > deadline:
                raise OperationError(
                    f"The packet rules {', '.join(owned)} cannot be removed: the process that made them still runs; end "
                    "the system with `opsassay system down` and start it again."
                )
            time.sleep(OWNER_POLL_S)


def _removed_but_owned(nft: NFTables, prefix: str) -> list[str]:
    """Delete every table whose name begins with *prefix*; return the names of those that a process still owns."""
    owned = []
    for name in [str(table.get_attr("NFTA_TABLE_NAME")) for table in nft.get_tables()]:
        if name.startswith(prefix):
            try:
                nft.table("del", name=name)
            except NetlinkError as error:
                if error.code == errno.EPERM:
                    owned.append(name)
                elif error.code != errno.ENOENT:  # its owner has ended in the meantime
                    raise
    return owned


def source_is(address: str) -> list[Expression]:
    """Return expressions that match packets from *address*."""
    return list(ipv4addr(src=address))


def destination_is(address: str) -> list[Expression]:
    """Return expressions that match packets to *address*."""
    return list(ipv4addr(dst=address))


def arrives_on(interface: str) -> list[Expression]:
    """Return expressions that match IPv4 packets that arrive by the bridge port *interface*."""
    name = interface.encode().ljust(16, b"\0")
    return [*_meta_is(META_PROTOCOL, ETHERTYPE_IPV4), *_meta_is(META_INPUT_NAME, name)]


def arrives_from_elsewhere() -> list[Expression]:
    """Return expressions that match packets that arrive by any interface but the loopback."""
    return _meta_is(META_INPUT_NAME, b"lo".ljust(16, b"\0"), comparison=UNEQUAL)


def not_marked(bit: int) -> list[Expression]:
    """Return expressions that match packets in whose mark *bit* is not set."""
    mask, zero = struct.pack("=I", bit), bytes(4)
    return [
        genex("meta", {"key": META_MARK, "dreg": REGISTER}),
        genex(
            "bitwise",
            {"sreg": REGISTER, "dreg": REGISTER, "len": 4, "mask": _data_value(mask), "xor": _data_value(zero)},
        ),
        genex("cmp", {"sreg": REGISTER, "op": EQUAL, "data": _data_value(zero)}),
    ]


def _asks_for(protocol: bytes, port: int) -> list[Expression]:
    """Return expressions that match packets of *protocol* to *port*."""
    where = {"dreg": REGISTER, "base": TRANSPORT_HEADER, "offset": PORT_OFFSET, "len": 2}
    return [
        *_meta_is(META_TRANSPORT, protocol),
        genex("payload", where),
        genex("cmp", {"sreg": REGISTER, "op": EQUAL, "data": _data_value(struct.pack(">H", port))}),
    ]


def drop() -> list[Expression]:
    """Return the expression that drops the packet."""
    return list(verdict(code=NF_DROP))


def _meta_is(key: int, value: bytes, comparison: int = EQUAL) -> list[Expression]:
    """Return expressions that match packets whose metadata *key* has *value*, or has not with UNEQUAL."""
    return [
        genex("meta", {"key": key, "dreg": REGISTER}),
        genex("cmp", {"sreg": REGISTER, "op": comparison, "data": _data_value(value)}),
    ]


def _data_value(value: bytes) -> Expression:
    """Return *value* as the netlink attribute that is an operand of an nftables expression."""
    return {"attrs": [("NFTA_DATA_VALUE", value)]}


def _queue_expression(number: int) -> list[Expression]:
    """Return nftables' own expression that sends a packet to queue *number*, or accepts it without a listener."""
    return [genex("queue", {"num": number, "total": 1, "flags": {"value": QUEUE_BYPASS}})]


def _queue_target(number: int) -> list[Expression]:
    """Return the xtables target NFQUEUE for queue *number*, for kernels without nftables' own expression."""
    information = struct.pack("=HHH2x", number, 1, QUEUE_BYPASS)
    return [genex("target", {"name": "NFQUEUE", "rev": 2, "info": information})]
