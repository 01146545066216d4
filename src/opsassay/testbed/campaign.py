"""Campaigns: many incidents from one plan, each on a fresh warmed-up system, resumable after any end."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from opsassay.core.draws import derived_random, derived_secret, derived_seed, new_secret
from opsassay.core.errors import ConfigError, OpsAssayError, UserError, naming
from opsassay.core.parallel import map_processes
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml, where
from opsassay.core.schema.incident import FaultPlan, PlannedFault, Target
from opsassay.core.schema.locks import folder_lock
from opsassay.core.schema.system import IsolationLevel
from opsassay.telemetry.content import opaque_id, whole_file
from opsassay.telemetry.tree import Tree
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.substrate import load_substrate
from opsassay.testbed.recording.record import SPOOL_PREFIX, Schedule, check_output, record, spool_of
from opsassay.testbed.substrates.local.capabilities import choose_level

SECRET, LOCK = "campaign.secret", ".campaign.lock"


class CampaignFault(Written):
    """What is injected into incidents of their own: one fault on each target, or several faults at once."""

    fault: str | None = Field(default=None, description="chaos type, or NoFault")
    targets: tuple[str, ...] = Field(default=(), description="services; none for NoFault")
    hosts: tuple[str, ...] = Field(default=(), description="hosts, each as a whole")
    parameters: dict[str, Any] = Field(default_factory=dict)
    faults: tuple[PlannedFault, ...] = Field(default=(), description="faults that act at the same time")
    repeats: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _plans_can_be_made(self) -> Self:
        """Raise the error of a plan that cannot be made of these fields."""
        self.plans()
        return self

    def plans(self) -> list[FaultPlan]:
        """Return one plan per target service and host, or a single plan that has all of `faults` at once."""
        if self.faults:
            return [FaultPlan(fault=self.fault, parameters=self.parameters, faults=self.faults)]
        targets = [*(Target(service=name) for name in self.targets), *(Target(host=name) for name in self.hosts)]
        return [FaultPlan(fault=self.fault, target=t, parameters=self.parameters) for t in targets or (None,)]


class CampaignSystem(Written):
    """A system of a campaign with what is done to it."""

    system: str = Field(description="name, or path of a YAML file")
    faults: tuple[CampaignFault, ...]


class CampaignPlan(Written):
    """What `opsassay incident campaign` reads."""

    campaign: str
    systems: tuple[CampaignSystem, ...]
    seed: int = 0
    warmup_s: float = Field(default=8.0, ge=0)
    normal_s: float = Field(default=60.0, ge=2)
    abnormal_s: float = Field(default=60.0, ge=2)
    isolation: IsolationLevel | None = Field(default=None, description="the best of the machine when left out")


@dataclass(frozen=True)
class PlannedIncident:
    """One incident that is to be recorded; *cell* names it within its campaign."""

    cell: str
    system: str
    plan: FaultPlan
    seed: int
    schedule: Schedule
    isolation: IsolationLevel


@dataclass(frozen=True)
class Recorded:
    """What became of an injection: the incident's id, or the error."""

    cell: str
    incident: str | None
    error: str | None
    seconds: float


def load_plan(path: Path) -> list[PlannedIncident]:
    """Return the incidents that the plan file *path* asks to record, each checked; raises ConfigError."""
    plan = load_yaml(path, CampaignPlan)
    schedule, level = Schedule(plan.warmup_s, plan.normal_s, plan.abnormal_s), choose_level(plan.isolation)
    substrate = load_substrate()
    injections: list[PlannedIncident] = []
    for i, entry in enumerate(plan.systems):
        with naming(where(path, f"systems.{i}.system")):
            system = load_system(entry.system)
        for j, kind in enumerate(entry.faults):
            for fault, repeat in product(kind.plans(), range(kind.repeats)):
                substrate.require(system, fault, level, source=path, within=f"systems.{i}.faults.{j}")
                seed = plan.seed + len(injections)
                cell = fault.digest()[:8] + f"-{system.system}-{repeat}"
                if any(other.cell == cell for other in injections):
                    at = where(path, f"systems.{i}.faults.{j}")
                    raise ConfigError(f"{at}: {fault.name} is planned twice for {system.system}; use `repeats`.")
                injections.append(PlannedIncident(cell, entry.system, fault, seed, schedule, level))
    return injections


def run_campaign(
    injections: list[PlannedIncident], tree: Tree, jobs: int, otlp: str | None = None
) -> Iterator[Recorded]:
    """Record those of *injections* that the folder *tree* lacks, *jobs* at a time, and yield each outcome as it ends.

    They are recorded in a random order that the secret of *tree* decides, so that times do not tell which fault was
    when. A failed injection is yielded with its error, and the next call tries it again; what a killed call left of
    it is removed first. With *otlp*, the URL of an OTLP/HTTP receiver, all telemetry is also sent there. Raises
    UserError while another campaign records into *tree*.
    """
    ids = incident_ids(injections, tree)
    refusal = UserError(f"Another campaign records into {tree.root} now; wait for its end.")
    with folder_lock(tree.root, name=LOCK, wait=False, refusal=refusal):
        present = set(tree.ids())
        waiting = [(injection, ids[injection.cell]) for injection in injections if ids[injection.cell] not in present]
        derived_random(campaign_secret(tree), "order").shuffle(waiting)
        yield from map_processes(partial(_record_one, tree.root, otlp), waiting, jobs)


def incident_ids(injections: list[PlannedIncident], tree: Tree) -> dict[str, str]:
    """Return {cell: incident id} of *injections*, known before they are recorded; creates the folder *tree*."""
    check_output(tree)
    secret = campaign_secret(tree)
    return {injection.cell: opaque_id(f"{secret} {injection.cell}") for injection in injections}


def campaign_secret(tree: Tree) -> str:
    """Return the secret that decides all draws of campaigns in *tree*; it is created and stored on the first call."""
    path = tree.truth_dir / SECRET
    if not path.exists():
        tree.truth_dir.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial_file:
            partial_file.write_text(new_secret())
            partial_file.chmod(0o600)
    return path.read_text()


def half_recorded(injections: list[PlannedIncident], tree: Tree) -> tuple[list[Path], list[Path]]:
    """Return two lists of folders that killed recordings left in *tree*: those of *injections*, and all others."""
    ids = incident_ids(injections, tree).values()
    ours = [spool for id_ in ids if (spool := spool_of(tree, id_)).exists()]
    return ours, sorted(set(tree.root.glob(f"{SPOOL_PREFIX}*")) - set(ours))


def _record_one(root: Path, otlp: str | None, order: tuple[PlannedIncident, str]) -> Recorded:
    """Record the (injection, incident id) of *order* into the folder *root*, on a new system; an error is returned."""
    injection, id_ = order
    began = time.monotonic()
    shutil.rmtree(spool_of(Tree(root), id_), ignore_errors=True)
    substrate, name = load_substrate(), f"campaign-{os.getpid()}"
    secret = derived_secret(campaign_secret(Tree(root)), f"{injection.seed} {injection.cell}")
    try:
        app = load_system(injection.system)
        seed = derived_seed(secret, "system")
        with substrate.deployed(app, name, seed=seed, isolation=injection.isolation) as running:
            record(running, app, injection.plan, Tree(root), injection.schedule, secret=secret, id_=id_, otlp=otlp)
    except (OpsAssayError, OSError) as error:
        return Recorded(injection.cell, None, str(error), time.monotonic() - began)
    return Recorded(injection.cell, id_, None, time.monotonic() - began)
