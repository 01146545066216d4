"""The one error tree of OpsAssay.

::

    OpsAssayError                  something OpsAssay can name; the message is one sentence: what, where, what to do next
    ├── UserError               wrong use or unreadable input: exit 2
    │   ├── NotFoundError       an unknown name; carries the nearest valid one
    │   ├── ConfigError         a file that a person wrote: file, line, field
    │   ├── DatapackError       a recording that cannot be read: folder, table, column
    │   ├── RefusedError        a fault that this machine or system cannot take: the missing capability and the way out
    │   └── QueryError          SQL that the locked worker refuses or cannot run
    ├── LeftByAgentError        what an agent left cannot be read or kept: a failed attempt of that agent
    └── OperationError          the world failed us (a port, a store, a full disk): exit 1, with the last log lines
        ├── StartError          a process or store did not become ready
        ├── NotNormalError      a system was not healthy before a fault was to be injected
        └── LostError           a process we depend on went away in the middle
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class OpsAssayError(Exception):
    """An error that OpsAssay can explain in one sentence."""

    exit_code = 1


class UserError(OpsAssayError):
    """Wrong use or unreadable input."""

    exit_code = 2


class NotFoundError(UserError):
    """An unknown *name* of some *kind*; the message offers the nearest of the *valid* names."""

    def __init__(self, kind: str, name: str, valid: Iterable[str], hint: str = "") -> None:
        self.kind, self.name, self.valid = kind, name, sorted(valid)
        near = nearest(name, self.valid)
        listed = ", ".join(self.valid[:12]) + (", ..." if len(self.valid) > 12 else ".")
        way_out = f"; did you mean {near!r}?" if near else f"; known: {listed if self.valid else 'none.'}"
        said = "." if hint and not self.valid else way_out
        super().__init__(f"There is no {kind} {name!r}{said}" + (f" {hint}" if hint else ""))


class ConfigError(UserError):
    """A file that a person wrote is wrong: the message names file, line and field."""


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Turn a UserError of the ``with`` block into a ConfigError that begins with *where*, such as ``file:line: field``."""
    try:
        yield
    except ConfigError:
        raise
    except UserError as error:
        raise ConfigError(f"{where}: {error}") from error


class DatapackError(UserError):
    """A recorded incident cannot be read: the message names folder, table and column."""


class RefusedError(UserError):
    """A fault cannot be injected here: the message names the missing capability and how to get it."""


class QueryError(UserError):
    """A statement was refused by the locked SQL worker, or failed in it."""


class LeftByAgentError(OpsAssayError):
    """Output of an agent cannot be read or stored: the attempt counts as failed by that agent."""


class OperationError(OpsAssayError):
    """Something outside of OpsAssay failed; *log_tail* is the last lines of the log that explains it."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        self.log_tail = log_tail
        super().__init__(message + (f"\nLast lines of its log:\n{log_tail}" if log_tail else ""))


class StartError(OperationError):
    """A process or a store did not become ready in time."""


class NotNormalError(OperationError):
    """The system was not healthy before the fault, for the reason *objection*, so that no fault was injected."""

    def __init__(self, objection: str) -> None:
        self.objection = objection
        super().__init__(
            f"The system was not normal before the fault ({objection}), so nothing was broken or graded; free the machine "
            "or lower the load, and run it again."
        )


class LostError(OperationError):
    """A process that this command depends on ended."""


def nearest(name: str, choices: Iterable[str]) -> str | None:
    """Return the most similarly spelled of *choices*, ignoring case, for "did you mean"; None when none is close."""
    by_folded = {candidate.lower(): candidate for candidate in choices}
    match = difflib.get_close_matches(name.lower(), by_folded, n=1, cutoff=0.5)
    return by_folded[match[0]] if match else None
