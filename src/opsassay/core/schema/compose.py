"""ComposeProject: a compose project that is run as a system, and the settings that its own file lacks."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from opsassay.core.schema.base import Written
from opsassay.core.schema.program import Ready, Sidecar


class ComposeProject(Written):
    """A project as it is run: a copy of the user's with own names, volumes and networks, or the user's running one."""

    engine: tuple[str, ...] = Field(min_length=1, description="the engine's program, such as docker")
    attached: str | None = Field(default=None, description="the user's own project, which runs and is not started here")
    unlimited: tuple[str, ...] = Field(default=(), description="services of it that may use the whole machine")
    compose: tuple[str, ...] = Field(default=(), description="the compose program, such as docker compose")
    directory: str = Field(default="", description="the folder of the user's compose file")
    content: dict[str, Any] = Field(default_factory=dict, description="the compose file that is run")
    copied: dict[str, str] = Field(
        default_factory=dict, description="folders that containers may write to: of the user, by the name of the copy"
    )


class ComposeService(Written):
    """Settings of a service that a compose file lacks."""

    port: int | None = Field(default=None, ge=1, le=65535, description="where it listens; its first port when left out")
    ready: Ready | None = Field(default=None, description="when it is ready: its port answers when left out")
    calls: tuple[str, ...] | None = Field(
        default=None, description="the services that it calls; all others when left out"
    )
    sidecar: Sidecar = None
