"""The runner's side of `template`: starts the template process once, sends it jobs, and enforces time limits."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsassay.core.errors import LostError, UserError
from opsassay.evals.diagnosis.workers.template import BEGUN, MAX_JOB_BYTES

PASSED_ON = ("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "SYSTEMROOT")
"""Environment variables that workers inherit."""

_STEADY = {"PYTHONHASHSEED": "0", "POLARS_MAX_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
"""One thread each: float sums depend on the number of threads, and equal inputs must give equal bytes."""


class Workers:
    """A pool of processes for jobs, all forked from one template; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._template: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def run(self, job: Mapping[str, Any], folder: Path, timeout_s: float, variables: Mapping[str, str] = {}) -> int:
        """Run *job* in a process of its own, with *folder* as its home; return the exit code (negative: signal).

        *variables* are added to its environment. Raises TimeoutError when it was killed after *timeout_s*, LostError
        when the template process ended, UserError for a job that is too large.
        """
        environment = {**_clean_environment(), "HOME": str(folder), "TMPDIR": str(folder), **variables}
        path = [entry for entry in sys.path if entry]
        message = json.dumps({**job, "folder": str(folder), "path": path, "environment": environment}).encode()
        if len(message) > MAX_JOB_BYTES:
            raise UserError(f"The job is larger than {MAX_JOB_BYTES} bytes; shorten the configuration of the solver.")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours:
            with theirs:
                self._send_job(message, theirs)
            reply = ours.recv(64)
            if reply == BEGUN:
                ours.settimeout(timeout_s)
                try:
                    reply = ours.recv(64)
                except TimeoutError:
                    ours.shutdown(socket.SHUT_WR)  # which tells the template to kill it
                    ours.settimeout(None)
                    ours.recv(64)
                    raise TimeoutError from None
        if not reply:
            raise LostError("The process of the solver went away with its template; run it again.")
        return int(reply)

    def close(self) -> None:
        """Stop the template process and all its jobs."""
        with self._lock:
            self._close_template()

    def _send_job(self, message: bytes, job: socket.socket) -> None:
        """Send *message* and the socket *job* to the template process, which is started if it is not running."""
        with self._lock:
            if self._template is None or self._template.poll() is not None:
                self._close_template()
                self._start_template()
            assert self._control is not None
            socket.send_fds(self._control, [message], [job.fileno()])

    def _start_template(self) -> None:
        """Start the template process, which imports the methods once and forks a worker per job."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._template = subprocess.Popen(
                [sys.executable, "-m", "opsassay.evals.diagnosis.workers.template"],
                cwd="/",
                env={**_clean_environment(), "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
                stdin=theirs.fileno(),
                start_new_session=True,
            )

    def _close_template(self) -> None:
        """Close the control socket, which makes the template exit, and wait for that."""
        template, control, self._template, self._control = self._template, self._control, None, None
        if control is not None:
            control.close()
        if template is not None:
            template.wait()


_shared = Workers()
atexit.register(_shared.close)


def shared_workers() -> Workers:
    """Return the worker pool of this process; its template starts with the first job and ends with the process."""
    return _shared


def _clean_environment() -> dict[str, str]:
    """Return the environment variables of workers: inherited PASSED_ON, and fixed ones for reproducible results."""
    return {**{name: os.environ[name] for name in PASSED_ON if name in os.environ}, **_STEADY}
