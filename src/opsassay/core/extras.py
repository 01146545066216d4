"""Finds the optional part (pip extra) of OpsAssay to which a missing package belongs, and how to install it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from opsassay import __version__

WHEEL = f"opsassay-{__version__}-py3-none-any.whl"
"""The file name of the wheel. OpsAssay is on no package index: it is installed from this file or from a checkout."""

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "data": ("duckdb", "google", "numpy", "opentelemetry", "polars", "re2", "rustworkx", "scipy"),
    "testbed": ("asyncpg", "dns", "h2", "nats", "pyroute2", "valkey"),
    "a2a": ("a2a", "httpx"),
    "agents": ("mcp", "openai"),
    "apis": ("promql_parser",),
    "audit": ("firthmodels", "krippendorff", "sklearn"),
    "ciso": ("ansible", "jmespath", "opa_bindings", "regopy", "regorus", "semver"),
    "discover": ("openevolve",),
    "gym": ("gymnasium",),
    "inspect": ("inspect_ai",),
    "kubernetes": ("kubernetes", "urllib3"),
    "artefacts": ("fsspec", "s3fs"),
    "ray": ("ray",),
    "server": (
        "alembic",
        "confusable_homoglyphs",
        "cryptography",
        "procrastinate",
        "psycopg",
        "psycopg_pool",
        "sqlalchemy",
    ),
}
"""Extra of `pyproject.toml` to the packages that it adds to the base, by their import names."""

_LIVE_GROUPS = ("demo", "system", "task")
_LIVE_COMMANDS = ("incident record", "incident campaign", "run", "run trials", "score trials")


def extra_for(package: str, command: str) -> str | None:
    """Return the pip extra that installs the Python *package* for *command* ("system up"); None if no extra has it.

    For commands that run a system it is "testbed" instead of "data", which it includes.
    """
    own = next((extra for extra, names in PACKAGES.items() if package.partition(".")[0] in names), None)
    live = command in _LIVE_COMMANDS or command.partition(" ")[0] in _LIVE_GROUPS
    return "testbed" if own == "data" and live else own


def require(package: str) -> None:
    """Raise ModuleNotFoundError unless the Python *package* is installed; called before work that needs it at its end."""
    if find_spec(package) is None:
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)


def install_hint(extra: str) -> str:
    """Return "run `pip install ...`" with the pip *extra*, for the checkout or wheel that OpsAssay was installed from."""
    origin = _find_install_origin()
    if origin is None:
        return (
            f"run `pip install '.[{extra}]'` in the checkout of OpsAssay, "
            f"or `pip install '{WHEEL}[{extra}]'` beside its wheel"
        )
    path, editable = origin
    return f"run `pip install {'-e ' if editable else ''}{shlex.quote(f'{path}[{extra}]')}`"


def _find_install_origin() -> tuple[Path, bool] | None:
    """Return (checkout or wheel that pip installed OpsAssay from, whether the install is editable); None if it is gone."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        noted = json.loads(distribution("opsassay").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return None
    url = urlsplit(noted.get("url", ""))
    path = Path(unquote(url.path))
    if url.scheme != "file" or not path.exists():
        return None
    return path, bool(noted.get("dir_info", {}).get("editable"))
