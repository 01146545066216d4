"""The command that is likely to be typed next, by what lies in this folder."""

from __future__ import annotations

import os
from pathlib import Path

_MOST = 200
"""Entries of a folder that are looked at."""


def next_command() -> str:
    """Return the next likely command: the demo where nothing was recorded, else a look at the latest store."""
    store = _latest_store()
    return "opsassay demo" if store is None else f"opsassay view {store}"


def _latest_store() -> Path | None:
    """Return the folder here, below here or in `opsassay-out` that holds incidents or runs, the latest of several."""
    places = [Path(), *_folders(Path()), *_folders(Path("opsassay-out"))]
    return max(filter(_is_store, places), key=lambda place: place.stat().st_mtime, default=None)


def _folders(above: Path) -> list[Path]:
    try:
        with os.scandir(above) as entries:
            return [above / one.name for one, _ in zip(entries, range(_MOST), strict=False) if one.is_dir()]
    except OSError:
        return []


def _is_store(folder: Path) -> bool:
    return (folder / "attempts.jsonl").is_file() or ((folder / "incidents").is_dir() and (folder / "truth").is_dir())
