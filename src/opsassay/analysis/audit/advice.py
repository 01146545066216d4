"""Conclusions of an audit: a quotable claim, and a recommended method for each system."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from opsassay.analysis.audit.effects import TIE, paired_effects
from opsassay.analysis.audit.matched import Matched
from opsassay.analysis.audit.resampling import effect_intervals
from opsassay.analysis.audit.selection import first_best, leave_one_system_out_best
from opsassay.core.text import plural

POWER = 0.8


@dataclass(frozen=True)
class Recommendation:
    """The recommended method for one system: *choice*, or None when it is undecided among *candidates*.

    *needed* is the number of cases at which the observed lead over the closest rival would be found with power 0.8.
    *lead* is the mean paired difference to that rival, a fraction; *cases* are those of the system.
    """

    system: str
    family: str
    cases: int
    leader: str
    choice: str | None
    candidates: tuple[str, ...]
    lead: float
    needed: int | None
    text: str


def recommend(
    matched: Matched, resampled: NDArray[np.float64], *, level: float = 0.95, ddof: int = 1, min_cases: int = 20
) -> list[Recommendation]:
    """Return one recommendation per system.

    The leader is chosen when its paired bootstrap interval against every other method lies above zero, at the
    simultaneous level 1 - (1 - level) / (M - 1) (Bonferroni over the comparisons with the leader), on at least
    *min_cases* cases: below that the percentile interval is too narrow to be trusted (docs/audit.md).
    *resampled* are means under resampling, R x S x M, as `bootstrap_means` gives them; *matched* has two methods at least.
    """
    rivals = len(matched.methods) - 1
    strict = 1 - (1 - level) / rivals
    leaders = first_best(matched.means)
    low = np.full((len(matched.systems), len(matched.methods)), np.nan)
    effect, deviation = np.zeros_like(low), np.zeros_like(low)
    for a, b in ((a, b) for a in dict.fromkeys(leaders.tolist()) for b in range(rivals + 1) if a != b):
        rows = leaders == a
        low[rows, b] = effect_intervals(matched, resampled, a, b, strict)[0][rows]
        paired = paired_effects(matched, a, b, ddof)
        effect[rows, b], deviation[rows, b] = paired.effect[rows], paired.deviation[rows]
    return [
        _advise_on_system(matched, s, int(leaders[s]), low[s], effect[s], deviation[s], strict, min_cases)
        for s in range(len(matched.systems))
    ]


def _advise_on_system(
    matched: Matched,
    s: int,
    leader: int,
    low: NDArray[np.float64],
    effect: NDArray[np.float64],
    deviation: NDArray[np.float64],
    level: float,
    min_cases: int,
) -> Recommendation:
    """Return the advice for system number *s*: its *leader*, or no choice when a rival's *low* is not above 0.

    *low*, *effect* and *deviation* (of one case) are those of the leader's lead over each method.
    """
    n = int(matched.sizes[s])
    rivals = [m for m in range(len(matched.methods)) if m != leader]
    open_ = [m for m in rivals if not low[m] > 0]
    closest = min(rivals, key=lambda m: (effect[m], m))
    few = n < min_cases
    undecided = sorted(rivals, key=lambda m: effect[m]) if few and not open_ else sorted(open_, key=lambda m: effect[m])
    candidates = (matched.methods[leader], *(matched.methods[m] for m in undecided))
    lead = float(effect[closest])
    needed = cases_needed(lead, float(deviation[closest]), level) if undecided else None
    choice = None if undecided else matched.methods[leader]
    return Recommendation(
        system=matched.systems[s],
        family=matched.families[s],
        cases=n,
        leader=matched.methods[leader],
        choice=choice,
        candidates=candidates,
        lead=lead,
        needed=needed,
        text=_format_advice(matched.systems[s], choice, candidates, n, min_cases, needed, lead),
    )


def cases_needed(effect: float, deviation: float, level: float = 0.95, power: float = POWER) -> int | None:
    """Return n = ((z_level + z_power) deviation / effect)^2, rounded up; None for zero effect or deviation."""
    if abs(effect) <= TIE or deviation <= TIE:
        return None
    return math.ceil(float((ndtri((1 + level) / 2) + ndtri(power)) * deviation / effect) ** 2)


def _format_advice(
    system: str,
    choice: str | None,
    candidates: tuple[str, ...],
    n: int,
    min_cases: int,
    needed: int | None,
    lead: float,
) -> str:
    """Return the advice on *system*: *choice* or, if None, *candidates* and why *n* cases do not decide between them."""
    if choice:
        return f"For a system like {system}, choose {choice}."
    names = (
        f"{', '.join(candidates[:-1])} and {candidates[-1]}"
        if len(candidates) < 5
        else (f"{', '.join(candidates[:3])} and {len(candidates) - 3} more")
    )
    if abs(lead) <= TIE:
        why = f"a tie on {plural(n, 'case')}"
    elif n < min_cases:
        why = f"n too small ({plural(n, 'case')}, at least {min_cases} are needed)"
    elif needed and needed > n:
        why = f"n too small ({plural(n, 'case')}; about {needed:,} would show the lead seen here)"
    else:
        why = f"the lead is within the uncertainty of {plural(n, 'case')}"
    return f"For a system like {system}, choose between {names}: undecided, {why}."


def claim(matched: Matched, prediction_includes_zero: Sequence[bool | None], baselines: Sequence[str] = ()) -> str:
    """Return a quotable paragraph: where the pooled winner is best, where it loses, and what it is valid for.

    The pooled winner has the highest mean of system means. "Loses" means: the other systems' pool chooses a method that
    is not the best one on the held-out system.
    *prediction_includes_zero* is per pair, None where undefined; *baselines* are named as such.
    """
    means, systems = matched.means, matched.systems
    macro = means.mean(axis=0)
    winner = int(first_best(macro))
    best = means[:, winner] >= means.max(axis=1) - TIE
    shared = best & ((means >= means.max(axis=1, keepdims=True) - TIE).sum(axis=1) > 1)
    scope = f"{plural(matched.cases, 'matched case')} of {plural(len(systems), 'system')}"
    families = len(set(matched.families))
    scope += f" in {families} families" if families > 1 else ""
    named = matched.methods[winner] + (", a baseline," if matched.methods[winner] in baselines else "")
    text = f"Over {scope}, {named} has the highest mean of system means ({100 * macro[winner]:.1f}%)"
    text += f" and is best on {int(best.sum())} of {plural(len(systems), 'system')}"
    text += f" ({int(shared.sum())} of them shared)." if shared.any() else "."
    if len(systems) < 2:
        return text + " One system says nothing about any other."
    by_case = int(first_best((means * matched.sizes[:, None]).sum(axis=0)))
    if by_case != winner:
        text += f" By the mean over cases it would be {matched.methods[by_case]}."
    regret = leave_one_system_out_best(means).regret
    lost = [f"{systems[s]} (-{100 * regret[s]:.1f} pp)" for s in np.argsort(-regret, kind="stable") if regret[s] > 0]
    if lost:
        more = f" and {len(lost) - 6} more" if len(lost) > 6 else ""
        text += f" The method that wins on the other systems loses on {len(lost)} of {len(systems)}: "
        text += f"{', '.join(lost[:6])}{more}."
    else:
        text += " The method that wins on the other systems is best on every held-out one."
    known = [p for p in prediction_includes_zero if p is not None]
    if known:
        of = plural(len(known), "pair")
        text += f" For another system, the prediction interval of {sum(known)} of {of} includes zero."
    return text
