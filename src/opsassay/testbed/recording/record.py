"""Records one incident of a running system: warm-up, normal window, fault, undo, recovery; then seals it as a datapack."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from opsassay import __version__
from opsassay.core.draws import derived_random, new_secret
from opsassay.core.errors import NotNormalError, OperationError, UserError
from opsassay.core.schema.incident import Alert, EffectCheck, Fault, FaultPlan, Incident, RootLabel, Truth, Window
from opsassay.core.schema.progress import SILENT, Progress, piece
from opsassay.core.schema.run_folder import LOAD_LOG
from opsassay.core.schema.system import System
from opsassay.telemetry.clock import boot_id
from opsassay.telemetry.content import opaque_id, write_datapack
from opsassay.telemetry.leaks import leak_notes
from opsassay.telemetry.otlp.counts import SessionStats
from opsassay.telemetry.otlp.forwarding import Forwarder
from opsassay.telemetry.otlp.seal import decode_spool, split_windows
from opsassay.telemetry.tree import Tree
from opsassay.testbed.core.state import all_states
from opsassay.testbed.core.status import SystemStatus
from opsassay.testbed.core.substrate import Receiver, RunningSystem
from opsassay.testbed.injection.unexpected_exits import sentences
from opsassay.testbed.recording import machine
from opsassay.testbed.recording.alerts import alerts, describe
from opsassay.testbed.recording.backends import require_backends, with_backends
from opsassay.testbed.recording.baseline import FreeCores, measure, user_requests
from opsassay.testbed.recording.machine import Look, MachineWatch

USUAL_SHARE = 2 / 3
"""The first part of the normal window tells the alert rules what is usual."""
PRE_ROLL_S = (4.0, 12.0)
UNALERTED_JITTER_S = 8.0
EARLY_END_S = (0.1, 1.5)
"""The abnormal window ends a little before the fault does, so that its end is no exact instant of the truth."""
SETTLE_S = 1.0
SPOOL_PREFIX = ".recording-"


SpanCheck = Callable[[pl.DataFrame, Window], str]
"""Takes spans (table traces) and a window of them; returns in words why they are no normal window, '' when they are one."""


@dataclass(frozen=True)
class Schedule:
    """How long each part of a recording takes, seconds."""

    warmup_s: float = 8.0
    normal_s: float = 60.0
    abnormal_s: float = 60.0


@dataclass(frozen=True)
class _Outcome:
    """What the last event of an injection says."""

    faults: tuple[Fault, ...]
    roots: tuple[RootLabel, ...]
    effects: tuple[EffectCheck, ...]
    recovered: bool
    notes: tuple[str, ...]

    @property
    def start_ns(self) -> int:
        """When the first fault began, in ns."""
        return min(fault.start_ns for fault in self.faults)

    @property
    def end_ns(self) -> int:
        """When the first fault ended, in ns: from then on not all faults act."""
        return min(fault.end_ns for fault in self.faults)


@dataclass(frozen=True)
class _Captured:
    """What a recording session left: its *spool*, the stretch that tells what is usual, and what happened.

    *planned* is when the fault was to act.
    """

    spool: Path
    usual: Window
    planned: Window
    outcome: _Outcome
    stats: SessionStats
    looks: tuple[Look, ...]
    notes: tuple[str, ...] = ()


def spool_of(tree: Tree, id_: str) -> Path:
    """Return the folder that holds the telemetry of the incident *id_* while it is recorded."""
    return tree.root / f"{SPOOL_PREFIX}{id_}"


def check_output(tree: Tree) -> None:
    """Create the folder of *tree*, and check that it can be written; raises UserError."""
    try:
        tree.root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=tree.root) as probe:
            probe.write(b"\0")
            probe.flush()
    except OSError as error:
        raise UserError(f"Cannot write to {tree.root}: {error.strerror}; choose another folder with -o.") from error


def record(
    running: RunningSystem,
    system: System,
    plan: FaultPlan,
    tree: Tree,
    schedule: Schedule,
    *,
    secret: str | None = None,
    id_: str | None = None,
    otlp: str | None = None,
    halvings: int | None = None,
    steady: SpanCheck | None = None,
    spool: Path | None = None,
    progress: Progress = SILENT,
) -> str:
    """Record one incident with *plan* on the *running* system into *tree* and return its id.

    The windows' ends, and the id if *id_* is None, are drawn from *secret*, 32 hexadecimal digits that the truth
    keeps; None: a new one. The normal window is judged before the fault is injected. If *halvings* is None, an
    objection to it becomes a note of the truth; if it is a number, the load is halved and the window recorded
    again, at most so often, and then NotNormalError is raised with nothing broken or written. *steady* may object
    to the spans of a healthy window. A plan that cannot be carried out is refused before anything else
    (NotFoundError, RefusedError, UserError). Truth is written first, then the whole incident; on any other end
    neither is, and a note on the exception names the folder with the telemetry so far. If *spool* is given, the
    telemetry is in that folder meanwhile, which the caller removes after a failure, and no note names it. With *otlp*,
    telemetry is also sent to that OTLP/HTTP receiver; the truth notes what it did not take.
    """
    plan = plan.model_copy(update={"duration_s": schedule.abnormal_s})
    running.require(plan)
    require_backends(system)
    check_output(tree)
    secret = secret or new_secret()
    id_ = id_ or opaque_id(f"{secret} {time.time_ns()}")
    kept, notes = spool is None, list[str]()
    spool = spool or spool_of(tree, id_)
    while True:
        try:
            captured = _capture(
                running,
                plan,
                spool,
                schedule,
                progress,
                otlp,
                refuses=halvings is not None,
                steady=steady,
                keeps_spool=kept,
            )
            break
        except NotNormalError as error:
            if not halvings or running.definition().load.command:
                raise
            halvings -= 1
            notes.append(_halve_load(running, error))
            progress.advanced("normal window", f"{notes[-1]}; it is recorded again")
    captured = replace(captured, notes=(*notes, *captured.notes))
    _seal(id_, captured, running, system, tree, secret)
    shutil.rmtree(captured.spool, ignore_errors=True)
    return id_


def _halve_load(running: RunningSystem, error: NotNormalError) -> str:
    """Halve the rate of user requests; return a note with the new rate and the objection of *error*."""
    former = running.status().rate_rps
    assert former is not None, "the substrate that was judged by it knows its load"
    running.set_rate(former / 2)
    return f"the load was halved to {former / 2:g} requests/s: {error.objection}"


def _capture(
    running: RunningSystem,
    plan: FaultPlan,
    spool: Path,
    schedule: Schedule,
    progress: Progress,
    otlp: str | None,
    *,
    refuses: bool,
    steady: SpanCheck | None,
    keeps_spool: bool,
) -> _Captured:
    """Run warm-up, normal window, fault and recovery by *schedule* in one recording session; return what was captured.

    Its telemetry is in *spool*, and also sent to *otlp* if given. With *refuses*, a normal window with an objection
    raises NotNormalError before the fault; *steady* adds objections by spans. After a failure *spool* stays only if
    *keeps_spool*.
    """
    with MachineWatch(running.status().name, _running_systems) as watch:
        with piece(progress, "warm-up", schedule.warmup_s):
            time.sleep(schedule.warmup_s)
        with _session(running, spool, keeps_spool=keeps_spool) as finish, _sent_on(running, spool, otlp) as forwarder:
            start_ns = time.time_ns()
            with piece(progress, "normal window", schedule.normal_s), FreeCores() as free:
                time.sleep(schedule.normal_s)
            usual = Window(start_ns=start_ns, end_ns=start_ns + int(schedule.normal_s * USUAL_SHARE * 1e9))
            begin_ns = start_ns + int(schedule.normal_s * 1e9)
            planned = Window(start_ns=begin_ns, end_ns=begin_ns + int(schedule.abnormal_s * 1e9))
            objection = _objection(running, spool, usual, free, steady)
            if objection and refuses:
                raise NotNormalError(objection)
            outcome = _break(running, plan, schedule, progress)
            with piece(progress, "sealing", SETTLE_S):
                running.flush()
                time.sleep(SETTLE_S)
                stats = finish()
    notes = [*(forwarder.sender.notes() if forwarder is not None else ())]
    if objection:
        notes.append(f"the system was not normal before the fault: {objection}")
    return _Captured(spool, usual, planned, outcome, stats, tuple(watch.looks), tuple(notes))


def _objection(
    running: RunningSystem, spool: Path, baseline_window: Window, free: FreeCores, steady: SpanCheck | None
) -> str:
    """Return why the telemetry in *spool*, or its spans by *steady*, is not that of a healthy system; '' when it is.

    *baseline_window* is its first part; *free* tells idle processors.
    """
    running.receiver.refresh(spool.name)
    system = running.definition()
    window, slo, status = Window(start_ns=baseline_window.start_ns, end_ns=time.time_ns()), system.slo, running.status()
    cores = free.mean if status.cores is None else None
    frames = decode_spool(spool)
    seen = measure(
        frames,
        slo,
        window,
        reference=baseline_window,
        rate_rps=status.rate_rps,
        free_cores=cores,
        seen_at=system.seen_at(),
    )
    return seen.objection(slo) or (steady(frames["traces"], window) if steady is not None else "")


@contextmanager
def _sent_on(running: RunningSystem, spool: Path, url: str | None) -> Iterator[Forwarder | None]:
    """Forward new telemetry in *spool* to the OTLP receiver at *url* during the block; None: do nothing."""
    if url is None:
        yield None
        return
    with Forwarder(spool, url, lambda: running.receiver.refresh(spool.name)) as forwarder:
        yield forwarder


def _running_systems() -> list[str]:
    """Return the names of the local systems that run now."""
    return [state.name for state in all_states() if state.running()]


def _seal(id_: str, captured: _Captured, running: RunningSystem, system: System, tree: Tree, secret: str) -> None:
    """Write truth, ledger and datapack of incident *id_* from *captured* into *tree*; windows are drawn by *secret*."""
    chance = derived_random(secret, "windows")
    frames, start_ns, outcome = decode_spool(captured.spool), captured.usual.start_ns, captured.outcome
    # How long it took to inject and to undo says what was injected: what was planned is the same for every fault.
    end_ns = min(outcome.end_ns, captured.planned.end_ns) - int(chance.uniform(*EARLY_END_S) * 1e9)
    frames, read_notes = with_backends(frames, system, Window(start_ns=start_ns, end_ns=end_ns))
    fired = alerts(frames["traces"], frames["metrics"], system.slo, captured.usual, end_ns)
    boundary_ns = _boundary(fired, captured, chance)
    reported = [alert for alert in fired if alert.time_ns >= boundary_ns]
    status, commanded = running.status(), bool(system.load.command)
    incident = Incident(
        id=id_,
        system=system.system,
        normal=Window(start_ns=start_ns, end_ns=boundary_ns),
        abnormal=Window(start_ns=boundary_ns, end_ns=end_ns),
        alerts=tuple(reported),
        description=describe(reported),
        provenance={"recorder": f"opsassay {__version__}", "isolation": status.isolation, "boot_id": boot_id()},
    )
    notes = _notes(captured, status.unexpected_exits, early_alerts=len(fired) - len(reported))
    notes += (*read_notes, *([unseen(system, frames["traces"])] if commanded else ()))
    truth = _truth(id_, system, outcome, status.isolation, notes, secret)
    env = _environment(system, status, captured)
    try:
        tree.write_truth(truth)
        tree.write_ledger(id_, running.ledger(start_ns))
        if commanded:
            running.keep_load_log(tree.truth_path(id_) / LOAD_LOG)
        write_datapack(tree.incident_path(id_), split_windows(frames, (start_ns, boundary_ns, end_ns)), incident, env)
    except BaseException:
        tree.remove(id_)
        raise
    _flag_leaks(tree, truth)


def unseen(system: System, traces: pl.DataFrame) -> str:
    """Return a sentence on the user requests of *system*, whose load is a command, that *traces* cannot show."""
    seen = ", ".join(sorted(system.seen_at() & set(user_requests(traces, system.seen_at())["service_name"])))
    known = f"what users got is known from the spans of {seen} alone: requests that did not reach it are not counted"
    return f"the load is {system.load.command_line}: {known if seen else 'what users got is not known'}"


def _flag_leaks(tree: Tree, truth: Truth) -> None:
    """Add a note to the stored truth for each detail of the incident that reveals the answer to a solver."""
    if found := leak_notes(tree.incident_path(truth.id), truth):
        tree.write_truth(truth.model_copy(update={"notes": (*truth.notes, *found)}))


def _notes(captured: _Captured, exits: Sequence[dict[str, Any]], *, early_alerts: int) -> tuple[str, ...]:
    """Return notes on the recording: injection, unexpected *exits*, machine, number of *early_alerts*, lost data."""
    found = [
        *captured.outcome.notes,
        *sentences(exits, captured.usual.start_ns),
        *machine.notes(captured.looks),
        *captured.notes,
    ]
    if early_alerts:
        found.append(f"{early_alerts} alerts fired before the abnormal window")
    if captured.stats.drop_rate:
        found.append(f"the receiver refused {captured.stats.drop_rate:.2%} of the telemetry")
    return tuple(dict.fromkeys(found))


@contextmanager
def _session(running: RunningSystem, spool: Path, *, keeps_spool: bool) -> Iterator[Callable[[], SessionStats]]:
    """Open a recording session into *spool* for the block; yield the function that closes it.

    After a failure *spool* stays only if *keeps_spool*; a note on the error then names it.
    """
    spool.parent.mkdir(parents=True, exist_ok=True)
    receiver = running.receiver
    receiver.open_session(spool, spool.name)
    closed: list[SessionStats] = []

    def finish() -> SessionStats:
        closed.append(receiver.close_session(spool.name))
        return closed[0]

    try:
        yield finish
    except (UserError, NotNormalError):  # nothing was broken: nothing happened that anybody would want to look at
        _close(receiver, spool.name)
        shutil.rmtree(spool, ignore_errors=True)
        raise
    except BaseException as error:
        if not closed:
            _close(receiver, spool.name)
        if keeps_spool:
            error.add_note(f"What was recorded until then is in {spool}.")
        raise


def _close(receiver: Receiver, name: str) -> None:
    """Close the recording session *name*, ignoring that it may be closed already."""
    with suppress(OperationError, UserError):  # the receiver may be gone: what it acknowledged is in the spool
        receiver.close_session(name)


def _break(running: RunningSystem, plan: FaultPlan, schedule: Schedule, progress: Progress) -> _Outcome:
    """Inject *plan* with stages shown by *progress*; return the result; raises OperationError without one."""
    stage = "abnormal window"
    progress.started(stage, schedule.abnormal_s)
    for event in running.inject(plan):
        if event["event"] == "undone":
            progress.finished(stage, "done")
            stage = "recovery"
            progress.started(stage, 2.0)
        if event["event"] == "done":
            progress.finished(stage, "done")
            return _Outcome(
                faults=tuple(Fault.model_validate(fault) for fault in event["faults"]),
                roots=tuple(RootLabel.model_validate(root) for root in event["roots"]),
                effects=tuple(EffectCheck.model_validate(effect) for effect in event["effects"]),
                recovered=event["recovered"],
                notes=tuple(event["notes"]),
            )
    raise OperationError(f"The injection of {plan.name} ended without a result; see `opsassay system status`.")


def _boundary(alerts: list[Alert], captured: _Captured, chance: random.Random) -> int:
    """Return the UTC ns where the normal period ends: drawn, before the first of *alerts*, else near the plan's."""
    start_ns, planned, end_ns = captured.usual.start_ns, captured.planned, captured.outcome.end_ns
    during = [alert.time_ns for alert in alerts if alert.time_ns >= captured.outcome.start_ns]
    normal_s = (planned.start_ns - start_ns) / 1e9
    if during:
        short = min(1.0, normal_s / (4 * PRE_ROLL_S[1]))  # a short window keeps most of itself
        at_ns = min(during) - int(chance.uniform(*PRE_ROLL_S) * short * 1e9)
    else:
        most_s = min(UNALERTED_JITTER_S, normal_s / 4, planned.seconds / 4)
        at_ns = planned.start_ns + int(chance.uniform(-most_s, most_s) * 1e9)
    return min(max(at_ns, start_ns + 1), end_ns - 1)


def _truth(id_: str, system: System, outcome: _Outcome, isolation: str, notes: tuple[str, ...], secret: str) -> Truth:
    """Return the truth of the incident *id_*: *outcome*, *isolation* level, *notes*, and *secret*, which drew it."""
    return Truth(
        id=id_,
        system=system.system,
        faults=outcome.faults,
        roots=outcome.roots,
        effects=outcome.effects,
        recovered=outcome.recovered,
        isolation=isolation,
        notes=notes,
        secret=secret,
    )


def _environment(system: System, status: SystemStatus, captured: _Captured) -> dict[str, Any]:
    """Return the content of env.json: namespace, load rate, share of lost telemetry, cores, kernel and the like."""
    return {
        "namespace": status.namespace or system.system,
        "load_generators": ["loadgenerator"],
        "load_rps": status.rate_rps,
        "head_sampling": 1.0,
        "drop_rate": captured.stats.drop_rate,
        "host": {"cores": status.cores or os.cpu_count()},
        "kernel": {name: ability["available"] for name, ability in status.machine["abilities"].items()},
        "other_systems": len(machine.others(captured.looks)),
    }
