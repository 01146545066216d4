"""The figures of an audit: heat map, forest plots, regret bars, pooled against per-system scores.

Every value is also written as text, and marks differ in shape, outline or dash, so that a grey print loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from markupsafe import Markup

from opsassay.analysis.audit.audit import AuditReport, PairAudit
from opsassay.analysis.audit.selection import first_best
from opsassay.ui.audit_svg import Axis, Figure, element, join, label, line, path, rect, text

PANEL, ROW = 344.0, 19.0
PAIRS_SHOWN, COLUMNS_SHOWN, METHODS_SHOWN, SYSTEMS_SHOWN = 6, 12, 6, 60
_LABEL, _LETTERS = 108.0, 16


def shown_pairs(audit: AuditReport, count: int) -> list[PairAudit]:
    """Return at most *count* pairs of methods for the report: all, else the winner with its closest rivals."""
    if len(audit.pairs) <= count:
        return list(audit.pairs)
    macro = audit.matched.means.mean(axis=0)
    winner = int(first_best(macro))
    own = [p for p in audit.pairs if winner in (p.a, p.b)]
    return sorted(own, key=lambda p: -float(macro[p.a] + macro[p.b]))[:count]


def pair_name(audit: AuditReport, pair: PairAudit) -> str:
    """Return "A − B" with the names of the two methods that *pair* compares in *audit*."""
    return f"{audit.matched.methods[pair.a]} − {audit.matched.methods[pair.b]}"


def points(value: float, sign: str = "+") -> str:
    """Return the fraction *value* as percentage points with one decimal; *sign* "+" writes a plus too."""
    written = f"{100 * value:{sign}.1f}"
    return written.replace("+0.0", "0.0").replace("-0.0", "0.0").replace("-", "−")


def figures(audit: AuditReport) -> dict[str, list[Figure]]:
    """Return every figure of the audit by kind: "heatmap", "pooled", "forest", "regret"."""
    several = len(audit.matched.systems) > 1
    pairs = shown_pairs(audit, PAIRS_SHOWN)
    return {
        "heatmap": [heat_map(audit)],
        "pooled": [pooled_against_systems(audit)],
        "forest": [forest(audit, pair, i) for i, pair in enumerate(pairs)],
        "regret": [regret_bars(audit, pair, i, pairs) for i, pair in enumerate(pairs)] if several else [],
    }


def heat_map(audit: AuditReport) -> Figure:
    """Draw each pair's effect on each system; an asterisk marks an interval without zero (leaderboard-audit, Figure 2).

    The method that is better on the mean over systems comes first in each pair, so that a colour means the same in all.
    """
    m, pairs = audit.matched, shown_pairs(audit, COLUMNS_SHOWN)
    cell, tall, head = 44.0, 21.0, 14.0 + 6.4 * max(min(len(pair_name(audit, p)), 26) for p in pairs)
    signs = [-1.0 if p.paired.effect.mean() < 0 else 1.0 for p in pairs]
    rows = list(_family_rows(audit))
    height = head + tall * len(rows) + 8
    parts: list[Markup] = []
    for i, pair in enumerate(pairs):
        x = _LABEL + cell * (i + 0.5) + 4
        first, second = (pair.a, pair.b) if signs[i] > 0 else (pair.b, pair.a)
        name = label(0, 0, f"{m.methods[first]} − {m.methods[second]}", 26, "ink small")
        parts.append(element("g", name, transform=f"translate({x:.1f},{head - 6:.1f}) rotate(-90)"))
    strongest = max([0.1, *(float(np.abs(p.paired.effect).max()) for p in pairs)])
    for r, (family, s) in enumerate(rows):
        y = head + r * tall
        if s is None:
            parts += [line(0, y + 2, _LABEL + cell * len(pairs), y + 2, "rule"), label(0, y + 16, family, 30, "head")]
            continue
        parts.append(label(0, y + 15, m.systems[s], _LETTERS))
        for i, pair in enumerate(pairs):
            effect = signs[i] * float(pair.paired.effect[s])
            star = "*" if pair.low[s] > 0 or pair.high[s] < 0 else ""
            strength = 0.0 if abs(effect) < audit.settings.near_tie else 0.15 + 0.5 * min(abs(effect) / strongest, 1)
            side = "above" if effect > 0 else "below"
            x = _LABEL + cell * i
            parts.append(rect(x, y, cell - 1, tall - 1, f"cell {side}", fill_opacity=strength))
            parts.append(text(x + cell / 2, y + 15, points(effect) + star, "ink small", "middle"))
    width = _LABEL + cell * len(pairs) + 4
    title = "Paired effect of each pair of methods on each system, in percentage points"
    return Figure("heatmap", title, width, height, join(parts))


def _family_rows(audit: AuditReport) -> Iterable[tuple[str, int | None]]:
    """Yield (family, None) as a heading if there are several families, then (family, system index) for each system."""
    m = audit.matched
    several = len(set(m.families)) > 1
    before = None
    for s, family in enumerate(m.families[:SYSTEMS_SHOWN]):
        if several and family != before:
            yield family, None
        before = family
        yield family, s


def forest(audit: AuditReport, pair: PairAudit, index: int) -> Figure:
    """Draw the effect of *pair* (number *index*) per system, the pooled mean (HKSJ) and the prediction interval."""
    m, pooled = audit.matched, pair.pooled
    systems = range(min(len(m.systems), SYSTEMS_SHOWN))
    lows, highs = [float(v) for v in pair.low], [float(v) for v in pair.high]
    prediction = [float(v) for v in (pooled.prediction_low, pooled.prediction_high) if np.isfinite(v)]
    axis = _make_axis([*lows, *highs, *prediction, 0.0], _LABEL + 4, PANEL - 120)
    top = 8.0
    bottom = top + ROW * (len(m.systems[:SYSTEMS_SHOWN]) + 2)
    parts = [*_draw_grid(axis, top, bottom), line(axis.pixel_at(0), top, axis.pixel_at(0), bottom, "zero")]
    for s in systems:
        y = top + ROW * (s + 0.5)
        effect = float(pair.paired.effect[s])
        parts.append(label(0, y + 4, m.systems[s], _LETTERS))
        parts.append(line(axis.pixel_at(lows[s]), y, axis.pixel_at(highs[s]), y, "stroke"))
        parts.append(rect(axis.pixel_at(effect) - 3.5, y - 3.5, 7, 7, "mark"))
        parts.append(_draw_numbers(y, effect, lows[s], highs[s]))
    y = top + ROW * (len(systems) + 0.5)
    parts += [line(0, y - ROW / 2, PANEL, y - ROW / 2, "rule"), text(0, y + 4, "mean", "head")]
    if np.isfinite(pooled.low):
        left, right, middle = (
            axis.pixel_at(float(pooled.low)),
            axis.pixel_at(float(pooled.high)),
            axis.pixel_at(float(pooled.mean)),
        )
        parts.append(path(f"M{left:.1f} {y} L{middle:.1f} {y - 5} L{right:.1f} {y} L{middle:.1f} {y + 5} Z", "mark"))
        parts.append(_draw_numbers(y, float(pooled.mean), float(pooled.low), float(pooled.high)))
    y += ROW
    parts.append(text(0, y + 4, "another system", "head"))
    if prediction:
        parts.append(line(axis.pixel_at(prediction[0]), y, axis.pixel_at(prediction[1]), y, "stroke dashed"))
        parts.append(text(PANEL, y + 4, f"[{points(prediction[0])}, {points(prediction[1])}]", "ink small", "end"))
    else:
        parts.append(text(PANEL, y + 4, "needs three systems", "muted small", "end"))
    return Figure(f"forest-{index + 1}", f"Forest plot: {pair_name(audit, pair)}", PANEL, bottom + 18, join(parts))


def _draw_numbers(y: float, value: float, low: float, high: float) -> Markup:
    """Return SVG text "value [low, high]" in percentage points at height *y* of the panel's right edge."""
    return text(PANEL, y + 4, f"{points(value)} [{points(low)}, {points(high)}]", "ink small", "end")


