"""Tasks that are generated from a seed, and the plan of their runs.

One seed is published; held-out seeds are derived from the grader's secret, without which the truth of a held-out task
cannot be computed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import Field, field_validator

from opsassay.core.errors import DatapackError, UserError
from opsassay.core.schema.base import Artefact, Written
from opsassay.core.schema.task import Task
from opsassay.evals.runner.commands import Sealing
from opsassay.evals.runner.oracles import EVERY_ORACLE
from opsassay.evals.runner.plan import PlannedAgent
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.tool_servers import PlannedTools
from opsassay.solvers.agents.limits import Limits, Price
from opsassay.telemetry.content import whole_file

PUBLISHED_SEED = 1
HELD_OUT = "@held-out-"
"""Part of the ids of tasks with secret seeds."""
MIN_SECRET_BYTES = 16
T = TypeVar("T")
A = TypeVar("A", bound=Artefact)
G = TypeVar("G", bound="GeneratedTask")


class GeneratedTask(Artefact):
    """One task: its *name*, and the *seed* from which data and truth are generated. Stored with its runs."""

    BODIES: ClassVar[str]
    """The store's folder for tasks of this kind, which hold the seeds and thus the truth."""

    name: str
    seed: int
    held_out: int | None = Field(default=None, description="number among the held-out ones of a plan; None: published")
    generator: str

    @property
    def id(self) -> str:
        """The task's name; followed by "@held-out-N" if its seed is secret."""
        return self.name + (f"{HELD_OUT}{self.held_out}" if self.held_out is not None else "")

    @cached_property
    def commitment(self) -> str:
        """The digest of everything that defines the task, for run specs and stored files."""
        raise NotImplementedError

    @property
    def task_info(self) -> Task:
        """The description of the task that is published: id, goal, limits, oracles and digest."""
        raise NotImplementedError

    def committed(self, *parts: str) -> str:
        """Return the SHA-256 over generator version, task name, seed and *parts*, for `commitment`."""
        return hashlib.sha256("\0".join((self.generator, self.name, str(self.seed), *parts)).encode()).hexdigest()

    def keep(self, root: Path) -> None:
        """Write the task into the store at *root*, named by its commitment, unless it is there."""
        keep_body(root / self.BODIES, self.commitment, self)

    @classmethod
    def read_kept(cls, root: Path, commitment: str) -> Self:
        """Return the task with the digest *commitment* from the store at *root*; raises DatapackError."""
        path, task = root / cls.BODIES / f"{commitment}.json", kept_body(root / cls.BODIES, commitment, cls)
        if task.generator != cls.model_fields["generator"].default:
            raise DatapackError(
                f"{path} was made by generator {task.generator}, and this is {cls.model_fields['generator'].default}; "
                "grade it with the OpsAssay of its run."
            )
        if task.commitment != commitment:
            raise DatapackError(f"{path} is not what its name says; restore it.")
        return task

    @classmethod
    def held_out_ones(cls, name: str, secret: Path, count: int) -> list[Self]:
        """Return *count* tasks *name* whose seeds follow from the file *secret*; raises UserError."""
        seeds = enumerate(held_out_seeds(name, secret, count), 1)
        return [cls.model_validate({"name": name, "seed": seed, "held_out": n}) for n, seed in seeds]


class HeldOutSeeds(Written):
    """Settings of held-out seeds, which can only be computed with the secret."""

    secret: str = Field(description="file with the secret, beside the plan; at least 16 bytes")
    count: int = Field(default=1, ge=1, le=1000, description="how many of each task")


def held_out_seeds(name: str, secret: Path, count: int) -> list[int]:
    """Return *count* seeds of the task *name*, derived from the content of the file *secret*; raises UserError.

    Seed n is the first 16 bytes of HMAC-SHA256(secret, "NAME/n"), big-endian, with n from 1.
    """
    try:
        key = secret.read_bytes().strip()
    except OSError as error:
        raise UserError(
            f"There is no secret {secret} ({error.strerror}); write one, as with `openssl rand -hex 32`."
        ) from error
    if len(key) < MIN_SECRET_BYTES:
        raise UserError(
            f"The secret {secret} has {len(key)} bytes, fewer than {MIN_SECRET_BYTES}, so that it could be guessed; "
            "write a longer one, as with `openssl rand -hex 32`."
        )
    digests = (hmac.digest(key, f"{name}/{n}".encode(), "sha256") for n in range(1, count + 1))
    return [int.from_bytes(digest[:16], "big") for digest in digests]


