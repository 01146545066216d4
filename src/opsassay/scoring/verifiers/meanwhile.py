"""Settings that an agent changed for a while and then changed back: its calls show them, final readings do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

from opsassay.core.schema.trajectory import Action
from opsassay.scoring.verifiers.evidence import RunEvidence
from opsassay.scoring.verifiers.users import SERVED_SHARE

CONFIG_SET, CONFIG_UNSET = "config_set", "config_unset"


@dataclass(frozen=True)
class Stint:
    """The agent gave the setting *name* a *value* (None: unset), which acted from *since_ns* and was changed at *until_ns*.

    *last* is the value that it gave the setting in the end; *after_last*: it had given it that value once before.
    """

    name: str
    value: str | None
    last: str | None
    after_last: bool
    since_ns: int
    until_ns: int


def stints(evidence: RunEvidence, given_at_start: Collection[str]) -> Iterator[Stint]:
    """Yield a stint for each value that the agent gave a setting, that took effect, and that it later changed again.

    Settings *given_at_start* take effect when a replica that started since is ready, others at the next tick. A value
    that was changed before is left out, and so are the former settings where the record does not tell processes apart.
    """
    given: dict[str, list[tuple[int, str | None]]] = defaultdict(list)
    for action in sorted(evidence.recording.actions, key=lambda one: one.started_ns):
        if action.mutating and action.status == "ok" and action.tool in (CONFIG_SET, CONFIG_UNSET):
            name = f"{action.arguments['target']} {action.arguments['key']}"
            given[name].append((action.ended_ns, _value_of(action)))
    for name, values in given.items():
        service = name.split()[0] if name in given_at_start else None
        last, given_last = values[-1][1], False
        for (since_ns, value), (until_ns, following) in pairwise(values):
            given_last |= value == last
            acted_ns = _acts_from(evidence, service, since_ns, until_ns)
            if acted_ns is not None and following != value:
                yield Stint(name, value, last, given_last, acted_ns, until_ns)


def users_were_served(evidence: RunEvidence, since_ns: int, until_ns: int) -> bool:
    """Return whether requests were counted from *since_ns* to *until_ns*, and of no kind more than SERVED_SHARE failed."""
    kinds = evidence.counts.between(since_ns, until_ns).values() if evidence.counts.kinds else ()
    asked = [(done, failed) for done, failed in kinds if done]
    return bool(asked) and all(failed <= SERVED_SHARE * done for done, failed in asked)


def _value_of(action: Action) -> str | None:
    """Return the value that *action* gives its setting, None when it unsets it."""
    return str(action.arguments["value"]) if action.tool == CONFIG_SET else None


def _acts_from(evidence: RunEvidence, service: str | None, since_ns: int, until_ns: int) -> int | None:
    """Return when (ns) a process of *service* that started after *since_ns* is first seen ready, None if not by *until_ns*.

    For *service* None it is the start of the first tick after *since_ns*.
    """
    known: set[tuple[str, str | None]] = set()
    for tick in evidence.recording.timeline.ticks:
        began_ns = min((one.started_ns for one in tick.observations if one.depth != "D3"), default=0)
        if began_ns > until_ns:
            return None
        ready = {
            (one.id, one.incarnation)
            for one in tick.entities
            if one.service == service and one.ready and one.incarnation
        }
        if began_ns <= since_ns:
            known |= ready
        elif service is None or ready - known:
            return began_ns
    return None
