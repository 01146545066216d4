"""Whose turn it is on this machine: a trial whose alert says that a limit is used up has it to itself, the others share it.

A process that may use half a processor is seen to use it up only where there is that much to be had: beside another trial
its alert may not fire. The kernel gives back the locks of whoever dies. Who wants the machine to itself keeps the gate
while it waits, so that nobody who comes later goes first.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from opsassay.core.schema.scenario import Scenario
from opsassay.testbed.core.state import state_root

LOOK_S = 0.2


def wants_machine(scenario: Scenario) -> bool:
    """Tell whether nothing may run beside a trial of *scenario* on this machine."""
    alerts = scenario.verification.alerts
    if scenario.environment.substrate != "local" or alerts is None:
        return False
    return any(rule.signal == "saturation" for rule in alerts.triggering)


@contextmanager
def machine_shared(given_up: Callable[[], bool], *, alone: bool) -> Iterator[None]:
    """Share the machine with the trials of this user while the block runs, or have it *alone*; waits for that.

    Whoever has *given_up* waits no longer, and is not to begin anything.
    """
    root = state_root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / "trials.lock").open("a") as room:
        with (root / "trials.gate").open("a") as gate:
            _lock(gate, fcntl.LOCK_EX, given_up)
            _lock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, given_up)
        yield


def _lock(file: IO[str], how: int, given_up: Callable[[], bool]) -> None:
    while not given_up():
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOOK_S)
        else:
            return