def _make_axis(values: list[float], left: float, right: float) -> Axis:
    """Return an axis for fractions *values*, limited to ±1.5, from pixel *left* to pixel *right*."""
    low, high = max(min(values), -1.5), min(max(values), 1.5)
    room = 0.04 * (high - low) or 0.05
    return Axis(low - room, high + room, left, right)


def _draw_grid(axis: Axis, top: float, bottom: float) -> list[Markup]:
    """Return the vertical grid lines of *axis* from pixel *top* to *bottom*, with their values below."""
    parts = []
    for tick in axis.ticks(4):
        x = axis.pixel_at(tick)
        words = _format_tick(tick) if axis.low < 0 else _format_tick(tick).removeprefix("+")
        parts += [line(x, top, x, bottom, "grid"), text(x, bottom + 13, words, "muted small", "middle")]
    return parts


def _format_tick(value: float) -> str:
    """Return the fraction *value* in percentage points with its sign."""
    return f"{100 * value:+.4g}".replace("-", "−") if value else "0"


def regret_bars(audit: AuditReport, pair: PairAudit, index: int, pairs: list[PairAudit]) -> Figure:
    """Draw per system the regret of choosing by the other systems; reversals are outlined (Figure 3).

    *index* is the pair's number in the figure's name; all of *pairs* share one scale.
    """
    m, held_out = audit.matched, pair.loso["macro"]
    systems = range(min(len(m.systems), SYSTEMS_SHOWN))
    highest = max([0.01, *(float(p.loso["macro"].regret.max()) for p in pairs)])  # one scale for all panels
    axis = Axis(0.0, highest * 1.05, _LABEL + 4, PANEL - 104)
    top = 8.0
    bottom = top + ROW * len(systems)
    parts = [*_draw_grid(axis, top, bottom), line(axis.pixel_at(0), top, axis.pixel_at(0), bottom, "zero")]
    for s in systems:
        y, regret = top + ROW * s, float(held_out.regret[s])
        chosen = m.methods[pair.a if float(held_out.pooled[s]) >= -1e-12 else pair.b]
        parts.append(label(0, y + 13, m.systems[s], _LETTERS))
        if regret > 0:
            parts.append(rect(axis.pixel_at(0), y + 3, axis.pixel_at(regret) - axis.pixel_at(0), ROW - 6, "bar"))
        words = f"{points(regret, '')} by {chosen}" if regret > 0 else "0"
        parts.append(
            label(
                max(axis.pixel_at(regret), axis.pixel_at(0)) + 5,
                y + 13,
                words,
                17,
                "ink small" if regret else "muted small",
            )
        )
    return Figure(f"regret-{index + 1}", f"Regret: {pair_name(audit, pair)}", PANEL, bottom + 18, join(parts))


