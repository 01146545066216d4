"""The kernel features of this machine that a testbed can use, each tried in a short-lived process.

``python -m opsassay.testbed.kernel.probe`` prints them as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from opsassay.core.errors import LostError, StartError

NAMESPACES, NETEM, SHAPING, DROP, QUEUE = "network_namespaces", "netem", "shaping", "nft_drop", "nfqueue"
CPU, MEMORY = "cgroup_cpu", "cgroup_memory"
ABILITIES = (NAMESPACES, NETEM, SHAPING, DROP, QUEUE, CPU, MEMORY)
PROBE_WITHIN_S = 20.0

REMEDIES = {
    NAMESPACES: "load bridge and veth (CONFIG_BRIDGE, CONFIG_VETH), or use the plain isolation level",
    NETEM: "packet faults take the detour through a queue instead; modprobe sch_netem (CONFIG_NET_SCH_NETEM) to have it",
    SHAPING: "load sch_htb, sch_tbf and cls_u32 (CONFIG_NET_SCH_HTB, CONFIG_NET_SCH_TBF, CONFIG_NET_CLS_U32)",
    DROP: "load nf_tables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_IPV4, CONFIG_NF_TABLES_BRIDGE)",
    QUEUE: "load nfnetlink_queue and either nft_queue, or nft_compat and xt_NFQUEUE",
}


@dataclass(frozen=True)
class Ability:
    """One kernel feature: *how* it is available here, or the *reason* why not, with a remedy."""

    available: bool
    how: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Machine:
    """The abilities of this machine for the user *uid*."""

    uid: int
    kernel: str
    abilities: dict[str, Ability]

    def as_dict(self) -> dict[str, Any]:
        """Return this as a JSON object: uid, kernel version, abilities {name: {available, how, reason}}."""
        return asdict(self)

    @property
    def namespaced(self) -> Ability:
        """Whether systems can run with network namespaces and packet impairments, and why not."""
        for name in (NAMESPACES, DROP):
            if not self.abilities[name].available:
                return self.abilities[name]
        if not (self.abilities[NETEM].available or self.abilities[QUEUE].available):
            return self.abilities[QUEUE]
        return self.abilities[NAMESPACES]

    @property
    def impairments(self) -> frozenset[str]:
        """The kinds of packet impairments that the kernel itself can do; others are done by a process of OpsAssay."""
        netem = ("delay", "loss", "duplicate", "corrupt") if self.abilities[NETEM].available else ()
        return frozenset((*netem, "bandwidth") if self.abilities[SHAPING].available else netem)


def probe_machine() -> Machine:
    """Return what this machine can do, found out in a child process, so that nothing is changed afterwards."""
    if sys.platform != "linux":
        return _machine_without(
            f"{sys.platform} has no network namespaces or control groups; use the plain isolation level"
        )
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__], capture_output=True, text=True, timeout=PROBE_WITHIN_S, check=True
        )
    except subprocess.TimeoutExpired:
        return _machine_without(
            f"the probe of the kernel did not end within {PROBE_WITHIN_S:.0f} s; try again on an idle machine"
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or [f"status {error.returncode}"])[-1]
        return _machine_without(f"the probe of the kernel failed: {last}")
    found = json.loads(done.stdout)
    return Machine(found["uid"], found["kernel"], {name: Ability(**row) for name, row in found["abilities"].items()})


def probe_here() -> Machine:
    """Return what this machine can do; this process is in a new network namespace afterwards."""
    uid = os.geteuid()
    abilities = _find_group_abilities()
    try:
        from opsassay.testbed.kernel.namespaces import isolate

        isolate()
    except StartError as error:
        abilities[NAMESPACES] = Ability(available=False, reason=str(error))
        unknown = Ability(available=False, reason=f"not tried without {NAMESPACES.replace('_', ' ')}")
        abilities |= dict.fromkeys((NETEM, SHAPING, DROP, QUEUE), unknown)
    else:
        how = "root" if uid == 0 else "unprivileged, in a user namespace"
        abilities[NAMESPACES] = _try_ability(NAMESPACES, how, _try_fabric)
        for name, how, attempt in (
            (NETEM, "sch_netem", _try_delay),
            (SHAPING, "sch_htb, sch_tbf, cls_u32", _try_bandwidth),
            (DROP, "nf_tables", _try_drop),
            (QUEUE, "nfnetlink_queue", _try_queue),
        ):
            abilities[name] = _try_ability(name, how, attempt)
    return Machine(uid, os.uname().release, {name: abilities[name] for name in ABILITIES})


def _try_ability(name: str, how: str, attempt: Callable[[], str | None]) -> Ability:
    """Run *attempt*; return the ability *name*, available by its result, None: by *how*; unavailable if it raises."""
    try:
        return Ability(available=True, how=attempt() or how)
    except Exception as error:  # noqa: BLE001 - libraries raise what they like; the reason is reported, whatever it was
        number = getattr(error, "code", None) or getattr(error, "errno", None)
        detail = os.strerror(number) if isinstance(number, int) else str(error) or type(error).__name__
        return Ability(available=False, reason=f"the kernel refuses it ({detail}); {REMEDIES[name]}")


def _try_fabric() -> None:
    """Make a network of one host with one place, and remove it; raises an error where that is impossible."""
    from opsassay.testbed.kernel.network import Fabric

    fabric = Fabric(["host"])
    fabric.start()
    fabric.attach("probe", "host")
    fabric.close()


def _try_delay() -> None:
    """Delay packets on the loopback interface and undo it; raises an error where that is impossible."""
    _try_impairment({"kind": "delay", "delay_s": 0.1, "jitter_s": 0.01})


def _try_bandwidth() -> None:
    """Limit the bandwidth of the loopback interface and undo it; raises an error where that is impossible."""
    _try_impairment({"kind": "bandwidth", "bytes_per_s": 1e6})


def _try_impairment(impairment: dict[str, Any]) -> None:
    """Apply *impairment* to one loopback address, and undo it."""
    from opsassay.testbed.kernel.shaping import add_class, leaf, remove_class

    remove_class("lo", add_class("lo", ["127.0.0.2"], 16, leaf(impairment)))


def _try_drop() -> None:
    """Make rules that drop packets, on a bridge and here, and remove them; raises an error where that is impossible."""
    from opsassay.testbed.kernel.netfilter import Table, arrives_on, drop, source_is

    with Table("bridge", "probe") as bridge, Table("ip", "probe") as here:
        bridge.chain("prerouting")
        bridge.rule("prerouting", [*arrives_on("lo"), *drop()])
        here.chain("input")
        here.rule("input", [*source_is("127.0.0.2"), *drop()])


def _try_queue() -> str:
    """Send a datagram to this process through a netfilter queue; return the kind of rule, or raise an error."""
    import select
    import socket

    from opsassay.testbed.kernel.netfilter import Table, not_marked, source_is
    from opsassay.testbed.kernel.queue import Queue

    queue = Queue(whole=False, cut=False)
    with Table("ip", "probe") as table, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        table.chain("input")
        expression = table.queue_rule("input", [*not_marked(1), *source_is("127.0.0.1")], queue.number)
        end.bind(("127.0.0.1", 0))
        end.settimeout(1.0)
        end.sendto(b"?", end.getsockname())
        if not select.select([queue.fileno()], [], [], 1.0)[0]:
            raise LostError("a packet did not come through the queue")
        for packet in queue.packets(1):
            queue.accept(packet.number)
        end.recv(1)
    queue.close()
    return f"nfnetlink_queue, {expression}"


def _find_group_abilities() -> dict[str, Ability]:
    """Return the abilities to limit CPU and memory by control groups, with version or reason."""
    from opsassay.testbed.kernel.cgroups import search

    groups, reasons = search()
    versions = groups.versions if groups else {}
    return {
        name: Ability(available=True, how=f"cgroup v{versions[controller]}")
        if controller in versions
        else Ability(available=False, reason=reasons[controller])
        for name, controller in ((CPU, "cpu"), (MEMORY, "memory"))
    }


def _machine_without(reason: str) -> Machine:
    """Return a machine of which every ability is unavailable for *reason*."""
    nothing = Ability(available=False, reason=reason)
    return Machine(os.geteuid(), os.uname().release, dict.fromkeys(ABILITIES, nothing))


if __name__ == "__main__":
    print(json.dumps(probe_here().as_dict()))
