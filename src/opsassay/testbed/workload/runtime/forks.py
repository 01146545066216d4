"""What every process of a system does first."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
from pathlib import Path

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends (Linux only)."""
    if _libc is not None:
        _libc.prctl(1, signal.SIGKILL)


def give_way_in_a_full_group() -> None:
    """Raise this process's oom_score_adj, so that the out-of-memory killer chooses it before others."""
    with contextlib.suppress(OSError):  # no such file outside Linux
        Path("/proc/self/oom_score_adj").write_text("999")
