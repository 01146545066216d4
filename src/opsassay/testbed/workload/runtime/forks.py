"""What every process of a system does first."""

from __future__ import annotations

import ctypes
import signal
import sys

_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere the management socket ends it)."""
    if _libc is not None:
        _libc.prctl(1, signal.SIGKILL)
