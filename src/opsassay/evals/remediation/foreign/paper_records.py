"""Reads the record of "side-effects": one JSON object per tick, with a block for each depth (App. G, Listing 6).

``v1`` has *availability*; ``v2`` the *ready_addr* of a service, or of each by name; ``v3`` whether a probe was
*reachable*, and its *latency_ms*; ``v4`` the *critical_failing* parts; *probe_id* is ``noprobe`` where none was sent.
The listing has no times: a record without ``ts``, ``time`` or ``timestamp`` follows its predecessor after the cadence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError
from opsassay.core.schema.json_lines import read_json_lines
from opsassay.core.schema.trajectory import Depth, Observation, Probe, Tick, Timeline
from opsassay.core.schema.validation_errors import reason
from opsassay.evals.remediation.foreign.instants import instant_ns

PAPER_CADENCE_S = 5.0
NO_PROBE = "noprobe"
LONGEST_S = 86_400.0
"""A record with a longer probe is refused."""
_TIMES = ("ts", "time", "timestamp")


def read_paper_records(path: Path, protected: Sequence[str], cadence_s: float = PAPER_CADENCE_S) -> Timeline:
    """Return the records in the paper's JSON lines file as a timeline; those without a time are *cadence_s* apart.

    The first of *protected* is the probed service. Raises DatapackError that names file and line.
    """
    ticks: list[Tick] = []
    began_ns = 0
    for index, record in enumerate(read_json_lines(path)):
        try:
            said = next((record[name] for name in _TIMES if name in record), None)
            began_ns = instant_ns(said) if said is not None else index * round(cadence_s * 1e9)
            ticks.append(_read_tick(index, record, began_ns, protected[0] if protected else "protected"))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise DatapackError(f"{path}:{index + 1}: no record of a tick ({reason(error)}).") from error
    if not ticks:
        raise DatapackError(f"{path} holds no record; it has one JSON object a tick.")
    return Timeline(boot_id="", cadence_s=cadence_s, ticks=tuple(ticks))


def _read_tick(index: int, record: Mapping[str, Any], time_ns: int, target: str) -> Tick:
    """Return *record* as a reading: v1 is D1, v2 D2, v3 the probe of *target* (D3), v4 D4; raises ValueError."""
    depths: list[tuple[Depth, float | None, tuple[str, ...]]] = []
    if (one := record.get("v1")) is not None:
        depths.append(("D1", _read_share(one["availability"]), ()))
    if (two := record.get("v2")) is not None:
        depths.append(("D2", *_read_backends(two)))
    if (four := record.get("v4")) is not None:
        failing = tuple(sorted(str(c["name"] if isinstance(c, dict) else c) for c in four["critical_failing"]))
        depths.append(("D4", 0.0 if failing else 1.0, failing))
    probes: tuple[Probe, ...] = ()
    three, name = record.get("v3"), str(record.get("probe_id", NO_PROBE))
    if name != NO_PROBE or (three is not None and three.get("reachable") is not None):
        three = three or {}
        latency_s = float(three.get("latency_ms") or 0) / 1000
        if not 0 <= latency_s <= LONGEST_S:
            raise ValueError(f"latency_ms {three['latency_ms']} is no time that a probe takes")
        reachable = three.get("reachable") is True
        probes = (Probe(id=name, target=target, started_ns=time_ns, ended_ns=time_ns + round(latency_s * 1e9),
                        latency_s=latency_s,
                        reachable=reachable),)  # fmt: skip
        depths.append(("D3", float(reachable), () if reachable else (target,)))
    if not depths:
        raise ValueError("it has none of v1, v2, v3, v4")
    observations = tuple(
        Observation(depth=depth, started_ns=time_ns, ended_ns=time_ns, value=value, failing=failing)
        for depth, value, failing in depths
    )
    return Tick(index=index, observations=observations, probes=probes)


def _read_share(value: Any) -> float | None:
    """Return *value* as a share from 0 to 1, None for None; raises ValueError for others."""
    if value is None:
        return None
    share = float(value)
    if not 0 <= share <= 1:
        raise ValueError(f"availability {value} is no share from 0 to 1")
    return share


def _read_backends(block: Mapping[str, Any]) -> tuple[float, tuple[str, ...]]:
    """Return (1.0, ()) if each service in *block* has a ready address, else (0.0, names of the others)."""
    counts = (
        {"protected": block["ready_addr"]}
        if "ready_addr" in block
        else {n: one["ready_addr"] for n, one in block.items()}
    )
    empty = tuple(sorted(name for name, count in counts.items() if int(count) <= 0))
    return (0.0 if empty else 1.0), empty
