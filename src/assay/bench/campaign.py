"""Campaigns: many incidents from one plan, each on a fresh warmed-up system, resumable after any end."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import Field

from assay.bench.parallel import map_processes
from assay.errors import AssayError, ConfigError, NotFoundError
from assay.model.base import Written
from assay.model.faults import NO_FAULT
from assay.model.files import load_yaml
from assay.model.incident import FaultPlan, Target
from assay.telemetry.content import opaque_id, whole_file
from assay.telemetry.tree import Tree
from assay.testbed.apps import load_system
from assay.testbed.capabilities import refusal
from assay.testbed.local.substrate import LocalSubstrate
from assay.testbed.record import Schedule, record

SALT = "campaign.salt"


class CampaignFault(Written):
    """One kind of injection of a campaign and the services that it hits, each in an incident of its own."""

    fault: str
    targets: tuple[str, ...] = Field(default=(), description="services; none for NoFault")
    parameters: dict[str, Any] = Field(default_factory=dict)
    repeats: int = Field(default=1, ge=1)


class CampaignSystem(Written):
    """A system of a campaign with what is done to it."""

    system: str = Field(description="name, or path of a YAML file")
    faults: tuple[CampaignFault, ...]


class CampaignPlan(Written):
    """What `assay campaign` reads."""

    campaign: str
    systems: tuple[CampaignSystem, ...]
    seed: int = 0
    warmup_s: float = Field(default=8.0, ge=0)
    normal_s: float = Field(default=60.0, ge=2)
    abnormal_s: float = Field(default=60.0, ge=2)


@dataclass(frozen=True)
class Injection:
    """One incident that is to be recorded; *cell* names it within its campaign."""

    cell: str
    system: str
    plan: FaultPlan
    seed: int
    schedule: Schedule


@dataclass(frozen=True)
class Recorded:
    """What became of an injection: the incident's id, or the error."""

    cell: str
    incident: str | None
    error: str | None
    seconds: float


def load_plan(path: Path) -> list[Injection]:
    """Return the injections of the plan at *path*, all checked before any is run; raises ConfigError, NotFoundError."""
    plan = load_yaml(path, CampaignPlan)
    schedule = Schedule(plan.warmup_s, plan.normal_s, plan.abnormal_s)
    injections: list[Injection] = []
    for entry in plan.systems:
        system = load_system(entry.system)
        for kind in entry.faults:
            for service, repeat in product(kind.targets or (None,), range(kind.repeats)):
                if service is not None and service not in system.services:
                    raise NotFoundError(f"service of {system.system}", service, system.services)
                target = None if service is None else Target(service=service)
                fault = FaultPlan(fault=kind.fault, target=target, parameters=kind.parameters).completed()
                if fault.fault != NO_FAULT and (reason := refusal(fault.fault, "plain")):
                    raise ConfigError(f"{path}: {fault.fault} cannot be injected here: {reason}.")
                seed = plan.seed + len(injections)
                cell = fault.digest()[:8] + f"-{system.system}-{repeat}"
                injections.append(Injection(cell, entry.system, fault, seed, schedule))
    return injections


def run_campaign(injections: list[Injection], tree: Tree, jobs: int) -> Iterator[Recorded]:
    """Record what is not recorded yet, *jobs* systems side by side; yield each outcome in the order of the plan.

    An injection that fails is reported, the rest goes on, and the next call tries it again.
    """
    ids, present = incident_ids(injections, tree), set(tree.ids())
    waiting = [(injection, ids[injection.cell]) for injection in injections if ids[injection.cell] not in present]
    yield from map_processes(partial(_record_one, tree.root), waiting, jobs)


def incident_ids(injections: list[Injection], tree: Tree) -> dict[str, str]:
    """Return the incident id of every cell.

    An id is known before its incident is recorded, so that after any end it is clear what is there; it follows from a
    random salt of the tree too, so that nobody can tell the fault from it.
    """
    tree.root.mkdir(parents=True, exist_ok=True)
    path = tree.root / SALT
    if not path.exists():
        with whole_file(path) as partial_file:
            partial_file.write_text(secrets.token_hex(16))
    salt = path.read_text()
    return {injection.cell: opaque_id(f"{salt} {injection.cell}") for injection in injections}


def _record_one(root: Path, order: tuple[Injection, str]) -> Recorded:
    """Record one injection under its id on a fresh system that ends with this process."""
    injection, id_ = order
    began = time.monotonic()
    substrate, name = LocalSubstrate(), f"campaign-{os.getpid()}"
    try:
        app = load_system(injection.system)
        with substrate.deployed(app, name, seed=injection.seed) as running:
            record(running, app, injection.plan, Tree(root), injection.schedule, seed=injection.seed, id_=id_)
    except AssayError as error:
        return Recorded(injection.cell, None, str(error), time.monotonic() - began)
    return Recorded(injection.cell, id_, None, time.monotonic() - began)
