"""The local substrate as commands see it: deploy a system, talk to its supervisor, remove it, clear what was left."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, get_args

from opsassay.core import errors
from opsassay.core.errors import LostError, NotFoundError, StartError, UserError
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import IsolationLevel, System
from opsassay.telemetry.otlp.client import ReceiverControl
from opsassay.testbed.core.event import InjectionEvent, as_event
from opsassay.testbed.core.fleet import require_own_rate
from opsassay.testbed.core.observer_log import forget_observer_log, observer_log
from opsassay.testbed.core.state import (
    MARKER,
    SystemState,
    acquire_lock,
    all_states,
    clear_leftovers,
    marked_processes,
    release_lock,
)
from opsassay.testbed.core.status import SystemStatus
from opsassay.testbed.core.substrate import LOCAL, Capabilities, require_settings
from opsassay.testbed.injection.journal import Journal
from opsassay.testbed.kernel.namespaces import rooms_of, who_is_in
from opsassay.testbed.substrates.local.capabilities import level_for, machine, probe
from opsassay.testbed.substrates.local.warm import WarmSupervisor, fork_supervisor
from opsassay.testbed.workload.processes import log_tail

if TYPE_CHECKING:
    import polars as pl

    from opsassay.testbed.substrates.local.probes import LocalProbes

START_TIMEOUT_S = 90.0
COMPOSE_TIMEOUT_S = 600.0
"""Images may have to be built and fetched."""
STOP_TIMEOUT_S = 30.0
WAKE_UP_S = 0.3
LAST_WORDS_S = 10.0

_started: dict[Path, subprocess.Popen[bytes] | WarmSupervisor] = {}
"""Supervisors that this process started; others are reaped by whoever did."""


@dataclass(frozen=True)
class LocalSystem:
    """A handle on a running local system."""

    state: SystemState

    def command(self, op: str, **fields: Any) -> dict[str, Any]:
        """Send the command *op* with *fields* to the supervisor; return its answer, or raise its error.

        Raises LostError when the supervisor is gone.
        """
        for event in self.stream(op, **fields):
            return event
        deadline = time.monotonic() + LAST_WORDS_S
        while self.state.running() and time.monotonic() < deadline:
            time.sleep(0.1)  # it says why when it has ended what it started
        reason = self.state.why_it_failed() or "see `opsassay system status`"
        raise LostError(f"System {self.state.name} hung up without an answer: {reason}")

    def stream(self, op: str, over: Event | None = None, **fields: Any) -> Iterator[dict[str, Any]]:
        """Send the command *op* with *fields*, yield its events; closing the iterator, or setting *over*, ends it."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.connect(str(self.state.socket))
                connection.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
                for line in _lines(connection, over):
                    event = json.loads(line)
                    if "error" in event:
                        raise _from_wire(event)
                    yield event
        except (ConnectionError, FileNotFoundError) as error:
            reason = self.state.why_it_failed() or "see `opsassay system status`"
            raise LostError(f"System {self.state.name} is gone: {reason}") from error

    @property
    def receiver(self) -> ReceiverControl:
        """The control of the system's telemetry receiver."""
        return ReceiverControl(self.state.receiver_dir)

    def ledger(self, since_ns: int) -> pl.DataFrame:
        """Return what faults caused since *since_ns* (UTC), with the columns of `read_ledger`."""
        from opsassay.testbed.recording.ledger import (
            read_ledger,  # tables bring threads; who enters a namespace must have one
        )

        return read_ledger(self.state.ledger_dir, since_ns)

    def status(self) -> SystemStatus:
        """Return the status that the supervisor reports; raises LostError when it is gone."""
        return SystemStatus.model_validate(self.command("status"))

    def definition(self) -> System:
        """Return the definition of the running system."""
        return System.model_validate(self.command("system")["definition"])

    def require(self, plan: FaultPlan, source: Path | None = None) -> None:
        """Raise an error when *plan* cannot be injected here; ConfigError if it is from the file *source*."""
        from opsassay.testbed.injection.preconditions import require
        from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES

        require(self.definition(), plan, REPERTOIRES[self._level()].refusal, source=source)

    def _level(self) -> IsolationLevel:
        """Return the isolation level that this system runs on."""
        isolation = self.status().isolation
        return next(level for level in get_args(IsolationLevel) if level == isolation)

    def inject(self, plan: FaultPlan, over: Event | None = None) -> Iterator[InjectionEvent]:
        """Inject *plan* and yield its events; closing the iterator, or setting *over*, undoes it."""
        for line in self.stream("inject", over, plan=plan.model_dump(mode="json")):
            yield as_event(line)

    def operate(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out the operation *verb* with *arguments* and return its result; see `operations.py`."""
        result: dict[str, Any] = self.command("operate", verb=verb, arguments=dict(arguments))["result"]
        return result

    def keep_load_log(self, path: Path) -> None:
        """Copy the log of the user's load command to *path*, now and again when it has ended."""
        self.command("keep load log", path=str(path.absolute()))

    def probes(self, protected: Sequence[str] = ()) -> LocalProbes:
        """Return the probes of this system, with requests to the services *protected* (default: its entries)."""
        from opsassay.testbed.substrates.local.probes import LocalProbes

        return LocalProbes(self, protected)

    def flush(self) -> None:
        """Make every process send its queued telemetry to the receiver."""
        self.command("flush")

    def set_rate(self, rate_rps: float) -> float:
        """Change the rate of the load to *rate_rps*; return the former rate."""
        former: float = self.command("rate", rate_rps=rate_rps)["former"]
        return former


class LocalSubstrate:
    """Runs systems as processes on this machine."""

    name = "local"
    shared = False

    @classmethod
    def with_settings(cls, settings: Mapping[str, str]) -> LocalSubstrate:
        """Return the substrate; it has no settings, so any in *settings* raises UserError."""
        require_settings(cls.name, settings)
        return cls()

    def deploy(
        self, system: System, name: str, *, seed: int = 0, rate_rps: float | None = None, owned: bool = False,
        isolation: str | None = None, on_progress: Callable[[SystemStatus], None] | None = None,
    ) -> LocalSystem:  # fmt: skip
        """Start *system* under *name*, wait until everything is ready, and return it; raises UserError, StartError.

        An *owned* system ends with the process that deployed it, however that ends. *isolation* None is the best level
        that this machine has; the others are those of `Substrate.deploy`.
        """
        level = level_for(system, isolation)
        if rate_rps is not None:
            require_own_rate(system)
        state = SystemState.for_system(name)
        if (lock := acquire_lock(state)) is None:
            raise UserError(
                f"A system named {name!r} is already running; stop it with `opsassay system down {name}` or choose --name."
            )
        running = LocalSystem(state)
        try:
            clear_leftovers(state)
            state.dir.mkdir(parents=True, mode=0o700)
            order = {
                "name": name,
                "system": system.model_dump(mode="json"),
                "seed": seed,
                "rate_rps": rate_rps,
                "isolation": level,
                "kernel_can": sorted(machine().impairments),
                "machine": machine().as_dict(),
                "owner_pid": os.getpid() if owned else None,
                "lock_fd": lock,
            }
            process = _start_supervisor(state, order)
            try:
                limit_s = COMPOSE_TIMEOUT_S if system.compose is not None else START_TIMEOUT_S
                self._wait_ready(running, process, on_progress, limit_s)
            except BaseException:
                process.kill()
                _reap(state)
                clear_leftovers(state)
                raise
        except BaseException:
            release_lock(state, lock)
            raise
        os.close(lock)  # the supervisor has its own hold of it
        return running

    def _wait_ready(
        self,
        running: LocalSystem,
        process: subprocess.Popen[bytes] | WarmSupervisor,
        on_progress: Callable[[SystemStatus], None] | None,
        limit_s: float,
    ) -> None:
        """Wait until *running* is ready; call *on_progress* meanwhile; StartError if *process* ends or late."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise self._start_failure(running.state, process.returncode or 0)
            if running.state.socket.exists():
                try:
                    status = running.status()
                except LostError:
                    continue  # it is about to end, and the poll above will say how
                if on_progress:
                    on_progress(status)
                if status.phase == "ready":
                    return
            time.sleep(0.02)
        raise StartError(f"System {running.state.name} is not ready after {limit_s:g} s.", _logs(running.state))

    def _start_failure(self, state: SystemState, status: int) -> StartError:
        """Return the error for a supervisor that ended with *status*: its reason, or the end of its log."""
        if reason := state.why_it_failed():
            message, _, tail = reason.partition("\nLast lines of its log:\n")
            return StartError(message, tail)
        return StartError(f"The supervisor of {state.name} ended with status {status}.", _logs(state))

    @contextmanager
    def deployed(
        self, system: System, name: str, *, seed: int = 0, rate_rps: float | None = None, isolation: str | None = None
    ) -> Iterator[LocalSystem]:
        """Run *system*, as `deploy` does, during the block, and yield it; it also ends with this process."""
        running = self.deploy(system, name, seed=seed, rate_rps=rate_rps, isolation=isolation, owned=True)
        try:
            yield running
        finally:
            with suppress(NotFoundError, LostError):  # what ended it has been said
                self._end(name)
            clear_if_dead(running.state)

    def running(self, name: str) -> LocalSystem:
        """Return the running system *name*; raises NotFoundError."""
        state = SystemState.for_system(name)
        if not state.dir.exists() or not state.running():
            alive = [s.name for s in all_states() if s.running()]
            raise NotFoundError("running system", name, alive, "Start one with `opsassay system up SYSTEM`.")
        return LocalSystem(state)

    def remove(self, name: str) -> list[str]:
        """Stop the system *name* and wait; return a sentence on each foreign process in its network namespaces."""
        rooms = rooms_of(process.pid for process in marked_processes(SystemState.for_system(name)))
        self._end(name)
        return [
            f"Process {pid} ({stranger}), which OpsAssay did not start, keeps a network namespace of {name}; end it."
            for pid, stranger in who_is_in(rooms)
        ]

    def _end(self, name: str) -> None:
        """Stop the system *name*, wait until its supervisor has ended, and remove what is left."""
        system = self.running(name)
        system.command("down")
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while system.state.running() and time.monotonic() < deadline:
            time.sleep(0.02)
        _reap(system.state)
        clear_if_dead(system.state)

    def names(self) -> list[str]:
        """Return the names of the running systems."""
        return [state.name for state in all_states() if state.running()]

    def require(
        self,
        system: System,
        plan: FaultPlan,
        isolation: str | None = None,
        *,
        source: Path | None = None,
        within: str = "",
    ) -> None:
        """Raise an error when *plan* could not be injected into a new *system*; as `Substrate.require`."""
        from opsassay.testbed.injection.preconditions import require
        from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES

        require(system, plan, REPERTOIRES[level_for(system, isolation)].refusal, source=source, within=within)

    def logs(self, name: str) -> dict[str, str]:
        """Return {process name: log text} of the system *name*, also of one that failed; raises NotFoundError."""
        state = SystemState.for_system(name)
        files = [state.dir / "supervisor.log", *sorted((state.dir / "logs").glob("*.log"))]
        found = {path.stem: path.read_text(errors="replace") for path in files if path.exists()}
        if not found:
            hint = "Start one with `opsassay system up SYSTEM`."
            raise NotFoundError("system with logs", name, [each.name for each in all_states()], hint)
        return found | observer_log(self.name, name)

    def status(self) -> list[SystemStatus]:
        """Return the status of each system; those with a killed supervisor are removed, phase `cleared`."""
        _reap_ended()  # one that was killed is collected, not left as a zombie
        rows = []
        for state in all_states():
            pending, reason = Journal(state.journal).pending(), state.why_it_failed()
            ended = clear_if_dead(state)
            if ended is not None:
                undone = [entry["plan"]["fault"] for entry in pending]
                rows.append(
                    SystemStatus(
                        name=state.name,
                        phase="cleared",
                        processes_ended=ended,
                        faults_undone=tuple(undone),
                        reason=reason,
                    )
                )
            else:
                rows.append(_status_of(state))
        return rows

    def capabilities(self) -> Capabilities:
        """Return which isolation levels and kernel abilities this machine has, and why not others."""
        levels: dict[str, dict[str, Any]] = {
            level.name: {"available": level.available, "reason": level.reason} for level in probe().values()
        }
        return Capabilities(levels, machine().as_dict())


def _start_supervisor(state: SystemState, order: dict[str, Any]) -> subprocess.Popen[bytes] | WarmSupervisor:
    """Start a detached supervisor with *order*, forked or fresh, and return it; it takes over the lock of *state*."""
    with (state.dir / "supervisor.log").open("wb") as log:
        if (forked := fork_supervisor(state, order, log)) is not None:
            _started[state.dir] = forked
            return forked
        process = subprocess.Popen(
            [sys.executable, "-m", "opsassay.testbed.substrates.local.supervisor"],
            stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd="/",
            pass_fds=(order["lock_fd"],), env={**os.environ, MARKER: str(state.dir)},
        )  # fmt: skip
    _started[state.dir] = process
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as order_in:  # how it ended is for whoever waits for it to say
        order_in.write(json.dumps(order).encode())
    return process


def _status_of(state: SystemState) -> SystemStatus:
    """Return the status of the system of *state*; "starting or stopping" if its supervisor does not answer."""
    try:
        return LocalSystem(state).status()
    except LostError:
        return SystemStatus(name=state.name, phase="starting or stopping")


def clear_if_dead(state: SystemState) -> int | None:
    """Remove what a dead supervisor left; return how many processes were killed, None while it is alive."""
    if (lock := acquire_lock(state)) is None:
        return None
    try:
        _reap(state)  # nobody holds its lock, so it has ended, whoever ended it
        forget_observer_log(LOCAL, state.name)
        return clear_leftovers(state)
    finally:
        release_lock(state, lock)


def _lines(connection: socket.socket, over: Event | None) -> Iterator[bytes]:
    """Yield lines of bytes from *connection* until it ends or *over* is set, at intervals noticing Ctrl-C."""
    connection.settimeout(WAKE_UP_S)
    pending = b""
    while True:
        try:
            chunk = connection.recv(65536)
        except TimeoutError:
            if over is not None and over.is_set():
                return
            continue
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        yield from lines


def _from_wire(event: dict[str, Any]) -> errors.OpsAssayError:
    """Return the error of *event* {kind, error} as a RefusedError, UserError or, for all others, OperationError."""
    user = issubclass(getattr(errors, event["kind"], errors.OperationError), UserError)
    refused = event["kind"] == "RefusedError"
    return (errors.RefusedError if refused else UserError if user else errors.OperationError)(event["error"])


def _reap(state: SystemState) -> None:
    """Wait for the supervisor of *state*, if this process started it, so that no zombie is left."""
    if (process := _started.pop(state.dir, None)) is not None:
        process.wait()


@atexit.register
def _reap_ended() -> None:
    """Collect the exit statuses of ended supervisors of this process; called at exit."""
    for process in _started.values():
        process.poll()


def _logs(state: SystemState) -> str:
    """Return the last lines of the log of *state*'s supervisor."""
    return log_tail(Path(state.dir / "supervisor.log"))
