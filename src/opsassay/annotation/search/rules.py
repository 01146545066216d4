"""How failures spread: Table 7 of the paper (OpenRCA 2.0, D.6) as data, and our marked extensions."""

from __future__ import annotations

from collections.abc import Mapping

from opsassay.core.schema.base import Noun

RULES_VERSION = "2.0+opsassay.5"

LATENCY = frozenset({"lat", "p99"})
FAILURE = frozenset({"err", "timeout", "reset", "log_err"})


class Rule(Noun):
    """One row: a *source* kind in one of *states* makes a *destination* kind take one of *effects*.

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


def _rule(id_: str, kinds: str, states: str, effects: str, channel: str, mechanism: str) -> Rule:
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


_OWN = "container > pod > service > span"
_CALL = "span > span"
_PAST = "span > span > span"

RULES: tuple[Rule, ...] = (
    _rule("C-01", _OWN, "cpu mem", "lat p99 timeout missing err", "any", "resource contention"),
    _rule("C-02", _OWN, "restart", "missing err timeout", "any", "process termination"),
    _rule("P-01", "pod > service > span", "cpu mem", "lat p99 timeout", "any", "resource contention"),
    _rule("S-01", "service > span", "*", "lat p99 timeout", "any", "latency inheritance"),
    _rule("S-02", "service > span", "err unavail", "err timeout reset missing log_err", "any", "error inheritance"),
    _rule("H-01", _CALL, "lat p99", "lat p99 timeout", "latency", "callee slowdown"),
    _rule("H-02", _CALL, "err timeout", "err timeout", "error", "error propagation"),
    _rule("H-03", _CALL, "missing", "err timeout missing", "error", "missing callee"),
    _rule("H-04", _PAST, "err missing", "err missing", "error", "controller bypass"),
    _rule("H-05", _CALL, "err timeout", "timeout", "latency", "retry-induced wait"),
    _rule("H-06", _CALL, "inj_affected", "err lat p99 timeout missing", "any", "infrastructure fault relay"),
    _rule("H-07", _PAST, "healthy", "err lat p99 missing", "any", "JVM injection bypass"),
    _rule(
        "X-01",
        "span > service > pod > service > span",
        "lat p99",
        "lat p99 timeout",
        "latency",
        "JVM stress via shared pod",
    ),
    _rule(
        "A-X1",
        "container > pod > node > pod > service > span",
        "cpu",
        "lat p99 timeout",
        "any",
        "contention for the processor of the host",
    ),
    _rule("A-N3", "node > pod", "cpu mem", "cpu mem", "any", "what is scheduled on the host"),
    _rule(
        "A-P1",
        "pod > service > span",
        "cpu mem",
        "inj_affected missing err",
        "any",
        "a starved pod is late outside too",
    ),
    _rule("A-N1", "node > container", "cpu mem restart", "cpu mem restart", "any", "what runs on the host"),
    _rule(
        "A-N2",
        "node > service",
        "inj_affected unavail err lat",
        "inj_affected unavail err lat",
        "any",
        "who serves on the host",
    ),
    _rule(
        "A-S1", "service > span", "inj_affected unavail", "inj_affected missing err", "any", "network fault at its ends"
    ),
    _rule("A-S3", "service > span", "err", "inj_affected", "any", "its good answers arrive as failures"),
    _rule("A-S2", "service > span", "err", "healthy", "any", "a changed answer looks healthy where it is made"),
    _rule("A-C2", _OWN, "restart", "lat p99", "any", "messages wait while their consumer restarts"),
    _rule("A-C1", _OWN, "cpu mem", "inj_affected", "any", "a starved process is late outside its own spans too"),
    _rule("A-H1", _CALL, "lat p99 inj_affected", "err timeout", "error", "the caller gives up waiting"),
    _rule("A-H2", _CALL, "err timeout missing", "lat p99", "latency", "the caller waits and tries again"),
    _rule("A-H4", _CALL, "healthy", "err timeout missing", "error", "a changed answer fails the one who reads it"),
    _rule("A-H3", _CALL, "log_err err", "log_err err", "error", "an error that only logs show"),
    _rule(
        "A-F1",
        _CALL,
        "missing err timeout silent",
        "missing silent",
        "absence",
        "who stops calling starves its callees",
    ),
)
"""Every rule; those of the paper carry its ids, ours begin with A- and can be switched off."""


def active_rules(
    *,
    extensions: bool = True,
    off: frozenset[str] = frozenset(),
    confidence: Mapping[str, float] | None = None,
    least: float = 0.0,
) -> tuple[Rule, ...]:
    """Return the rules in force, without those in *off* and, on request, without our extensions.

    *confidence* replaces that of single rules; rules with less than *least* are left out.
    """
    given = confidence or {}
    kept = (r for r in RULES if r.id not in off and (extensions or not r.extension))
    rules = (r.model_copy(update={"confidence": given.get(r.id, r.confidence)}) for r in kept)
    return tuple(r for r in rules if r.confidence >= least)
