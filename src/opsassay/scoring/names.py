"""One place where service names are made comparable (OpenRCA 2.0, G.2.1)."""

from __future__ import annotations

from collections.abc import Sequence


def normalise(name: str, prefixes: Sequence[str] = ()) -> str:
    """Return *name* without the first of *prefixes* that it starts with, in lower case, without '-' and '_'.

    The prefix is compared regardless of case and of '-' against '_', since answers drift in both. It comes off once,
    and never when nothing would be left.
    """
    folded = _fold(name)
    for prefix in prefixes:
        if folded.startswith(_fold(prefix)) and len(folded) > len(prefix):
            folded = folded[len(prefix) :]
            break
    return folded.replace("-", "")


def _fold(name: str) -> str:
    return name.strip().lower().replace("_", "-")
