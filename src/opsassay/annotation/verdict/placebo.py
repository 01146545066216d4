"""Sham incidents: nothing was broken, and annotate is asked as if something was."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opsassay.core.errors import UserError
from opsassay.core.schema.faults import NO_FAULT, fault_type
from opsassay.core.schema.incident import Fault, Truth, Window
from opsassay.telemetry.datapack import Datapack


@dataclass(frozen=True, eq=False)
class Halves(Datapack):
    """The normal window of a datapack as an incident: its first half as normal, its second as abnormal."""

    def scan(self, period: str, modality: str) -> pl.LazyFrame:
        """Return the half of the normal table that stands for *period*."""
        at = pl.col("time").dt.epoch("ns")
        early = at < self.incident.normal.end_ns
        return super().scan("normal", modality).filter(early if period == "normal" else ~early)


def halves(pack: Datapack) -> Halves:
    """Return the normal window of *pack* halved; raises UserError when it is too short to be."""
    whole = pack.incident.normal
    if whole.seconds < 4:
        raise UserError(f"{pack.path}: the normal window of {whole.seconds:.1f} s is too short to be halved.")
    middle = (whole.start_ns + whole.end_ns) // 2
    windows = {
        "normal": Window(start_ns=whole.start_ns, end_ns=middle),
        "abnormal": Window(start_ns=middle, end_ns=whole.end_ns),
    }
    incident = pack.incident.model_copy(update={**windows, "alerts": ()})
    return Halves(path=pack.path, incident=incident, env=pack.env)


def sham(pack: Datapack, truth: Truth | None, type_: str, service: str) -> tuple[Datapack, Fault]:
    """Return what to annotate when *type_* at *service* is pretended where nothing was broken.

    A no-fault incident is taken as it is; of any other the normal window is halved, and the pretended fault begins with
    the second half. Raises NotFoundError for an unknown type, UserError for a normal window that is too short to be
    halved.
    """
    nothing = truth is not None and all(f.type == NO_FAULT for f in truth.faults)
    calm = pack if nothing else halves(pack)
    window = calm.incident.abnormal
    return calm, Fault(type=fault_type(type_).name, service=service, start_ns=window.start_ns, end_ns=window.end_ns)
