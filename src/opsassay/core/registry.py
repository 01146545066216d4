"""Loads objects by name, from built-in dotted paths and entry points; an unknown name gets a suggestion."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from opsassay.core.errors import NotFoundError


class Registry:
    """Objects of one *kind* by name.

    *builtin* maps names to ``module:attribute``; installed packages add to it through the entry-point *group*. An object is
    imported when it is first loaded.
    """

    def __init__(self, kind: str, group: str, builtin: Mapping[str, str]) -> None:
        self.kind, self.group, self._builtin = kind, group, dict(builtin)

    def names(self) -> list[str]:
        """Return every registered name: those of the package first, then those of the entry points."""
        return [*self._builtin, *(p.name for p in entry_points(group=self.group) if p.name not in self._builtin)]

    def builtin_names(self) -> list[str]:
        """Return the registered names that come with OpsAssay itself, without those of entry points."""
        return list(self._builtin)

    def load(self, name: str) -> Any:
        """Import and return the object registered as *name*; raises NotFoundError with the nearest valid name."""
        if path := self._builtin.get(name):
            module, _, attribute = path.partition(":")
            return getattr(importlib.import_module(module), attribute)
        for point in entry_points(group=self.group):
            if point.name == name:
                return point.load()
        raise NotFoundError(self.kind, name, self.names())
