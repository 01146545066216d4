"""The request bodies of operations, which pages send as forms too."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from opsassay.core.schema.base import Written


class UserForm(Written):
    """Who gets a token."""

    name: str = Field(min_length=1, max_length=80, pattern=r"^[\w][\w .@+-]*$")
    role: Literal["admin", "owner", "author", "runner"] = "owner"
    days: float | None = Field(
        default=None, gt=0, le=3650, description="after which the token ends; never when left out"
    )


class BenchmarkForm(Written):
    """Which agent is to be run on which task set."""

    agent: str = Field(min_length=1, max_length=40)
    task_set: str = Field(min_length=1, max_length=100)


class StatusForm(Written):
    """What an agent says of itself, in the words of ITBench."""

    status: Literal["STARTED", "FINISH", "ERROR"]
    message: str = Field(default="", max_length=2000)


class PromptForm(Written):
    """What a relay hands over."""

    prompt: str = Field(max_length=500_000)


class ReportForm(Written):
    """Results that an owner reports of an agent: shown, marked, never ranked."""

    agent: str = Field(min_length=1, max_length=40)
    task_set: str = Field(min_length=1, max_length=100)
    said: dict[str, float] = Field(description="figures by name", max_length=100)
    source: str = Field(default="", max_length=500, description="where they can be looked at")
