"""The processes in which solvers see incidents: a template that has imported everything, and a fork of it for each run.

``python -m opsassay.evals.diagnosis.workers.template`` is the template. Through one socket, its standard input, `workers`
hands it jobs: each is a JSON object with a socket of its own. A job is done by a fork: a process in a session of its own,
in the opaque folder of its job, that writes the answer there. The template kills that session when the process ends, when
it is asked to, and when the runner is gone; it never runs a solver itself, reads no incident and knows no truth.

The answer is one JSON object, ``{"diagnosis": ...}`` or ``{"error": "..."}``. Whatever else happens (exit, signal, a file
that is no JSON) is for the runner to name; it trusts nothing of the process.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import selectors
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.diagnosis import Diagnosis
from opsassay.core.schema.faults import FaultKind
from opsassay.evals.diagnosis.workers.solving import ask_command, solve
from opsassay.evals.diagnosis.workers.sources import solver_of, sources_of
from opsassay.evals.runner.processes import kill_session
from opsassay.solvers.methods.base import METHODS, class_named, method_named
from opsassay.solvers.methods.parameters import plain_parameters, read_parameters
from opsassay.telemetry.datapack import Datapack

INCIDENT_FOLDER, ANSWER, LOG = "incident", "answer.json", "solver.log"
MAX_JOB_BYTES = 2**17
BEGUN = b"begun"
_PR_SET_PDEATHSIG = 1


class WorkerTemplate:
    """Forks a process for every job that comes through *control*; ends with the runner at its other end."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._jobs: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._woken, False)

    def serve(self) -> None:
        """Fork a worker for each job until the parent closes the control socket, then kill all workers."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        self._selector.register(self._control, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    if not self._accept_job():
                        return self._kill_jobs()
                elif key.fileobj == self._woken:
                    self._reap_jobs()
                elif key.data in self._jobs:  # its runner wants it to end, or is gone
                    self._selector.unregister(key.fileobj)
                    kill_session(key.data)

    def _accept_job(self) -> bool:
        """Fork a worker for the next job; return False when the control socket is closed."""
        message, descriptors, _, _ = socket.recv_fds(self._control, MAX_JOB_BYTES, 1)
        if not message:
            return False
        job, payload = socket.socket(fileno=descriptors[0]), json.loads(message)
        for module in payload.get("modules", ()):  # large ones, which must not take of the time of the run
            importlib.import_module(module)
        template = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._close_in_fork()
            job.close()
            _run_alone(payload, template)
        self._jobs[pid] = job
        self._selector.register(job, selectors.EVENT_READ, pid)
        with suppress(OSError):  # its time begins now, not when the template was started
            job.send(BEGUN)
        return True

    def _close_in_fork(self) -> None:
        """Close the template's sockets and signal handlers in a forked worker."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for job in (*self._jobs.values(), self._control):
            job.close()
        os.close(self._woken)
        os.close(self._wake)

    def _reap_jobs(self) -> None:
        """Kill the remaining processes of each ended worker, and send its exit code to the sender of the job."""
        with suppress(BlockingIOError):
            while os.read(self._woken, 4096):
                pass
        for pid in list(self._jobs):
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            kill_session(pid)  # while the ended process still holds its number
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            job = self._jobs.pop(pid)
            with suppress(KeyError):
                self._selector.unregister(job)
            with suppress(OSError):
                job.send(str(code).encode())
            job.close()

    def _kill_jobs(self) -> None:
        """Kill all workers with the processes that they started."""
        for pid in self._jobs:
            kill_session(pid)


def _run_alone(job: dict[str, Any], template: int) -> NoReturn:
    """Run *job* in this forked worker, then exit; *template* is the process id of the parent."""
    code = 1
    try:
        os.setsid()
        _end_with_the_template(template)
        os.chdir(job["folder"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        os.environ.clear()
        os.environ.update(job["environment"])
        sys.path[:] = job["path"]
        sys.argv = [sys.argv[0], job["name"], ANSWER]
        code = main(job)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - nothing of a solver gets out of its process
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(code & 0xFF)


def _end_with_the_template(template: int) -> None:
    """Make Linux kill this process when process *template* ends, or exit if it already has."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != template:
        os._exit(1)


def main(job: dict[str, Any]) -> int:
    """Do *job* on the incident in the current folder, and write the result as JSON; return the exit code."""
    payload: dict[str, Any]
    try:
        payload = _do_job(job)
    except OpsAssayError as error:
        payload = {"error": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever the solver raises is its result, recorded by the runner
        traceback.print_exc()
        payload = {"error": f"{type(error).__name__}: {error}"}
    Path(ANSWER).write_text(json.dumps(payload), encoding="utf-8")
    return 0


def _do_job(job: dict[str, Any]) -> dict[str, Any]:
    """Return the result of *job* by its kind: the description of a method, or a diagnosis."""
    if job["kind"] == "describe":
        return describe_method(job["name"], job["parameters"])
    if job["kind"] == "command":
        return ask_command(job["command"], Path(INCIDENT_FOLDER).absolute())
    incident = Datapack.open(Path(INCIDENT_FOLDER))
    if job["kind"] == "agent":
        return solve(job, incident)
    candidates = incident.candidates()  # before a method has its hands on the files
    answer: Any = method_named(job["name"], job.get("parameters", {})).diagnose(incident)
    if not isinstance(answer, Diagnosis):
        return {"error": f"the answer is not a Diagnosis but {type(answer).__name__}"}
    ranked = {one.service for one in answer.ranking}
    if left_out := [name for name in candidates if ranked and name not in ranked]:
        note = f"left out of the ranking: {', '.join(left_out)}"
        answer = answer.model_copy(update={"notes": (*answer.notes, note)})
    if given := job.get("parameters"):
        answer = answer.model_copy(update={"protocol": {**answer.protocol, "parameters": given}})
    return {"diagnosis": answer.model_dump(mode="json", by_alias=True)}


def describe_method(name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return solver, non-default parameters and source files of the method *name* as JSON-ready data."""
    made = class_named(name)
    method = method_named(name, parameters)
    given = plain_parameters(made, read_parameters(name, made, parameters))
    kinds = getattr(method, "fault_kinds", None)
    solver = solver_of(method).model_copy(
        update={"parameters": given, "fault_kinds": None if kinds is None else tuple(map(FaultKind, kinds))}
    )
    sources = [str(path) for path in sources_of(method)]
    return {"solver": solver.model_dump(mode="json"), "parameters": given, "sources": sources}


def preload() -> None:
    """Import all modules that methods need, before workers are forked."""
    for name in METHODS.builtin_names():
        METHODS.load(name)
    for module in ("polars", "numpy"):
        importlib.import_module(module)


if __name__ == "__main__":
    preload()
    # polars has three threads of its own from its import on, which sleep; nothing of polars runs in the template, so that
    # no fork comes while one of them holds a lock, and its allocator looks after itself in a fork
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)
    WorkerTemplate(socket.socket(fileno=0)).serve()
