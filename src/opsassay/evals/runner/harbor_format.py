"""What every task of Harbor has, whatever is asked in it: the schema, its TOML, its files and its reward.

Source: the models and the loader of Harbor (schema 1.4): ``task.toml``, ``instruction.md``, ``environment/``, ``tests/``,
``solution/``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.telemetry.content import whole_file

SCHEMA = "1.4"
IMAGE = "python:3.12-slim"
Table = Mapping[str, str | float | list[str]]


def task_toml(name: str, tables: Mapping[str, Table]) -> str:
    """Return the ``task.toml`` of the task called *name*, with *tables* by their headers; one in ``[]`` is of an array."""
    lines = [f'schema_version = "{SCHEMA}"']
    named = {"name": f"opsassay/{name}", **tables["task"]}
    for header, table in {**tables, "task": named}.items():
        lines += ["", f"[{header}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    """Return what TOML and JSON write alike: texts, numbers and lists of them."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def write_task(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write *files* below *folder*, by their paths; those that begin with ``#!`` can be run."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        if isinstance(content, str) and content.startswith("#!"):
            (folder / name).chmod(0o755)


def rewards_of(metrics: Mapping[str, Metric], *, success: bool) -> dict[str, float]:
    """Return the scored *metrics* with `reward` before them: 1 for a *success*, 0 for none.

    Metrics that failed or do not apply are left out, since Harbor's rewards are numbers.
    """
    scored = {n: m.value for n, m in metrics.items() if m.status is MetricStatus.SCORED and m.value is not None}
    return {"reward": float(success), **scored}


def write_rewards(path: Path, rewards: Mapping[str, float]) -> None:
    """Write *rewards* to *path* whole, as Harbor reads them."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(rewards), encoding="utf-8")
