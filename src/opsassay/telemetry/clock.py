"""The boot of the machine to which a monotonic time belongs."""

from __future__ import annotations

from pathlib import Path

import psutil


def boot_id() -> str:
    """Return the kernel's id of the current boot; monotonic times of different boots must not be compared."""
    path = Path("/proc/sys/kernel/random/boot_id")
    return path.read_text(encoding="ascii").strip() if path.exists() else f"boot-{int(psutil.boot_time())}"
