"""Undoing packet faults from outside, after their process has ended, however it ended."""

from __future__ import annotations

from opsassay.testbed.kernel.namespaces import enter, in_thread
from opsassay.testbed.kernel.network import DATA_INTERFACE


def heal(namespace_path: str, peer_interface: str) -> None:
    """Remove OpsAssay's netfilter tables and queueing disciplines for the replica in *namespace_path*, if there are any.

    Called in the fabric's namespace, by the process that holds it; *peer_interface* is the fabric's end of its link.
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
