"""State machines of a benchmark, of a task's bundle and of its agent: allowed transitions and timeouts.

The states and their names are ITBench's (B.3, BoardFigure 7). Every change of state goes through `check`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opsassay.core.errors import UserError
from opsassay.core.schema.files import packaged_yaml

HOUR_S = 3600.0


class TransitionError(UserError):
    """A state that may not follow the present one, or does not exist."""


@dataclass(frozen=True)
class StateMachine:
    """States of a *subject*: *following* maps each to the states that may follow, *timeouts* to its longest duration (s).

    A state that outlasts its timeout becomes *expired*; a timeout of None is none.
    """

    subject: str
    first: str
    following: Mapping[str, tuple[str, ...]]
    timeouts: Mapping[str, float | None]
    expired: str = "Error"

    @property
    def ends(self) -> tuple[str, ...]:
        """The states that no other state follows."""
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
"""A bundle returns to NotStarted when its worker is gone; another worker starts it anew."""
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
