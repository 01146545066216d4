"""What a team's own backends hold of a system that OpsAssay has not started: added to what OpsAssay received."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from opsassay.core.schema.incident import Window
from opsassay.core.schema.system import System
from opsassay.core.text import plural
from opsassay.telemetry.schema import conform

if TYPE_CHECKING:
    import polars as pl

LAG_S = 10.0
"""How long after a window its last spans may reach their backend: SDKs send every five seconds."""
REPLACED = ("traces", "logs")
"""Tables in which a service that a backend knows is known from there alone, so that nothing is there twice."""


def require_backends(system: System) -> None:
    """Check that the backends of *system* can be read, by reading their last second; raises OperationError, UserError."""
    if system.backends is not None:
        now_ns = time.time_ns()
        read_backends(system, Window(start_ns=now_ns - 10**9, end_ns=now_ns))


def with_backends(
    frames: dict[str, pl.DataFrame], system: System, window: Window
) -> tuple[dict[str, pl.DataFrame], list[str]]:
    """Return *frames* (by table) with what the backends of *system* hold of *window*, and notes on what is left out.

    Rows of services that *system* lacks are left out. Raises OperationError when a backend cannot be read.
    """
    if system.backends is None:
        return frames, []
    time.sleep(max(0.0, LAG_S - (time.time_ns() - window.end_ns) / 1e9))
    found, notes = read_backends(system, window)
    foreign = {name: frame.filter(~frame["service_name"].is_in(list(system.services))) for name, frame in found.items()}
    unknown = sorted({name for frame in foreign.values() for name in frame["service_name"] if name})
    if unknown:
        rows = plural(sum(frame.height for frame in foreign.values()), "row")
        some = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        notes.append(f"{rows} of services that the project lacks are left out: {some}; `services` gives other names")
    return {name: merged(name, frame, found[name], system) for name, frame in frames.items()}, notes


def read_backends(system: System, window: Window) -> tuple[dict[str, pl.DataFrame], list[str]]:
    """Return what the backends of *system* hold of *window*, and notes on how it was read."""
    from opsassay.telemetry.importers.backends.importing import read_window

    assert system.backends is not None
    return read_window(system.backends, window)


def merged(modality: str, own: pl.DataFrame, found: pl.DataFrame, system: System) -> pl.DataFrame:
    """Return *own* rows and those *found* in backends for services of *system*, by time, none from both sources."""
    import polars as pl

    found = found.filter(pl.col("service_name").is_in(list(system.services)))
    if modality in REPLACED:
        own = own.filter(~pl.col("service_name").is_in(found["service_name"].unique().to_list()))
    else:
        series = ["service_name", "metric"]
        found = found.join(own.select(series).unique(), on=series, how="anti")
    both = pl.concat([conform(one, modality, "the recording") for one in (own, found)], how="diagonal_relaxed")
    return both.sort("time", maintain_order=True)
