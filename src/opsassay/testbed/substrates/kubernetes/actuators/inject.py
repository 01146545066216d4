"""Carrying a plan out on a cluster: the life of an injection as on `local` (`injection/inject.py`), event by event.

One injection at a time: a ConfigMap beside the receiver says which, and until when; one that has passed is replaced.
"""

from __future__ import annotations

import asyncio
import queue
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from opsassay.core.errors import OpsAssayError, RefusedError
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System
from opsassay.testbed.core.event import DoneEvent, InjectionEvent
from opsassay.testbed.injection.inject import BEFORE_S, EFFECT_TIMEOUT_S, RECOVERY_TIMEOUT_S, inject
from opsassay.testbed.substrates.kubernetes.actuators.existing import ExistingUnderTest
from opsassay.testbed.substrates.kubernetes.actuators.mechanisms import CLUSTER
from opsassay.testbed.substrates.kubernetes.actuators.offers import Offers
from opsassay.testbed.substrates.kubernetes.actuators.under_test import ClusterUnderTest
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, Object
from opsassay.testbed.substrates.kubernetes.manifests.system import MANAGED, watch_of

ACTIVITY = "activity"
SPARE_S = 120.0
"""What preparing and taking back may take beyond the fault's own time: undo pods have to start."""
SETTLE_S = 30.0
OVER_EVERY_S = 0.3


def limit_s(plan: FaultPlan) -> float:
    """Return the seconds after which *plan* is undone in any case, even if the injecting process has died."""
    return plan.duration_s + BEFORE_S + EFFECT_TIMEOUT_S + SPARE_S


def injecting(
    api: Api,
    name: str,
    system: System,
    plan: FaultPlan,
    offers: Offers,
    image: str,
    saved_ledgers: dict[str, bytes],
    over: threading.Event | None = None,
) -> Iterator[InjectionEvent]:
    """Inject *plan* into the system *name* and yield its events; closing the iterator, or setting *over*, undoes it.

    *offers* is how the cluster can carry faults out, *image* that of pods to add. *saved_ledgers* gets {file name:
    ledger lines} of pods that the faults removed. Raises NotFoundError or RefusedError for a plan that cannot be
    injected now, OperationError when an undo failed here (the cluster then undoes it).
    """
    events: queue.Queue[InjectionEvent | BaseException | None] = queue.Queue()
    runner = _Runner(events)
    with _alone(api, watch_of(name), plan), tempfile.TemporaryDirectory(prefix="opsassay-injection-") as folder:
        kind = ClusterUnderTest if system.namespace is None else ExistingUnderTest
        under_test = kind(api, name, system, Path(folder), offers, runner.lease, limit_s=limit_s(plan), image=image)
        thread = threading.Thread(target=runner.run, args=(under_test, plan), name="injection", daemon=True)
        thread.start()
        try:
            while (event := _next_event(events, runner, over)) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            runner.end()
            thread.join()
            saved_ledgers.update({path.name: path.read_bytes() for path in under_test.state.ledger_dir.glob("*.jsonl")})


def _next_event(
    events: queue.Queue[InjectionEvent | BaseException | None], runner: _Runner, over: threading.Event | None
) -> InjectionEvent | BaseException | None:
    """Return the next event, an error to raise, or None at the end; setting *over* makes *runner* undo the faults."""
    while over is not None:
        if over.is_set():
            runner.end()
        try:
            return events.get(timeout=OVER_EVERY_S)
        except queue.Empty:
            continue
    return events.get()


class _Runner:
    """Runs an injection in a thread's event loop and puts its events into *events*; None ends it."""

    def __init__(self, events: queue.Queue[InjectionEvent | BaseException | None]) -> None:
        self._events = events
        self._loop: asyncio.AbstractEventLoop | None = None
        self.lease = asyncio.Event()

    def run(self, system: ClusterUnderTest, plan: FaultPlan) -> None:
        """Inject *plan* into *system*; put its events or the error, then None, into the queue."""
        try:
            asyncio.run(self._run_plan(system, plan))
        except BaseException as error:  # noqa: BLE001 - raised again where the events are read
            self._events.put(error)
        else:
            self._events.put(None)

    def end(self) -> None:
        """Make the injection undo its faults and end now; may be called from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(self.lease.set)

    async def _run_plan(self, system: ClusterUnderTest, plan: FaultPlan) -> None:
        """Wait until all replicas are ready, inject *plan*, and queue its events, the last with the system's notes."""
        self._loop = asyncio.get_running_loop()
        done: list[DoneEvent] = []

        async def report(event: InjectionEvent) -> None:
            if event["event"] == "done":
                done.append(event)
            else:
                self._events.put(event)

        async with system:
            await _settled(system, self.lease)
            with suppress(TimeoutError):  # the moments before say what was usual
                await asyncio.wait_for(self.lease.wait(), BEFORE_S)
            system.quiet_since = time.monotonic() - BEFORE_S
            await inject(system, plan, CLUSTER, self.lease, report)
        if system.failure is not None:
            raise system.failure
        for event in done:
            self._events.put({**event, "notes": [*event["notes"], *dict.fromkeys(system.notes)]})


async def _settled(system: ClusterUnderTest, lease: asyncio.Event) -> None:
    """Wait until every replica is ready, at most SETTLE_S; does not raise, and returns at once when *lease* is set."""
    deadline = time.monotonic() + SETTLE_S
    while system.fleet.not_ready() and time.monotonic() < deadline and not lease.is_set():  # noqa: ASYNC110 - it is polled
        await asyncio.sleep(0.2)


@contextmanager
def _alone(api: Api, namespace: str, plan: FaultPlan) -> Iterator[None]:
    """Hold the lock of injections, a ConfigMap in *namespace* that names *plan*; raises RefusedError if it is held."""
    held: Object = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": ACTIVITY, "namespace": namespace, "labels": MANAGED},
        "data": {"plan": plan.name, "until": f"{time.time() + limit_s(plan) + RECOVERY_TIMEOUT_S:.0f}"},
    }
    standing = api.get("ConfigMap", ACTIVITY, namespace)
    if (other := _active_plan(standing)) is not None:
        raise RefusedError(f"{other} is still active; wait for its end.")
    try:
        if standing is None:
            api.create(held)
        else:  # of several that find one that has passed the server lets one replace it
            version = standing["metadata"]["resourceVersion"]
            api.replace({**held, "metadata": {**held["metadata"], "resourceVersion": version}})
    except ApiError as error:
        if error.status == 409:
            raise RefusedError("Another injection has just begun; wait for its end.") from error
        raise
    try:
        yield
    finally:
        with suppress(OpsAssayError):  # it names its end
            api.delete("ConfigMap", ACTIVITY, namespace)


def activity(api: Api, namespace: str) -> str | None:
    """Return the name of the plan that is being injected by the lock in *namespace*, None without one."""
    return _active_plan(api.get("ConfigMap", ACTIVITY, namespace))


def _active_plan(lock: Object | None) -> str | None:
    """Return the name of the plan in the ConfigMap *lock*, None without a lock or after its time."""
    if lock is None or float(lock["data"]["until"]) < time.time():
        return None
    return str(lock["data"]["plan"])
