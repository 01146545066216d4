"""The propagation rules: Table 7 of the paper (OpenRCA 2.0, D.6) as data, and OpsAssay's marked extensions."""

from __future__ import annotations

from collections.abc import Mapping

from opsassay.core.schema.base import Noun
from opsassay.core.schema.files import packaged_yaml

RULES_VERSION = "2.0+opsassay.5"

LATENCY = frozenset({"lat", "p99"})
FAILURE = frozenset({"err", "timeout", "reset", "log_err"})


class Rule(Noun):
    """One row: a component of kind *source* in one of *states* puts one of kind *destination* into one of *effects*.

    *path* names the kinds between the two; *forward* marks effects that travel with the calls instead of against them.
    *channel* is what the carried test must find on it: latency, error, absence. *tolerance_s* is how much earlier than
    its cause the effect may be seen, beyond the widths of the windows.
    """

    id: str
    category: str
    source: str
    states: frozenset[str]
    path: tuple[str, ...] = ()
    destination: str = "span"
    effects: frozenset[str]
    mechanism: str
    channel: str
    confidence: float = 0.8
    tolerance_s: float = 1.0
    forward: bool = False
    through_healthy: bool = False
    extension: bool = False


def _parse_rule(id_: str, kinds: str, states: str, effects: str, channel: str, mechanism: str) -> Rule:
    """Return rule *id_*; *kinds*: "source > inner > destination"; *states*, *effects* (on the target) by spaces."""
    source, _, rest = kinds.partition(" > ")
    *path, destination = rest.split(" > ")
    spread = {
        "C": "vertical",
        "P": "vertical",
        "S": "first-hop",
        "H": "horizontal",
        "F": "horizontal",
        "X": "cross",
        "N": "vertical",
    }
    return Rule.model_validate(
        {
            "id": id_,
            "category": spread[id_.removeprefix("A-")[0]],
            "source": source,
            "path": tuple(path),
            "destination": destination,
            "states": frozenset(states.split()),
            "effects": frozenset(effects.split()),
            "mechanism": mechanism,
            "channel": channel,
            "extension": id_.startswith("A-"),
            "forward": id_.startswith("A-F"),
            "through_healthy": id_ in {"H-04", "H-07"},
        }
    )


RULES = tuple(_parse_rule(id_, **row) for id_, row in packaged_yaml(__package__, "rules.yaml").items())
"""Every rule, in `rules.yaml`; those of the paper carry its ids, ours begin with A- and can be switched off."""


def active_rules(
    *,
    extensions: bool = True,
    disabled: frozenset[str] = frozenset(),
    confidence: Mapping[str, float] | None = None,
    min_confidence: float = 0.0,
) -> tuple[Rule, ...]:
    """Return the propagation rules to use, without *disabled* ids and, if not *extensions*, without OpsAssay's own.

    *confidence* replaces that of single rules; rules with less than *min_confidence* are left out.
    """
    given = confidence or {}
    kept = (r for r in RULES if r.id not in disabled and (extensions or not r.extension))
    rules = (r.model_copy(update={"confidence": given.get(r.id, r.confidence)}) for r in kept)
    return tuple(r for r in rules if r.confidence >= min_confidence)
