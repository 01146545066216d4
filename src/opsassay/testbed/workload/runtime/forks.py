"""What every process of a system does first."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
from pathlib import Path

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux only)."""
    if _libc is not None:
        _libc.prctl(1, signal.SIGKILL)


def give_way_in_a_full_group() -> None:
    """Make the out-of-memory killer prefer this process, as a cluster does with its workloads."""
    with contextlib.suppress(OSError):  # no such file outside Linux
        Path("/proc/self/oom_score_adj").write_text("999")
