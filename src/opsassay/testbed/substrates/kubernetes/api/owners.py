"""Who made an object on a cluster, so that what a killed process left there is known as nobody's."""

from __future__ import annotations

import os
import socket

import psutil

from opsassay.testbed.substrates.kubernetes.api.client import Object

OWNER = "opsassay/owner"
"""Annotation of what ends with the process that it names: host, pid and start time."""


def this_process() -> str:
    """Return "HOST:PID:START", which identifies this process among all machines."""
    process = psutil.Process(os.getpid())
    return f"{socket.gethostname()}:{process.pid}:{process.create_time():.2f}"


def owner_is_dead(item: Object) -> bool:
    """Return whether the owner annotation of *item* names a process of this machine that has ended."""
    owner = (item["metadata"].get("annotations") or {}).get(OWNER)
    if owner is None:
        return False
    host, pid, created = owner.rsplit(":", 2)
    if host != socket.gethostname():
        return False
    try:
        return abs(psutil.Process(int(pid)).create_time() - float(created)) > 0.1
    except psutil.NoSuchProcess:
        return True