def keep_body(folder: Path, commitment: str, body: Artefact) -> None:
    """Write *body* (a task) as JSON into the store's *folder*, named by *commitment*, unless it is there."""
    path = folder / f"{commitment}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            partial.write_text(body.pretty_json(), encoding="utf-8")


def kept_body(folder: Path, commitment: str, model: type[A]) -> A:
    """Return the task named *commitment* in the store's *folder*, as an object of *model*; raises DatapackError."""
    path = folder / f"{commitment}.json"
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatapackError(f"{path}: the task that runs were begun with cannot be read; restore it.") from error


class AnswerSettings(Written):
    """Settings of a run on a generated task."""

    limits: dict[str, Any] = Field(default_factory=dict, description="over those of an agent.yaml")
    price: Price = Field(default=Price(), description="USD per million tokens")
    temperature: float | None = Field(default=None, ge=0, le=2, description="the endpoint's own when left out")
    sealing: Sealing = Field(default="auto", description="of external agents")

    @field_validator("limits")
    @classmethod
    def _are_limits(cls, settings: dict[str, Any]) -> dict[str, Any]:
        """Return *settings*; raises ValueError when a key or value is no limit."""
        Limits.model_validate(settings)
        return settings


class PlanOfAgents(Written):
    """Keys that all plans with named agents share: which agents run, and how often."""

    agents: tuple[PlannedAgent, ...] = Field(
        min_length=1, description="oracle:NAME, oracle:*, a baseline or the agent of the domain, or an agent.yaml"
    )
    tools: tuple[PlannedTools, ...] = Field(default=(), description="MCP servers whose tools agents have besides ours")
    repeats: int = Field(default=1, ge=1)
    seed: int = Field(default=0, ge=0, description="of the first repeat; the next ones count up")
    settings: AnswerSettings = Field(default=AnswerSettings())

    def each(self, cases: Sequence[tuple[T, Sequence[str]]], folder: Path) -> list[tuple[T, PlannedAgent, int]]:
        """Return (case, agent, seed) of each run, repeat by repeat; *cases* are (case, names of its oracles)."""
        return [
            (case, agent, self.seed + repeat)
            for repeat in range(self.repeats)
            for case, oracles in cases
            for given in self.agents
            for agent in agents_for(given, oracles, folder)
        ]


class GeneratedPlan(PlanOfAgents):
    """Keys that plans of generated tasks share: agents, repeats and seeds."""

    published: bool = Field(default=True, description="the seed that everybody knows")
    held_out: HeldOutSeeds | None = None

    def seeded(self, kind: type[G], names: Sequence[str], folder: Path) -> list[G]:
        """Return each task of *names* (class *kind*) with each seed of the plan; raises UserError for a bad secret."""
        found: list[G] = []
        for name in names:
            if self.published:
                found.append(kind.model_validate({"name": name, "seed": PUBLISHED_SEED}))
            if self.held_out is not None:
                found += kind.held_out_ones(name, folder / self.held_out.secret, self.held_out.count)
        return found


def agents_for(planned: PlannedAgent, oracles: Sequence[str], folder: Path) -> list[PlannedAgent]:
    """Return the agents that *planned* means, each of *oracles* for ``oracle:*``; paths are relative to *folder*."""
    if planned.name == EVERY_ORACLE:
        return [PlannedAgent(name=ORACLE + name) for name in oracles]
    model = planned.model
    kind, _, rest = (model or "").partition(":")
    if kind in {"scripted", "replayed"}:
        model = f"{kind}:{(folder / rest).absolute()}"
    return [PlannedAgent(name=str(folder / planned.name) if planned.is_file else planned.name, model=model)]
