"""What every process of a system does first."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
from pathlib import Path

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere the management socket ends it)."""
    if _libc is not None:
        _libc.prctl(1, signal.SIGKILL)


def give_way_in_a_full_group() -> None:
    """Have the kernel kill this process, not the larger one that fills the group, as a cluster does with what it runs."""
    with contextlib.suppress(OSError):  # no such file outside Linux
        Path("/proc/self/oom_score_adj").write_text("999")
