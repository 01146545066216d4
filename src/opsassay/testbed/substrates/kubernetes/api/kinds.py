"""The kinds of objects that are known here, and where the API has them; `kinds.yaml` has them."""

from __future__ import annotations

from opsassay.core.schema.files import packaged_yaml

_ROWS = packaged_yaml(__package__, "kinds.yaml")
KINDS: dict[str, tuple[str, str, bool]] = {
    kind: (row["group"], row["plural"], row.get("namespaced", True)) for kind, row in _ROWS.items()
}
"""Kind to group and version, plural, and whether it lives in namespaces."""
FORMER: dict[str, str] = {kind: row["former"] for kind, row in _ROWS.items() if "former" in row}
"""Group and version of the kinds that servers of 1.20 have under another one."""
SHORT_NAMES: dict[str, tuple[str, ...]] = {kind: (row["short"],) for kind, row in _ROWS.items() if "short" in row}
"""What kubectl's users may write instead of the plural, as servers offer it."""
IN_ALL = frozenset(kind for kind, row in _ROWS.items() if row.get("in_all"))
"""The kinds that `kubectl get all` lists."""


def version_in(group: str) -> str:
    """Return the apiVersion for *group*, the API path of a group and version: ``apps/v1``, ``v1`` for the core."""
    return group.removeprefix("apis/").removeprefix("api/")


def group_in(group: str) -> str:
    """Return the API group for *group*, a path as of `version_in`, as rules of rights name it: ``apps``, "" for v1."""
    return group.split("/")[1] if group.startswith("apis/") else ""
