"""A container engine by its command line, Docker's or Podman's: each call has a limit of time."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsassay.core.errors import OperationError

CALL_S = 30.0


@dataclass(frozen=True)
class ContainerState:
    """One container as its engine sees it; *pid* is 0 unless it runs, *address* and *gateway* are of its first network."""

    id: str
    pid: int
    running: bool
    started_at: str
    exit_code: int
    health: str
    address: str
    gateway: str
    number: int

    @classmethod
    def of(cls, inspected: Mapping[str, Any]) -> ContainerState:
        """Return the state in one object of `inspect`."""
        state, networks = inspected["State"], inspected["NetworkSettings"].get("Networks") or {}
        first: Mapping[str, Any] = next(iter(networks.values()), {})
        health = state.get("Health") or state.get("Healthcheck") or {}
        return cls(
            id=inspected["Id"],
            pid=int(state.get("Pid") or 0),
            running=bool(state.get("Running")),
            started_at=str(state.get("StartedAt", "")),
            exit_code=int(state.get("ExitCode") or 0),
            health=str(health.get("Status") or ""),
            address=str(first.get("IPAddress") or ""),
            gateway=str(first.get("Gateway") or ""),
            number=int(inspected["Config"]["Labels"].get("com.docker.compose.container-number") or 1),
        )


class ContainerEngine:
    """The engine whose program is *words*."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)

    async def run(self, *arguments: str, with_errors: bool = False) -> str:
        """Return what the engine prints; raises OperationError when it fails or does not end in time."""
        return await run_words((*self.words, *arguments), CALL_S, with_errors=with_errors)

    async def inspect(self, container: str) -> ContainerState:
        """Return the state of *container*."""
        return ContainerState.of(json.loads(await self.run("inspect", container))[0])

    async def containers(self, project: str, service: str) -> list[ContainerState]:
        """Return the containers of *service* in the compose *project*, by their numbers; those that ended included."""
        labels = {"project": project, "service": service}
        filters = [f"--filter=label=com.docker.compose.{key}={value}" for key, value in labels.items()]
        ids = (await self.run("ps", "--all", "--quiet", *filters)).split()
        found = [await self.inspect(one) for one in ids]
        return sorted(found, key=lambda one: one.number)


async def run_words(words: Sequence[str], limit_s: float, *, with_errors: bool = False) -> str:
    """Return what the program *words* prints, *with_errors* also to standard error.

    Raises OperationError with the line that names the error when it fails or is late.
    It prints into files: what it starts may keep a pipe open long after it has ended itself.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=err)
        try:
            await asyncio.wait_for(process.wait(), limit_s)
        except TimeoutError as error:
            process.kill()
            await process.wait()
            raise OperationError(f"`{' '.join(words[:4])}` did not end in {limit_s:g} s.") from error
        for file in (out, err):
            file.seek(0)
        printed, complaints = (file.read().decode(errors="replace") for file in (out, err))
    if process.returncode:
        said = (complaints or printed).strip().splitlines()
        cause = next((line for line in said if line.lower().startswith("error")), said[-1] if said else "")
        raise OperationError(f"`{' '.join(words[:4])}` ended with status {process.returncode}: {cause}")
    return printed + (complaints if with_errors else "")
