"""Injects faults of the catalogue as a scenario's trigger, for the duration of a trial."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from opsassay.core.schema.faults import NO_FAULT
from opsassay.core.schema.incident import FaultPlan
from opsassay.testbed.core.substrate import RunningSystem


@contextmanager
def hold_faults(running: RunningSystem, plan: FaultPlan, longest_s: float) -> Iterator[None]:
    """Inject *plan* into *running* for the block, at most *longest_s* seconds, and undo it.

    A fault inside a process ends with its pod, so that a restart repairs it. A plan of NoFault keeps its own duration.
    Raises the error of a failed injection before the block; later errors are ignored, since an agent may have removed the
    fault's target.
    """
    if any(part.fault != NO_FAULT for part in plan.parts):
        plan = plan.model_copy(update={"duration_s": longest_s}).ending_with_pods()
    over, applied, failures = threading.Event(), threading.Event(), list[Exception]()

    def hold() -> None:
        try:
            for _ in running.inject(plan, over):
                applied.set()
        except Exception as error:  # noqa: BLE001 - whatever it is: without its fault a trial is none
            failures.append(error)
        finally:
            applied.set()

    thread = threading.Thread(target=hold, name="fault", daemon=True)
    thread.start()
    try:
        applied.wait()
        if failures:
            raise failures[0]
        yield
    finally:
        over.set()
        thread.join()
