"""What is measured here leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def _own_network() -> tuple[int, list[str]]:
    """Return the number of this process's network namespace and the interfaces in it."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return Path("/proc/self/ns/net").stat().st_ino, sorted(line.split(":")[0] for line in lines[2:])


def _groups() -> list[str]:
    """Return the control groups that this process made; others may test beside it."""
    ours = (f"/opsassay-kernel-test-{os.getpid()}", f"/opsassay-probe-{os.getpid()}")
    return sorted(path for path, _, _ in os.walk("/sys/fs/cgroup") if any(name in path for name in ours))


@pytest.fixture(autouse=True)
def nothing_left():
    """The machine's own network namespace and its control groups are after each test what they were before."""
    network = _own_network()
    yield
    assert _own_network() == network
    assert _groups() == []
