"""Compares printed figures with those computed from their table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.analysis.audit.audit import AuditReport
from opsassay.analysis.audit.families import family_spread
from opsassay.analysis.audit.interaction import likelihood_ratio
from opsassay.analysis.audit.pooled import RandomEffects, random_effects
from opsassay.analysis.audit.selection import POOLINGS, leave_one_family_out, leave_one_system_out
from opsassay.core.errors import NotFoundError, UserError

Floats = NDArray[np.float64]
PRINTED_COLUMNS = ("figure", "first", "second", "system", "printed")
_ORIENTED = {"effect": "effect", "ci_low": "ci_high", "ci_high": "ci_low", "mean_effect": "mean_effect"} | {
    "prediction_low": "prediction_high",
    "prediction_high": "prediction_low",
}
"""Figures that change sign when a pair is reversed -> their names then."""

Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class LedgerPair:
    """Printed effects and intervals of one pair by system, in percentage points."""

    a: str
    b: str
    effect: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class PrintedLedger:
    """A per-system table as papers print it (leaderboard-audit, Table 4): means as fractions, effects in points."""

    families: tuple[str, ...]
    systems: tuple[str, ...]
    sizes: NDArray[np.int64]
    means: dict[str, Floats]
    pairs: tuple[LedgerPair, ...]


@dataclass(frozen=True)
class Checked:
    """One compared figure; *recomputed* is None if the table does not determine it, *printed* if it is not printed."""

    figure: str
    first: str
    second: str
    system: str
    printed: float | None
    recomputed: float | None
    difference: float | None


def is_ledger(table: pl.DataFrame) -> bool:
    """Return whether *table* has the columns of a per-system ledger: system and n, but no case."""
    return {"system", "n"} <= set(table.columns) and "case" not in table.columns


def is_printed_list(table: pl.DataFrame) -> bool:
    """Return whether *table* has one printed figure per row."""
    return {"figure", "printed"} <= set(table.columns)


def read_ledger(table: pl.DataFrame, name: str) -> PrintedLedger:
    """Return the ledger in *table*.

    Columns: family, system, n, one column of means per method (``mean:NAME``, or any name before the first effect),
    effects ``delta_pp:A:B`` or ``delta_A_B_pp``, each followed by two columns that end in ci_low and ci_high. Or a row
    per system and method, with the columns method and mean. Raises UserError.
    """
    if {"method", "mean"} <= set(table.columns):
        table = _pivot_means(table, name)
    first = next((i for i, c in enumerate(table.columns) if c.startswith("delta_")), len(table.columns))
    methods = {c.removeprefix("mean:"): c for c in table.columns[:first] if c not in {"family", "system", "n"}}
    pairs = []
    for i, column in enumerate(table.columns):
        if not column.startswith("delta_"):
            continue
        around = table.columns[i + 1 : i + 3]
        if len(around) < 2 or "ci_low" not in around[0] or "ci_high" not in around[1]:
            raise UserError(f"{name}: {column} is not followed by its interval (…ci_low, …ci_high); add the columns.")
        a, b = _split_pair(column, methods, name)
        pairs.append(LedgerPair(a, b, *(_read_numbers(table, c, name) for c in (column, *around))))
    given = {method: _read_numbers(table, column, name) for method, column in methods.items()}
    for method, values in given.items():
        if ((values < 0) | (values > 1)).any():
            raise UserError(f"{name}: a mean of {method} lies outside [0, 1]; divide percentages by 100.")
    families = table.get_column("family") if "family" in table.columns else pl.Series(["all"] * table.height)
    return PrintedLedger(
        families=tuple(families.cast(pl.String)),
        systems=tuple(table.get_column("system").cast(pl.String)),
        sizes=_read_numbers(table, "n", name).astype(np.int64),
        means=given,
        pairs=tuple(pairs),
    )


def _pivot_means(table: pl.DataFrame, name: str) -> pl.DataFrame:
    """Return *table*, with one mean per row, with one column per method; UserError for inconsistent rows."""
    about = [c for c in ("family", "system") if c in table.columns]
    twice = table.select([*about, "method"]).is_duplicated().arg_true()
    if len(twice):
        raise UserError(f"{name}, row {int(twice[0]) + 1}: this system and method occur more than once; keep one mean.")
    if (several := table.group_by(about).agg(pl.col("n").n_unique()).filter(pl.col("n") > 1)).height:
        system = several.get_column("system")[0]
        raise UserError(
            f"{name}: the methods of {system} are over different n, so they are not matched; none is compared."
        )
    wide = table.pivot("method", index=[*about, "n"], values="mean")
    return wide.rename({c: f"mean:{c}" for c in wide.columns if c not in (*about, "n")})


def _split_pair(column: str, methods: Iterable[str], name: str) -> tuple[str, str]:
    """Return the two of *methods* in a column name such as "delta_A_B_pp"; raises UserError."""
    pair = re.sub(r"^delta_(pp:)?|_pp$", "", column)
    for a in methods:
        for b in methods:
            if pair in {f"{a}:{b}", f"{a}_{b}"}:
                return a, b
    raise UserError(f"{name}: {column} names no two of the methods {', '.join(methods)}; call it delta_A_B_pp.")


def _read_numbers(table: pl.DataFrame, column: str, name: str) -> Floats:
    """Return *column* as numbers; raises UserError with the row of the first value that is no number."""
    values = table.get_column(column).cast(pl.Float64, strict=False)
    wrong = (values.is_null() | ~values.is_finite()).arg_true()
    if len(wrong):
        raise UserError(f"{name}, row {int(wrong[0]) + 1}: {column} is not a number; correct it.")
    return values.to_numpy().astype(np.float64)


def ledger_figures(ledger: PrintedLedger) -> dict[Key, float]:
    """Return every figure that a printed ledger determines, percentages and percentage points as papers print them.

    Effects come from the means; I2 and the prediction interval from the printed effects, with the variance
    ((high - low) / 3.92)^2 of each printed interval.
    """
    found: dict[Key, float] = {}
    for method, means in ledger.means.items():
        found |= {("mean", method, "", s): float(v) for s, v in zip(ledger.systems, means, strict=True)}
    for pair in ledger.pairs:
        variance = ((pair.high - pair.low) / 3.92) ** 2
        if (variance > 0).all():
            found |= _pooled_figures(pair.a, pair.b, random_effects(pair.effect, variance), 1.0)
    names = list(ledger.means)
    for a, b in ((a, b) for i, a in enumerate(names) for b in names[i + 1 :]):
        means = np.column_stack([ledger.means[a], ledger.means[b]])
        found |= _mean_figures(a, b, means, ledger.sizes, ledger.systems, ledger.families)
    return found


def audit_figures(audit: AuditReport) -> dict[Key, float]:
    """Return every figure of an audit of case-level scores, in the units of `ledger_figures`."""
    m = audit.matched
    found: dict[Key, float] = {}
    for j, method in enumerate(m.methods):
        found |= {("mean", method, "", s): float(v) for s, v in zip(m.systems, m.means[:, j], strict=True)}
    for pair in audit.pairs:
        a, b = m.methods[pair.a], m.methods[pair.b]
        found |= _mean_figures(a, b, m.means[:, [pair.a, pair.b]], m.sizes, m.systems, m.families)
        found |= _pooled_figures(a, b, pair.pooled, 100.0)
        for s, system in enumerate(m.systems):
            found["ci_low", a, b, system] = 100 * float(pair.low[s])
            found["ci_high", a, b, system] = 100 * float(pair.high[s])
    return {key: value for key, value in found.items() if np.isfinite(value)}


def _pooled_figures(a: str, b: str, pooled: RandomEffects, scale: float) -> dict[Key, float]:
    """Return the figures pooled over systems by (figure, a, b, system); effects times *scale*, I2 in percent."""
    return {
        ("i2", a, b, ""): 100 * float(pooled.i2),
        ("q", a, b, ""): float(pooled.q),
        ("mean_effect", a, b, ""): scale * float(pooled.mean),
        ("prediction_low", a, b, ""): scale * float(pooled.prediction_low),
        ("prediction_high", a, b, ""): scale * float(pooled.prediction_high),
    }


def _mean_figures(
    a: str, b: str, means: Floats, sizes: NDArray[np.int64], systems: tuple[str, ...], families: tuple[str, ...]
) -> dict[Key, float]:
    """Return the figures that follow from *means* (systems x 2 methods) by (figure, a, b, system); shares in points."""
    effect = means[:, 0] - means[:, 1]
    found: dict[Key, float] = {("effect", a, b, s): 100 * float(e) for s, e in zip(systems, effect, strict=True)}
    if len(systems) > 1:
        for pooling in POOLINGS:
            regret = leave_one_system_out(effect, sizes, pooling).summary()
            suffix = "" if pooling == "macro" else f"_{pooling}"
            found[f"reversals{suffix}", a, b, ""] = regret.reversals
            found[f"mean_regret{suffix}", a, b, ""] = 100 * regret.mean_regret
            found[f"max_regret{suffix}", a, b, ""] = 100 * regret.max_regret
        test = likelihood_ratio(means, sizes)
        if test.statistic is not None and test.p is not None:
            found |= {("lrt", a, b, ""): test.statistic, ("df", a, b, ""): test.df, ("p", a, b, ""): test.p}
    spread = family_spread(effect, families)
    if spread.families > 1:
        held_out = leave_one_family_out(effect, families).summary()
        found["family_reversals", a, b, ""] = held_out.reversals
        found["family_sign_changes", a, b, ""] = spread.sign_changes
        found["max_family_range", a, b, ""] = 100 * spread.max_range
        if spread.between_share is not None:
            found["between_family_share", a, b, ""] = 100 * spread.between_share
    return found


def check_ledger(ledger: PrintedLedger, figures: dict[Key, float], *, same: bool) -> list[Checked]:
    """Return each printed figure of *ledger* compared with *figures*, then *figures* over all systems, unprinted.

    *same*: the figures were computed from the ledger itself, so that only its effects are compared.
    """
    printed: list[tuple[Key, float]] = []
    for method, means in ledger.means.items():
        printed += [(("mean", method, "", s), v) for s, v in zip(ledger.systems, means, strict=True) if not same]
    for pair in ledger.pairs:
        for i, system in enumerate(ledger.systems):
            printed.append((("effect", pair.a, pair.b, system), pair.effect[i]))
            if not same:
                printed.append((("ci_low", pair.a, pair.b, system), pair.low[i]))
                printed.append((("ci_high", pair.a, pair.b, system), pair.high[i]))
    checked = [_check_figure(key, float(value), figures) for key, value in printed]
    rest = [key for key in figures if not key[3]]
    return checked + [Checked(*key, printed=None, recomputed=figures[key], difference=None) for key in rest]


def check_list(table: pl.DataFrame, figures: dict[Key, float], name: str) -> list[Checked]:
    """Return each printed figure in *table* compared with *figures*; raises NotFoundError, UserError naming *name*."""
    known = {key[0] for key in figures}
    table = table.with_columns(pl.lit("").alias(c) for c in PRINTED_COLUMNS[:-1] if c not in table.columns)
    printed = _read_numbers(table, "printed", name)
    checked = []
    for row, value in zip(table.select(PRINTED_COLUMNS[:-1]).fill_null("").iter_rows(), printed, strict=True):
        figure, *names = (str(part).strip() for part in row)
        if figure not in known:
            raise NotFoundError("figure", figure, known)
        checked.append(_check_figure((figure, names[0], names[1], names[2]), float(value), figures))
    return checked


def _check_figure(key: Key, printed: float, figures: dict[Key, float]) -> Checked:
    """Return *printed* with the figure of *key* (figure, a, b, system) in *figures*, None where it is not there."""
    value = next(_find_matching_figures(key, figures), None)
    return Checked(*key, printed=printed, recomputed=value, difference=None if value is None else value - printed)


def _find_matching_figures(key: Key, figures: dict[Key, float]) -> Iterator[float]:
    """Yield the figure of *key*, then that of the reversed pair, with its sign adapted; nothing if neither exists."""
    figure, a, b, system = key
    if key in figures:
        yield figures[key]
    turned = (_ORIENTED.get(figure, figure), b, a, system)
    if turned in figures and b:
        yield -figures[turned] if figure in _ORIENTED else figures[turned]
