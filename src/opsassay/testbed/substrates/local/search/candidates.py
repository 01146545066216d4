"""The candidates of a search: the building blocks that they are made of, and the guard that keeps them in bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.scenario import OpsCall
from opsassay.core.schema.system import System
from opsassay.testbed.operations.search import Block, Composition
from opsassay.testbed.substrates.local.operations import NAMES
from opsassay.testbed.substrates.local.substrate import LocalSystem


def blocks(system: System, target: str) -> tuple[Block, ...]:
    """Return the changes to service *target* that a fault search combines (App. H.2), one empty; raises NotFoundError.

    Some, such as a firewall rule, are not seen at replicas; others, such as a wrong release, are.
    """
    if target not in system.services:
        raise NotFoundError("service", target, system.services)
    spec = system.services[target]
    callers = sorted({caller for caller, callee in system.calls() if callee == target})
    found = [Block("no change", "none", ())]
    found += [
        Block(f"firewall drops {c}", "policy", (_make_call("firewall add", service=target, client=c),)) for c in callers
    ]
    if others := sorted(set(system.services) - {target, *callers}):
        found.append(
            Block("wrong name record", "names", (_make_call("config set", target=NAMES, key=target, value=others[0]),))
        )
    found += [
        _wrong_port_block(caller, target)
        for caller in callers
        if _upstream_key(target) in system.services[caller].config
    ]
    if wrong := [version for version in spec.versions() if version != spec.release]:
        found.append(Block("bad release", "release", (_make_call("release", service=target, version=wrong[-1]),)))
    if spec.required:
        unset = _make_call("config unset", target=target, key=spec.required[0])
        found.append(Block("missing setting", "configuration", (unset, _make_call("restart", target=target))))
    if "DB_PASSWORD" in spec.config:
        set_wrong = _make_call("config set", target=target, key="DB_PASSWORD", value="wrong")
        found.append(Block("wrong password", "credentials", (set_wrong, _make_call("restart", target=target))))
    if spec.host:
        found.append(Block("wrong clock", "time", (_make_call("clock set", host=spec.host, offset_s=-3600.0),)))
    if spec.replicas > 1:
        found.append(
            Block("one replica less", "capacity", (_make_call("scale", service=target, replicas=spec.replicas - 1),))
        )
    return tuple(found)


def audit_cases(system: System, target: str) -> tuple[Block, ...]:
    """Return a fault of *target* for each reason to refuse a fault in a search (paper, App. H.3).

    The workload is scaled to zero, a store or the receiver is restarted, the definition is changed.
    """
    stores = sorted(system.stores)
    control_plane = _make_call("restart", target=stores[0]) if stores else _make_call("restart", target="receiver")
    return (
        Block("workload taken away", "invalid", (_make_call("scale", service=target, replicas=0),)),
        Block("control plane changed", "invalid", (control_plane,)),
        Block("definition rewritten", "invalid", (_make_call("define", service=target, operations={}),)),
    )


def _wrong_port_block(caller: str, target: str) -> Block:
    """Return the change that makes *caller* call *target* at a closed port."""
    wrong = _make_call("config set", target=caller, key=_upstream_key(target), value=f"{target}:9999")
    return Block(f"wrong port at {caller}", "service", (wrong, _make_call("restart", target=caller)))


def _upstream_key(target: str) -> str:
    """Return the name of the setting by which callers find *target*."""
    return f"UPSTREAM_{target.upper().replace('-', '_')}"


def _make_call(verb: str, **arguments: object) -> OpsCall:
    """Return the call of the operation *verb* with *arguments*, as a change that a scenario can make."""
    return OpsCall(verb=verb, arguments=arguments)


RESTORED = frozenset(
    {
        "config set",
        "config unset",
        "release",
        "scale",
        "restart",
        "firewall add",
        "clock set",
        "consumer stall",
        "pool leak",
    }
)
"""The verbs whose effect `Baseline.restore` takes back."""


def refusal(composition: Composition, system: System) -> str | None:
    """Return why a restore would not undo the fault *composition*, so that a search must not try it; else None."""
    return next((reason for change in composition.changes if (reason := _why_outside(change, system))), None)


def violation(running: LocalSystem, system: System, target: str) -> str | None:
    """Return why *target* is not valid now (paper, App. H.3): no replicas, or its name leads nowhere; else None."""
    rows = [row for row in running.operate("ps", {})["replicas"] if row["service"] == target]
    if target not in system.services or not rows:
        return f"{target} does not exist: its desired state has no replica"
    records: Mapping[str, Any] = running.operate("config get", {"target": NAMES})["settings"]
    if records.get(target, target) not in system.services:
        return f"the name {target} stands for nothing"
    return None


def _why_outside(change: OpsCall, system: System) -> str | None:
    """Return why a restore of the baseline does not undo *change*, None when it does."""
    named = change.arguments.get("target") or change.arguments.get("service") or change.arguments.get("host")
    if change.verb not in RESTORED:
        return f"`{change.verb}` changes what the baseline is restored from, or what it cannot restore"
    if not isinstance(named, str):
        return f"`{change.verb}` names nothing of the system that it would be done to"
    if named in system.stores or (named not in system.services and named not in system.hosts and named != NAMES):
        return f"`{change.verb}` on {named} changes the control plane, which the baseline does not cover"
    return None
