"""The same statistics under other choices: other protocols of a method, without some systems, other labels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.audit.effects import TIE, paired_effects
from opsassay.analysis.audit.matched import Matched
from opsassay.analysis.audit.pooled import leaving_out, random_effects
from opsassay.analysis.audit.selection import leave_one_system_out

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WhatIf:
    """Heterogeneity and selection of one pair under one such choice (*name*); None where a statistic is undefined."""

    name: str
    a: str
    b: str
    systems: int
    gap: float
    i2: float | None
    tau2: float | None
    prediction_includes_zero: bool | None
    reversals: int | None
    reversed_systems: tuple[str, ...]


def scenario(name: str, matched: Matched, a: int, b: int, *, level: float = 0.95, ddof: int = 1) -> WhatIf:
    """Return the statistics of *a* against *b* as a result called *name*: I2, tau2, prediction interval, reversals."""
    return _what_if_left_out(name, matched, a, b, np.zeros(len(matched.systems), dtype=bool), level, ddof)


def without_family(matched: Matched, a: int, b: int, *, level: float = 0.95, ddof: int = 1) -> list[WhatIf]:
    """Return the statistics of *a* against *b* without each family in turn; [] with one family (appendix J)."""
    families = dict.fromkeys(matched.families)
    if len(families) < 2:
        return []
    out = []
    for family in families:
        left_out = np.array([f == family for f in matched.families])
        out.append(_what_if_left_out(f"without {family}", matched, a, b, left_out, level, ddof))
    return out


def _what_if_left_out(
    name: str, matched: Matched, a: int, b: int, left_out: NDArray[np.bool_], level: float, ddof: int
) -> WhatIf:
    """Return the statistics of *a* against *b*, called *name*, without the systems marked in *left_out*."""
    paired = paired_effects(matched, a, b, ddof)
    pooled = random_effects(paired.effect, leaving_out(paired.variance, left_out), level)
    effect, sizes = paired.effect[~left_out], matched.sizes[~left_out]
    names = [s for s, gone in zip(matched.systems, left_out, strict=True) if not gone]
    held_out = leave_one_system_out(effect, sizes)
    reversed_systems = tuple(s for s, wrong in zip(names, held_out.reversed, strict=True) if wrong)
    k = len(effect)
    return WhatIf(
        name=name,
        a=matched.methods[a],
        b=matched.methods[b],
        systems=k,
        gap=float(effect.mean()),
        i2=float(pooled.i2) if k > 1 else None,
        tau2=float(pooled.tau2) if k > 1 else None,
        prediction_includes_zero=bool(pooled.prediction_low <= 0 <= pooled.prediction_high) if k > 2 else None,
        reversals=len(reversed_systems) if k > 1 else None,
        reversed_systems=reversed_systems if k > 1 else (),
    )


@dataclass(frozen=True)
class ProtocolRow:
    """One method under one protocol: its means over systems, and their shift from its primary protocol."""

    method: str
    protocol: str
    primary: bool
    systems: int
    macro: float
    lowest: float
    highest: float
    mean_shift: float
    max_shift: float


@dataclass(frozen=True)
class ProtocolGap:
    """The score difference (gap) of one pair over all combinations of recorded protocols.

    *share* is the range of the gap over its size under the primary protocols (None for a gap of zero). *sign_changes*:
    some combination reverses the winner.
    """

    a: str
    b: str
    combinations: int
    gap: float
    lowest: float
    highest: float
    share: float | None
    sign_changes: bool
    same_reversals: bool
    lowest_i2: float | None
    highest_i2: float | None


def protocol_rows(matched: Matched) -> list[ProtocolRow]:
    """Return a row per protocol of each method that has several (leaderboard-audit, Table 11B)."""
    rows = []
    for method in dict.fromkeys(m for m, _ in matched.variants):
        home = matched.means[:, matched.methods.index(method)]
        for protocol, values in _scores_by_protocol(matched, method).items():
            means = matched.by_system(values)
            shift = np.abs(means - home)
            rows.append(
                ProtocolRow(
                    method=method,
                    protocol=protocol,
                    primary=protocol == matched.primary[method],
                    systems=len(means),
                    macro=float(means.mean()),
                    lowest=float(means.min()),
                    highest=float(means.max()),
                    mean_shift=float(shift.mean()),
                    max_shift=float(shift.max()),
                )
            )
    return rows


def protocol_gaps(matched: Matched, *, level: float = 0.95, ddof: int = 1) -> list[ProtocolGap]:
    """Return, for each pair with a method of several protocols, the range of its gap over them all (appendix L)."""
    several = {m for m, _ in matched.variants}
    return [
        _protocol_gap(matched, a, b, level, ddof)
        for a, b in matched.pairs()
        if matched.methods[a] in several or matched.methods[b] in several
    ]


def _protocol_gap(matched: Matched, a: int, b: int, level: float, ddof: int) -> ProtocolGap:
    """Return the range of the score difference of *a* and *b* over all combinations of their protocols."""
    first, second = matched.methods[a], matched.methods[b]
    found = []
    for one, other in product(
        _scores_by_protocol(matched, first).values(), _scores_by_protocol(matched, second).values()
    ):
        pair = Matched((first, second), matched.systems, matched.families, matched.sizes, np.column_stack([one, other]))
        found.append(scenario("", pair, 0, 1, level=level, ddof=ddof))
    home = found[0]  # the primary protocols come first
    gaps = [s.gap for s in found]
    i2 = [s.i2 for s in found if s.i2 is not None]
    spread = max(gaps) - min(gaps)
    return ProtocolGap(
        a=first,
        b=second,
        combinations=len(found),
        gap=home.gap,
        lowest=min(gaps),
        highest=max(gaps),
        share=spread / abs(home.gap) if abs(home.gap) > TIE else None,
        sign_changes=min(gaps) < -TIE and max(gaps) > TIE,
        same_reversals=len({s.reversed_systems for s in found}) == 1,
        lowest_i2=min(i2, default=None),
        highest_i2=max(i2, default=None),
    )


def _scores_by_protocol(matched: Matched, method: str) -> dict[str, Floats]:
    """Return the method's scores by protocol, the primary one first."""
    home = matched.values[:, matched.methods.index(method)]
    further = {p: values for (m, p), values in matched.variants.items() if m == method}
    return {matched.primary[method]: home, **further}
