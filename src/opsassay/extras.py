"""Which optional part of OpsAssay a missing package belongs to, so that its absence is one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "data": ("duckdb", "google", "numpy", "opentelemetry", "polars", "rustworkx", "scipy"),
    "testbed": ("asyncpg", "dns", "nats", "pyroute2", "valkey"),
    "a2a": ("a2a", "httpx"),
    "agents": ("mcp", "openai"),
    "apis": ("promql_parser",),
    "audit": ("firthmodels", "krippendorff", "sklearn"),
    "ciso": ("ansible", "jmespath", "regorus"),
    "discover": ("openevolve",),
    "inspect": ("inspect_ai",),
    "kubernetes": ("kubernetes", "urllib3"),
    "artefacts": ("fsspec", "s3fs"),
    "ray": ("ray",),
    "server": ("alembic", "cryptography", "procrastinate", "psycopg", "psycopg_pool", "sqlalchemy"),
}
"""The packages, by the names under which they are imported, that an extra of `pyproject.toml` adds to the base."""

_SYSTEMS = ("demo", "up", "down", "logs", "status", "render", "faults", "inject", "record", "campaign")
_TASKS = ("tasks", "run", "scenarios", "trials", "discover")


def extra_for(package: str, command: str) -> str | None:
    """Return the extra that *command* wants when *package* is missing; None for a package that no extra brings."""
    own = next((extra for extra, names in PACKAGES.items() if package.partition(".")[0] in names), None)
    return "testbed" if own == "data" and command in (*_SYSTEMS, *_TASKS) else own


def require(package: str) -> None:
    """Raise ModuleNotFoundError unless *package* is installed, before something begins that could not end without it."""
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)
