"""The log of a system's observer, found by a link with the system's name."""

from __future__ import annotations

import contextlib
from pathlib import Path

from opsassay.testbed.core.state import state_root

OBSERVER = "observer"


def _path_of_link(substrate: str, name: str) -> Path:
    """Return the path of the symbolic link to the log of the latest observer of the system *name*."""
    return state_root() / "observers" / f"{substrate}-{name}.log"


def link_observer_log(substrate: str, name: str, log: Path) -> None:
    """Make `observer_log` of the system *name* return the content of the file *log*; a later call replaces it."""
    link = _path_of_link(substrate, name)
    link.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    forget_observer_log(substrate, name)
    with contextlib.suppress(FileExistsError):  # another observer of the same system was faster
        link.symlink_to(log.absolute())


def observer_log(substrate: str, name: str) -> dict[str, str]:
    """Return {process name: log text} of the latest observer of the system *name*; {} when it was never observed."""
    try:
        return {OBSERVER: _path_of_link(substrate, name).read_text(errors="replace")}
    except FileNotFoundError:
        return {}


def forget_observer_log(substrate: str, name: str) -> None:
    """Remove the link to the log of a removed system; the log file itself stays with its timeline."""
    _path_of_link(substrate, name).unlink(missing_ok=True)
