"""The life of a benchmark, of a task's bundle and of an agent in it, as tables: what may follow what, and for how long.

The states and their names are ITBench's (B.3, BoardFigure 7). Every change of state goes through `check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opsassay.core.errors import UserError
from opsassay.core.schema.files import packaged_yaml

HOUR_S = 3600.0


class TransitionError(UserError):
    """A state that may not follow the present one."""


@dataclass(frozen=True)
class StateMachine:
    """States of one *subject*: *following* maps each to those that may come next, *timeouts* to the longest it may last.

    A state that outlasts its timeout (seconds) becomes *expired*; None is for states that may last for ever.
    """

    subject: str
    first: str
    following: Mapping[str, tuple[str, ...]]
    timeouts: Mapping[str, float | None]
    expired: str = "Error"

    @property
    def ends(self) -> tuple[str, ...]:
        """The states that no state follows."""
        return tuple(state for state, after in self.following.items() if not after)

    def check(self, present: str, desired: str) -> bool:
        """Return True if *desired* may follow *present*, False if they are equal; raises TransitionError otherwise."""
        if desired not in self.following:
            known = ", ".join(self.following)
            raise TransitionError(f"No {self.subject} has a state {desired!r}; there are {known}.")
        if desired == present:
            return False
        if desired not in self.following[present]:
            after = ", ".join(self.following[present]) or "nothing"
            raise TransitionError(
                f"The {self.subject} is {present} and cannot become {desired}; what may follow: {after}."
            )
        return True


def _machine(subject: str, expired: str = "Error") -> StateMachine:
    """Return the state machine of *subject* in `states.yaml`; *expired* is its state after a timeout."""
    rows = _ROWS[subject]
    following = {state: tuple(row["after"]) for state, row in rows.items()}
    timeouts = {state: row["hours"] * HOUR_S if "hours" in row else None for state, row in rows.items()}
    return StateMachine(subject, next(iter(rows)), following, timeouts, expired)


_ROWS = packaged_yaml(__package__, "states.yaml")
BENCHMARK = _machine("benchmark")
BUNDLE = _machine("bundle")
"""A bundle goes back to NotStarted when its worker is gone: what was begun is begun anew by another."""
AGENT = _machine("agent", expired="TimedOut")

MACHINES = {machine.subject: machine for machine in (BENCHMARK, BUNDLE, AGENT)}


def route(machine: StateMachine, present: str, desired: str) -> tuple[str, ...]:
    """Return the states after *present* to *desired* on the shortest path of *machine*; raises TransitionError."""
    if present == desired:
        return ()
    routes: dict[str, tuple[str, ...]] = {present: ()}
    frontier = [present]
    while frontier:
        state = frontier.pop(0)
        for after in machine.following[state]:
            if after not in routes and after not in ("Error", machine.expired, machine.first, desired):
                routes[after] = (*routes[state], after)
                frontier.append(after)
            elif after == desired:
                return (*routes[state], after)
    machine.check(present, desired)
    raise TransitionError(f"There is no path for the {machine.subject} from {present} to {desired}.")
