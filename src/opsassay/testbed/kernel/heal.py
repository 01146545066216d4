"""Undoes packet faults after their process has ended."""

from __future__ import annotations

from opsassay.testbed.kernel.namespaces import enter, in_thread
from opsassay.testbed.kernel.network import DATA_INTERFACE


def heal(namespace_path: str, peer_interface: str) -> None:
    """Remove OpsAssay's packet rules and queueing disciplines of the replica in *namespace_path*, if there are any.

    It is called in the namespace of the bridges; *peer_interface* is the bridge's end of the replica's link.
    """
    from opsassay.testbed.kernel.netfilter import remove_tables
    from opsassay.testbed.kernel.shaping import unshape

    def work() -> None:
        remove_tables("bridge", f"{peer_interface}-")
        unshape(peer_interface)
        try:
            enter(namespace_path)
        except FileNotFoundError:
            return  # the namespace is gone, and with it what was in it
        remove_tables("ip", f"{peer_interface}-")
        unshape(DATA_INTERFACE)

    in_thread(work)
