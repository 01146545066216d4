"""The matched table and the inclusion ledger: the methods and cases of an audit, chosen by coverage, not by scores."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.analysis.audit.settings import AuditSettings
from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.text import plural

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Labels:
    """The expected label of each case (n), and each method's answer (n x M)."""

    expected: NDArray[np.str_]
    predicted: NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Matched:
    """Scores of M methods on the same n cases of S systems; rows of a system stand together.

    *values* is n x M, scores in [0, 1], *sizes* the cases per system; *families* has one name per system. *covariates*
    maps names to one number per system. *variants* are further protocols of methods, (method, protocol) to n scores.
    """

    methods: tuple[str, ...]
    systems: tuple[str, ...]
    families: tuple[str, ...]
    sizes: NDArray[np.int64]
    values: Floats
    covariates: dict[str, Floats] = field(default_factory=dict)
    variants: dict[tuple[str, str], Floats] = field(default_factory=dict)
    primary: dict[str, str] = field(default_factory=dict)
    labels: Labels | None = None

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The index of the first row of each system."""
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    @cached_property
    def means(self) -> Floats:
        """The mean score, systems x methods."""
        return self.by_system(self.values)

    @property
    def cases(self) -> int:
        """The number of matched cases of all systems."""
        return int(self.sizes.sum())

    def by_system(self, values: Floats) -> Floats:
        """Return the mean per system of *values*, whose first axis is cases."""
        sums: Floats = np.add.reduceat(values, self.starts, axis=0)
        return sums / (self.sizes if values.ndim == 1 else self.sizes[:, None])

    def difference(self, a: int, b: int) -> Floats:
        """Return per case the score of method *a* minus that of method *b* (indices)."""
        out: Floats = self.values[:, a] - self.values[:, b]
        return out

    def pairs(self) -> list[tuple[int, int]]:
        """Return all pairs (a, b) of method indices with a < b, in table order."""
        return [(a, b) for a in range(len(self.methods)) for b in range(a + 1, len(self.methods))]

    def rows_of(self, systems: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return a boolean per row: whether its system is flagged in *systems* (a boolean per system)."""
        return np.repeat(systems, self.sizes)

    def only(self, systems: NDArray[np.bool_]) -> Matched:
        """Return the table with only the systems that are flagged in *systems* (a boolean per system)."""
        rows = self.rows_of(systems)
        return replace(
            self,
            systems=tuple(s for s, kept in zip(self.systems, systems, strict=True) if kept),
            families=tuple(f for f, kept in zip(self.families, systems, strict=True) if kept),
            sizes=self.sizes[systems],
            values=self.values[rows],
            covariates={name: values[systems] for name, values in self.covariates.items()},
            variants={key: values[rows] for key, values in self.variants.items()},
            labels=Labels(self.labels.expected[rows], self.labels.predicted[rows]) if self.labels else None,
        )


@dataclass(frozen=True)
class Admission:
    """One line of the inclusion ledger: whether a method's protocol is in the audit, its coverage, and the reason."""

    method: str
    protocol: str
    included: bool
    cases: int
    of_cases: int
    systems: int
    of_systems: int
    reason: str


@dataclass(frozen=True)
class Inclusion:
    """The matched table with its inclusion ledger, and remarks on families and systems."""

    matched: Matched
    ledger: tuple[Admission, ...]
    remarks: tuple[str, ...]


def match(long: pl.DataFrame, settings: AuditSettings, name: str = "the table") -> Inclusion:
    """Return the matched table of *long* (columns as `table.long_scores` gives them) and its inclusion ledger.

    A method is in it if it has a score on every case that any method has (leaderboard-audit, section 4.1); this is
    decided by coverage alone. A method with several protocols takes part with the one that covers most cases, the first
    of them in a tie; the others are kept as variants. Protocols of a method that never meet on a case are one. Systems
    keep the order of the table by family, cases are sorted by name, so that the order of rows changes nothing. Raises
    UserError when fewer than two methods are left, for a covariate that is lacking or is no finite number on some
    system, and for a case with several expected labels; NotFoundError for an unknown method in the setting `exclude`.
    """
    if long.is_empty():
        raise UserError(f"{name} has no case with a score: none was run, or all are void and grade no solver.")
    _check_known("exclude", settings.exclude, long.get_column("method"))
    kept = _fill_protocols(long).filter(~pl.col("method").is_in(list(settings.exclude)))
    if kept.is_empty():
        raise UserError(f"{name}: every method is excluded; take one out of the setting `exclude`.")
    cases = _case_table(kept)
    columns = kept.select("method", "protocol").unique(maintain_order=True).with_row_index("column")
    values = _build_score_matrix(kept, cases, columns)
    ledger, primary = _admit_methods(values, cases, columns)
    ledger += [_excluded_by_user(m) for m in settings.exclude]
    included = [a.method for a in ledger if a.included and primary[a.method] == a.protocol]
    if len(included) < 2:
        raise UserError(_explain_too_few(name, columns, ledger))
    index = {(m, p): int(i) for i, m, p in columns.iter_rows()}
    sizes = cases.group_by("system_index", maintain_order=True).len().get_column("len").to_numpy().astype(np.int64)
    about = cases.group_by("system_index", maintain_order=True).agg(pl.col("family", "system").first())
    matched = Matched(
        methods=tuple(included),
        systems=_label_systems(about),
        families=tuple(about.get_column("family")),
        sizes=sizes,
        values=np.ascontiguousarray(values[:, [index[m, primary[m]] for m in included]]),
        covariates=_covariate_means(kept, cases, settings.covariates, name),
        variants={
            (a.method, a.protocol): values[:, index[a.method, a.protocol]]
            for a in ledger
            if a.included and a.method in included and a.protocol != primary[a.method]
        },
        primary={m: primary[m] for m in included},
        labels=_read_labels(kept, cases, [(m, primary[m]) for m in included], name),
    )
    return Inclusion(matched, tuple(ledger), _remark_on_systems(matched))


