"""Typed building blocks: what may be wrong with one workload of a system, drawn from the system's own definition."""

from __future__ import annotations

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.scenario import OpsCall
from opsassay.core.schema.system import System
from opsassay.testbed.operations.composition import Block
from opsassay.testbed.substrates.local.operations import NAMES


def blocks(system: System, target: str) -> tuple[Block, ...]:
    """Return the building blocks for the workload *target*, "side-effects" App. H.2 in the terms of a local system.

    Two act where a look at the replicas shows nothing (a firewall rule, a name record), others crash replicas or run the
    wrong release, which any operator sees; and there is one that changes nothing. Raises NotFoundError.
    """
    if target not in system.services:
        raise NotFoundError("service", target, system.services)
    spec = system.services[target]
    callers = sorted({caller for caller, callee in system.calls() if callee == target})
    found = [Block("no change", "none", ())]
    found += [
        Block(f"firewall drops {c}", "policy", (_call("firewall add", service=target, client=c),)) for c in callers
    ]
    if others := sorted(set(system.services) - {target, *callers}):
        found.append(
            Block("wrong name record", "names", (_call("config set", target=NAMES, key=target, value=others[0]),))
        )
    found += [
        _upstream(caller, target) for caller in callers if _upstream_key(target) in system.services[caller].config
    ]
    if wrong := [version for version in spec.versions() if version != spec.release]:
        found.append(Block("bad release", "release", (_call("release", service=target, version=wrong[-1]),)))
    if spec.required:
        unset = _call("config unset", target=target, key=spec.required[0])
        found.append(Block("missing setting", "configuration", (unset, _call("restart", target=target))))
    if "DB_PASSWORD" in spec.config:
        set_wrong = _call("config set", target=target, key="DB_PASSWORD", value="wrong")
        found.append(Block("wrong password", "credentials", (set_wrong, _call("restart", target=target))))
    if spec.host:
        found.append(Block("wrong clock", "time", (_call("clock set", host=spec.host, offset_s=-3600.0),)))
    if spec.replicas > 1:
        found.append(
            Block("one replica less", "capacity", (_call("scale", service=target, replicas=spec.replicas - 1),))
        )
    return tuple(found)


def audit_cases(system: System, target: str) -> tuple[Block, ...]:
    """Return one candidate of each invalid class of App. H.3: they would score, and say nothing about repairs.

    The workload is taken away; a part of the control plane is changed that a restored baseline does not cover; the
    definition is rewritten that the baseline is restored from.
    """
    stores = sorted(system.stores)
    control_plane = _call("restart", target=stores[0]) if stores else _call("restart", target="receiver")
    return (
        Block("workload taken away", "invalid", (_call("scale", service=target, replicas=0),)),
        Block("control plane changed", "invalid", (control_plane,)),
        Block("definition rewritten", "invalid", (_call("define", service=target, operations={}),)),
    )


def _upstream(caller: str, target: str) -> Block:
    wrong = _call("config set", target=caller, key=_upstream_key(target), value=f"{target}:9999")
    return Block(f"wrong port at {caller}", "service", (wrong, _call("restart", target=caller)))


def _upstream_key(target: str) -> str:
    return f"UPSTREAM_{target.upper().replace('-', '_')}"


def _call(verb: str, **arguments: object) -> OpsCall:
    return OpsCall(verb=verb, arguments=arguments)
