"""Leases: at most one worker runs a planned run ("cell"), so that workers on several machines can share a store.

A lease is a file, ``ROOT/leases/<cell>.json``, with its owner, who updates its time every few seconds (the heartbeat).
When heartbeats stop, or the owner's process has ended, another worker may take it over. The former owner then cannot
write a result, since results are written under the store's lock and only with the lease.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from opsassay.core.errors import LostError, OperationError, OpsAssayError
from opsassay.core.schema.locks import folder_lock
from opsassay.core.untrusted import MAX_FILE_BYTES, read_plain
from opsassay.telemetry.clock import boot_id

LEASES = "leases"
HEARTBEAT_S = 5.0
"""How often a holder renews its lease."""
EXPIRED_S = 30.0
"""A lease may be taken over after so many seconds, six heartbeats, without one."""


class LeasedError(OperationError):
    """Another process runs this cell at present."""


class LeaseLostError(LostError):
    """The heartbeat was late, and another worker has taken this cell over."""


@dataclass(frozen=True)
class LeaseTimes:
    """How often a lease is renewed, and after how long without renewal it may be taken over; seconds."""

    heartbeat_s: float = HEARTBEAT_S
    expired_s: float = EXPIRED_S


class Lease:
    """The right to run one *cell* of the store at *root*, renewed by a thread until it is released or lost.

    *took_over*: a former owner's attempt did not end.
    """

    def __init__(self, root: Path, cell: str, times: LeaseTimes, *, took_over: bool, owner: str) -> None:
        self.took_over, self._root, self._owner, self._times = took_over, root, owner, times
        self._path = _path_of_lease(root, cell)
        self._lost, self._released = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._renew_until_released, name=f"lease-{cell}", daemon=True)
        self._thread.start()

    @property
    def lost(self) -> bool:
        """Whether another process has taken over the lease."""
        return self._lost.is_set()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the store's lock in the with block, to write a result; raises LeaseLostError if the lease was taken over."""
        with folder_lock(self._root):
            if _read_lease(self._path).get("owner") != self._owner:
                self._lost.set()
                raise LeaseLostError(
                    "The cell was taken over by another worker, since the heartbeat did not come in time."
                )
            yield

    def release(self) -> None:
        """Stop renewing the lease and delete its file, unless another process has taken it over."""
        self._released.set()
        self._thread.join()
        with suppress(LeaseLostError), self.held():
            self._path.unlink()

    def _renew_until_released(self) -> None:
        """Update the lease file's time at every heartbeat; mark the lease as lost when another owner has it."""
        while not self._released.wait(self._times.heartbeat_s):
            with suppress(OSError):
                if _read_lease(self._path).get("owner") != self._owner:
                    self._lost.set()
                    return
                os.utime(self._path)


def take_lease(root: Path, cell: str, times: LeaseTimes = LeaseTimes()) -> Lease:
    """Acquire and return the lease of *cell* (id of a planned run) in the store *root*; LeasedError if another holds it.

    A lease may be taken over when its process ended, or its heartbeat is older than *times* allow.
    """
    path, owner = _path_of_lease(root, cell), secrets.token_hex(8)
    root.mkdir(parents=True, exist_ok=True)
    with folder_lock(root):
        path.parent.mkdir(exist_ok=True)
        held = _read_lease(path)
        if held and not _may_take_over(held, path, times):
            raise LeasedError(f"{held.get('host')}, process {held.get('pid')}, runs this cell now.")
        holder = {
            "owner": owner, "host": socket.gethostname(), "boot_id": boot_id(), "pid": os.getpid(),
            "process_started": psutil.Process().create_time(), "taken_ns": time.time_ns(),
        }  # fmt: skip
        partial = path.with_suffix(f".{owner}")
        partial.write_text(json.dumps(holder) + "\n", encoding="utf-8")
        partial.replace(path)
    return Lease(root, cell, times, took_over=bool(held), owner=owner)


def is_held(root: Path, cell: str, times: LeaseTimes = LeaseTimes()) -> bool:
    """Return whether a live process holds the lease of *cell* in the store *root*; *times* say when one expires."""
    path = _path_of_lease(root, cell)
    held = _read_lease(path)
    try:
        return bool(held) and not _may_take_over(held, path, times)
    except OSError:  # given back just now
        return False


def is_alive(holder: dict[str, Any]) -> bool:
    """Return whether the process of *holder*, its pid and process_started, is running on this machine."""
    try:
        process = psutil.Process(holder["pid"])
        return bool(process.create_time() == holder["process_started"] and process.status() != psutil.STATUS_ZOMBIE)
    except (KeyError, psutil.Error):
        return False


def _may_take_over(lease: dict[str, Any], path: Path, times: LeaseTimes) -> bool:
    """Return whether *lease*, read from *path*, is abandoned: its heartbeat too old, or its local process ended."""
    if lease.get("host") == socket.gethostname() and (lease.get("boot_id") != boot_id() or not is_alive(lease)):
        return True
    return time.time() - path.stat().st_mtime > times.expired_s


def _path_of_lease(root: Path, cell: str) -> Path:
    """Return the path of the lease file of *cell* in the store at *root*."""
    return root / LEASES / f"{cell}.json"


def _read_lease(path: Path) -> dict[str, Any]:
    """Return the content of the lease file *path*, {} when it cannot be read."""
    try:
        held = json.loads(read_plain(path, MAX_FILE_BYTES))
    except (OSError, OpsAssayError, ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}
