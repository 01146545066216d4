"""External agents: a command described in YAML, which reads a prompt file and writes one JSON answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from string import Formatter
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from opsassay.core.errors import ConfigError
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml
from opsassay.solvers.agents.images import ContainerImage, find_image
from opsassay.solvers.agents.limits import Limits

PLACES = (
    "python",
    "agent",
    "prompt",
    "answer",
    "view",
    "work",
    "mcp",
    "model",
    "tools",
    "kubeconfig",
    "prometheus",
    "jaeger",
    "loki",
    "alertmanager",
    "tempo",
    "model_url",
)
"""The {placeholders} that the words of a command may contain."""

MOST_FILES = 2000


class AgentFile(Written):
    """The file agent.yaml: an agent's command, the files that it consists of, and its needs."""

    known: ClassVar[tuple[str, ...]] = PLACES

    agent: str = Field(description="name in results", min_length=1, max_length=80)
    command: tuple[str, ...] = Field(
        min_length=1, description="the words of the command; {prompt}, {answer} and others"
    )
    files: tuple[str, ...] = Field(default=(), description="its files and folders, beside this one; shown as {agent}")
    readable: tuple[str, ...] = Field(
        default=(), description="folders or files of the machine that it sees in the seal, by their absolute paths"
    )
    image: str = Field(default="", description="a container image on this machine whose files it runs in, in the seal")
    needs: tuple[Literal["model", "mcp", "apis"], ...] = Field(default=(), description="what is offered to it")
    remote: bool = Field(default=False, description="it hands the task on to an agent elsewhere, and runs unsealed")
    source: str = Field(default="", description="where it comes from")
    environment: dict[str, str] = Field(
        default_factory=dict, description="further variables; no keys: they are readable"
    )
    limits: Limits = Field(default=Limits(), description="its own limits; those of the command line win")

    @model_validator(mode="after")
    def _require_known_places(self) -> Self:
        """Raise ValueError for an unknown {placeholder} in the command, and for an image with `remote`."""
        for word in self.command:
            try:
                places = [place for place in Formatter().parse(word) if place[1] is not None]
            except ValueError as error:
                raise ValueError(f"{word!r}: {error}; write {{{{ for a brace") from error
            if unknown := next((name for _, name, _, _ in places if name not in self.known), None):
                raise ValueError(f"{{{unknown}}} means nothing; known: {', '.join(self.known)}")
            if any(spec or conversion for _, _, spec, conversion in places):
                raise ValueError(f"{word!r}: a place stands in its braces alone, without ':' or '!'")
        if self.image and self.remote:
            raise ValueError("an agent elsewhere (remote) runs in no image; leave out one of them")
        return self


class CommandAgent:
    """The external agent that the YAML file at *path* describes; *form* is the model that the file is read as."""

    def __init__(self, path: Path, form: type[AgentFile] = AgentFile) -> None:
        self.path = path.absolute()
        self.file = load_yaml(path, form)
        for name in self.file.files:
            file = (self.path.parent / name).resolve()
            if not file.exists() or not file.is_relative_to(self.path.parent.resolve()):
                raise ConfigError(f"{path}: files: there is no {name} beside it; name what the agent is made of.")

    @property
    def name(self) -> str:
        """The agent's name in results."""
        return self.file.agent

    @cached_property
    def image(self) -> ContainerImage | None:
        """The container image in which the agent runs, None without one; raises UserError when it is not here."""
        return find_image(self.file.image) if self.file.image else None

    @cached_property
    def source_hash(self) -> str:
        """The SHA-256 over the agent's YAML file, its files and its container image."""
        total = hashlib.sha256(self.file.digest().encode())
        if self.image is not None:
            total.update(f"\0image\0{self.image.id}".encode())
        for name, file in self.each_file():
            total.update(f"\0{name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
        return total.hexdigest()

    def words(self, places: Mapping[str, str]) -> list[str]:
        """Return the command's words, each {placeholder} replaced by its value in *places*, '' for one that is missing."""
        return [self.filled(word, places) for word in self.file.command]

    def variables(self, places: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that the agent's file sets; *places* is not used."""
        del places
        return self.file.environment

    def work_files(self, places: Mapping[str, str]) -> dict[str, str]:
        """Return the files, name to content, for the agent's work folder before the start: none; *places* is unused."""
        del places
        return {}

    @staticmethod
    def filled(text: str, places: Mapping[str, str]) -> str:
        """Return *text* with each {placeholder} replaced by its value in *places*, '' for a missing one."""
        return text.format(**{**dict.fromkeys(PLACES, ""), **places})

    def each_file(self) -> Iterator[tuple[str, Path]]:
        """Yield (relative path, path) of each file of the agent; ConfigError above `MOST_FILES` or outside its folder."""
        base, count = self.path.parent.resolve(), 0
        for name in sorted(self.file.files):
            top = (base / name).resolve()
            for file in sorted(top.rglob("*")) if top.is_dir() else [top]:
                if file.is_file() and "__pycache__" not in file.parts:
                    count += 1
                    if count > MOST_FILES:
                        raise ConfigError(f"{self.path}: files: more than {MOST_FILES} files; name fewer.")
                    if not file.resolve().is_relative_to(base):
                        raise ConfigError(
                            f"{self.path}: files: {file} leads out of its folder; put the file itself there."
                        )
                    yield str(file.relative_to(base)), file
