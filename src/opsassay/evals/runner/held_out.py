"""Seeds of tasks that are made: one that everybody knows, and held-out ones that follow from the grader's secret.

Nobody who has this code and a task's data, but not the secret, can make the truth of a held-out task.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TypeVar

from pydantic import Field

from opsassay.core.errors import DatapackError, UserError
from opsassay.core.schema.base import Artefact, Written
from opsassay.telemetry.content import whole_file

A = TypeVar("A", bound=Artefact)
PUBLISHED_SEED = 1
MIN_SECRET_BYTES = 16


class HeldOutSeeds(Written):
    """Seeds that nobody knows who does not know the secret."""

    secret: str = Field(description="file with the secret, beside the plan; at least 16 bytes")
    count: int = Field(default=1, ge=1, le=1000, description="how many of each task")


def held_out_seeds(name: str, secret: Path, count: int) -> list[int]:
    """Return the *count* seeds of the task called *name* by what stands in the file *secret*; raises UserError.

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
    """Write the *body* of a task into *folder* of a store under its *commitment*, if it is not there."""
    path = folder / f"{commitment}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as partial:
            partial.write_text(body.pretty_json(), encoding="utf-8")


def kept_body(folder: Path, commitment: str, model: type[A]) -> A:
    """Return the body that runs of a store were begun with; raises DatapackError."""
    path = folder / f"{commitment}.json"
    try:
        return model.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DatapackError(f"{path}: the task that runs were begun with cannot be read; restore it.") from error
