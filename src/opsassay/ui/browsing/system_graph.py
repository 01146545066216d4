"""The graph of a running system as boxes and lines: callers to the left of what they call; pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from opsassay.ui.plain import plain

if TYPE_CHECKING:
    from opsassay.core.schema.system import System

WIDTH, HEIGHT, GAP_X, GAP_Y = 132, 40, 56, 16


def graph_of(
    system: System, signals: Mapping[str, Mapping[str, Any]], loud: Collection[str], not_ready: Collection[str]
) -> dict[str, Any]:
    """Return nodes and lines of *system*, placed: who fails, alerts or is not ready has a shape of its own."""
    edges = sorted(system.calls() | system.uses())
    columns = _columns([*system.services, *system.stores], edges, system.entries())
    rows: dict[int, int] = {}
    places, nodes = {}, []
    for name in [*system.services, *system.stores]:
        column = columns[name]
        rows[column] = rows.get(column, -1) + 1
        x, y = column * (WIDTH + GAP_X) + 2, rows[column] * (HEIGHT + GAP_Y) + 2
        places[name] = (x, y)
        row = signals.get(name, {})
        down = any(replica == name or replica.startswith(f"{name}-") for replica in not_ready)
        state = "down" if down else "loud" if name in loud else "failing" if row.get("errors", 0) > 0 else "well"
        words = (
            f"{row['rate_rps']:.1f}/s, p99 {row['p99_ms']:.0f} ms"
            if row
            else "store"
            if name in system.stores
            else "quiet"
        )
        nodes.append(
            {"name": plain(name, 18), "x": x, "y": y, "state": state, "words": words, "store": name in system.stores}
        )
    lines = [
        {"x1": places[a][0] + WIDTH, "y1": places[a][1] + HEIGHT / 2, "x2": places[b][0], "y2": places[b][1] + HEIGHT / 2,
         "a": plain(a, 60), "b": plain(b, 60)}
        for a, b in edges if a in places and b in places
    ]  # fmt: skip
    return {
        "nodes": nodes,
        "lines": lines,
        "width": (max(columns.values(), default=0) + 1) * (WIDTH + GAP_X) - GAP_X + 4,
        "height": (max(rows.values(), default=0) + 1) * (HEIGHT + GAP_Y) - GAP_Y + 4,
    }


def _columns(names: list[str], edges: Collection[tuple[str, str]], entries: Collection[str]) -> dict[str, int]:
    """Return how many calls each of *names* is away from the users, the nearest way; who is never called is in front."""
    columns, waiting = dict.fromkeys(entries, 0), list(entries)
    while waiting:
        name = waiting.pop(0)
        for caller, callee in edges:
            if caller == name and callee not in columns:
                columns[callee] = columns[name] + 1
                waiting.append(callee)
    return {name: columns.get(name, 0) for name in names}