def _fill_protocols(long: pl.DataFrame) -> pl.DataFrame:
    """Return *long* with protocols filled: "mixed" for a method with several that share no case."""
    if "protocol" not in long.columns:
        return long.with_columns(protocol=pl.lit("", dtype=pl.String))
    long = long.with_columns(pl.col("protocol").fill_null(""))
    cell = ["family", "system", "case", "method"]
    meets = long.select(pl.col("method"), pl.struct(cell).is_duplicated().alias("meets")).group_by("method")
    several = meets.agg(pl.col("meets").any()).join(
        long.group_by("method").agg(pl.col("protocol").n_unique().alias("count")), on="method"
    )
    mixed = several.filter(~pl.col("meets") & (pl.col("count") > 1)).get_column("method").to_list()
    return long.with_columns(
        protocol=pl.when(pl.col("method").is_in(mixed)).then(pl.lit("mixed")).otherwise(pl.col("protocol"))
    )


def _check_known(setting: str, names: tuple[str, ...], available: pl.Series) -> None:
    """Raise NotFoundError, naming *setting*, if one of *names* is not among *available*."""
    for asked in names:
        if asked not in set(available):
            raise NotFoundError("method" if setting == "exclude" else "system", asked, set(available))


def _case_table(long: pl.DataFrame) -> pl.DataFrame:
    """Return one row per case: systems grouped by family in table order, cases by name."""
    systems = long.select("family", "system").unique(maintain_order=True)
    families = systems.select("family").unique(maintain_order=True).with_row_index("family_index")
    systems = systems.join(families, on="family").sort("family_index", maintain_order=True)
    systems = systems.with_row_index("system_index").select("family", "system", "system_index")
    cases = long.select("family", "system", "case").unique().join(systems, on=["family", "system"])
    return cases.sort("system_index", "case").with_row_index("row")


def _build_score_matrix(long: pl.DataFrame, cases: pl.DataFrame, columns: pl.DataFrame) -> Floats:
    """Return the scores as (*cases*, *columns*), a column per method and protocol, NaN where there is none."""
    cells = (
        long.select("family", "system", "case", "method", "protocol", "score")
        .join(cases.select("family", "system", "case", "row"), on=["family", "system", "case"])
        .join(columns, on=["method", "protocol"])
        .select("row", "column", "score")
    )
    values = np.full((cases.height, columns.height), np.nan)
    values[cells["row"].to_numpy(), cells["column"].to_numpy()] = cells["score"].fill_null(np.nan).to_numpy()
    return values


def _admit_methods(
    values: Floats, cases: pl.DataFrame, columns: pl.DataFrame
) -> tuple[list[Admission], dict[str, str]]:
    """Return (a decision and reason for each of *columns*, method and protocol; method to its fullest protocol)."""
    there = ~np.isnan(values)
    system = cases.get_column("system_index").to_numpy()
    total = int(system.max()) + 1
    ledger = []
    best: dict[str, tuple[int, str]] = {}
    for column, method, protocol in columns.iter_rows():
        scored = there[:, column]
        lacking = np.bincount(system[~scored], minlength=total)
        full = bool(scored.all())
        reason = "scored on every case" if full else _describe_gap(lacking, cases)
        ledger.append(
            Admission(method, protocol, full, int(scored.sum()), len(scored), int((lacking == 0).sum()), total, reason)
        )
        if method not in best or int(scored.sum()) > best[method][0]:
            best[method] = (int(scored.sum()), protocol)
    return ledger, {method: protocol for method, (_, protocol) in best.items()}