_SHAPES = ("square", "circle", "triangle", "diamond", "cross", "bar-mark")


def _draw_mark(kind: str, x: float, y: float) -> Markup:
    """Return an SVG mark of *kind* (square, circle, triangle, diamond, cross, else a stroke) centred at (x, y)."""
    r = 4.5
    if kind == "square":
        return rect(x - 4, y - 4, 8, 8, "mark hue-0")
    if kind == "circle":
        return element("circle", cx=x, cy=y, r=r, class_="open hue-1")
    if kind == "triangle":
        return path(f"M{x:.1f} {y - 5} L{x + 5:.1f} {y + 4} L{x - 5:.1f} {y + 4} Z", "mark hue-2")
    if kind == "diamond":
        return path(f"M{x:.1f} {y - 5.5} L{x + 5.5:.1f} {y} L{x:.1f} {y + 5.5} L{x - 5.5:.1f} {y} Z", "open hue-3")
    if kind == "cross":
        return path(
            f"M{x - 4:.1f} {y - 4} L{x + 4:.1f} {y + 4} M{x - 4:.1f} {y + 4} L{x + 4:.1f} {y - 4}", "open hue-4"
        )
    return path(f"M{x:.1f} {y - 6} L{x:.1f} {y + 6}", "open hue-5")


def pooled_against_systems(audit: AuditReport) -> Figure:
    """Draw the mean score of the best methods per system, below their pooled mean (Figure 1)."""
    m = audit.matched
    macro = m.means.mean(axis=0)
    best = sorted(range(len(m.methods)), key=lambda j: (-macro[j], j))[:METHODS_SHOWN]
    systems = range(min(len(m.systems), SYSTEMS_SHOWN))
    axis = Axis(0.0, max(0.1, float(m.means.max())) * 1.04, _LABEL + 8, PANEL - 8)
    keys = 18.0 * ((len(best) + 1) // 2)
    top = keys + 10
    bottom = top + ROW * (len(systems) + 1)
    parts: list[Markup] = []
    for i, j in enumerate(best):
        x, y = 8 + (i % 2) * PANEL / 2, 10 + 18.0 * (i // 2)
        parts += [_draw_mark(_SHAPES[i], x, y), label(x + 12, y + 4, m.methods[j], 22)]
    for tick in axis.ticks(4):
        x = axis.pixel_at(tick)
        parts += [line(x, top, x, bottom, "grid"), text(x, bottom + 13, f"{100 * tick:.0f}%", "muted small", "middle")]
    rows = [("mean of systems", macro), *((m.systems[s], m.means[s]) for s in systems)]
    for r, (name, means) in enumerate(rows):
        y = top + ROW * (r + 0.5)
        parts.append(label(0, y + 4, name, _LETTERS, "ink" if r else "head"))
        values = [float(means[j]) for j in best]
        parts.append(line(axis.pixel_at(min(values)), y, axis.pixel_at(max(values)), y, "span"))
        parts += [_draw_mark(_SHAPES[i], axis.pixel_at(float(means[j])), y) for i, j in reversed(list(enumerate(best)))]
        if not r:
            parts.append(line(0, y + ROW / 2, PANEL, y + ROW / 2, "rule"))
    return Figure("pooled", "Mean score of each method, pooled and by system", PANEL, bottom + 18, join(parts))