def _describe_gap(lacking: NDArray[np.int64], cases: pl.DataFrame) -> str:
    """Return in words on how many cases a score is missing, and of which systems; *lacking*: number per system."""
    about = cases.group_by("system_index", maintain_order=True).agg(pl.col("family", "system").first())
    labels = _label_systems(about)
    gaps = [f"{int(n)} of {labels[i]}" for i, n in enumerate(lacking) if n]
    more = f" and of {len(gaps) - 3} further systems" if len(gaps) > 3 else ""
    return f"lacks a score on {plural(int(lacking.sum()), 'case')}: {', '.join(gaps[:3])}{more}"


def _excluded_by_user(method: str) -> Admission:
    """Return the ledger entry of *method*, which the user excluded."""
    return Admission(
        method, "", included=False, cases=0, of_cases=0, systems=0, of_systems=0, reason="set aside by hand"
    )


def _explain_too_few(name: str, columns: pl.DataFrame, ledger: list[Admission]) -> str:
    """Return a sentence: why fewer than two methods can be compared, and what the most complete other one lacks."""
    if columns.get_column("method").n_unique() < 2:
        return f"{name} has one method, {columns['method'][0]!r}; a comparison needs at least two."
    closest = sorted((a for a in ledger if not a.included), key=lambda a: -a.cases)[0]
    return (
        f"{name}: fewer than two methods are scored on all {closest.of_cases} cases; {closest.method!r} "
        f"{closest.reason}; score it there, or set aside the method whose cases the others lack (-c exclude=[NAME])."
    )


def _label_systems(systems: pl.DataFrame) -> tuple[str, ...]:
    """Return the names of *systems*, as "family/system" where two families have one of that name."""
    names = systems.get_column("system")
    doubled = names.is_duplicated()
    return tuple(
        f"{f}/{s}" if twice else s for f, s, twice in zip(systems.get_column("family"), names, doubled, strict=True)
    )


def _covariate_means(
    long: pl.DataFrame, cases: pl.DataFrame, covariates: tuple[str, ...], name: str
) -> dict[str, Floats]:
    """Return by covariate its mean per system; raises UserError for a missing or non-finite one."""
    found = {}
    for column in covariates:
        if column not in long.columns:
            raise UserError(f"{name} lacks the covariate {column!r}; it has {', '.join(long.columns)}.")
        by_case = (
            long.select("family", "system", "case", pl.col(column).cast(pl.Float64, strict=False))
            .group_by("family", "system", "case")
            .agg(pl.col(column).mean())
        )
        joined = cases.join(by_case, on=["family", "system", "case"], how="left").sort("row")
        by_system = joined.group_by("system_index", maintain_order=True).agg(pl.col(column).mean())[column]
        if by_system.null_count() or not by_system.is_finite().all():
            raise UserError(f"{name}: the covariate {column!r} is no finite number on some system; fill it in.")
        found[column] = by_system.to_numpy().astype(np.float64)
    return found


def _read_labels(long: pl.DataFrame, cases: pl.DataFrame, methods: list[tuple[str, str]], name: str) -> Labels | None:
    """Return predicted and expected labels; None if a case has no expected one; UserError for several."""
    if not {"predicted", "expected"} <= set(long.columns):
        return None
    keys = ["family", "system", "case"]
    expected = long.select(*keys, "expected").drop_nulls("expected").unique()
    if expected.select(keys).is_duplicated().any():
        first = expected.filter(expected.select(keys).is_duplicated()).sort(keys).row(0)
        raise UserError(f"{name}: case {first[2]!r} of {first[1]!r} has several expected labels; correct the table.")
    joined = cases.join(expected, on=keys, how="left").sort("row")
    if joined.get_column("expected").null_count():
        return None
    answers = [
        cases.join(long.filter((pl.col("method") == m) & (pl.col("protocol") == p)), on=keys, how="left")
        .sort("row")
        .get_column("predicted")
        .fill_null("")
        .to_numpy()
        .astype(np.str_)
        for m, p in methods
    ]
    return Labels(joined.get_column("expected").to_numpy().astype(np.str_), np.column_stack(answers))


def _remark_on_systems(matched: Matched) -> tuple[str, ...]:
    """Return remarks on what the table cannot show: one system, lone families, single cases, equal scores."""
    remarks = []
    families = dict.fromkeys(matched.families)
    lone = [f for f in families if matched.families.count(f) == 1]
    if len(matched.systems) == 1:
        remarks.append("There is one system: nothing can be said about how results vary between systems.")
    elif lone and len(families) > 1:
        remarks.append(f"Families with one system: {', '.join(lone)}. Family effect and system effect are one there.")
    if tiny := [s for s, n in zip(matched.systems, matched.sizes, strict=True) if n < 2]:
        remarks.append(f"Systems with one case, which has no variance of its own: {', '.join(tiny)}.")
    same = [m for j, m in enumerate(matched.methods) if np.ptp(matched.values[:, j]) == 0]
    if same:
        remarks.append(f"Methods with the same score on every case: {', '.join(same)}.")
    return tuple(remarks)
