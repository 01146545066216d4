"""An audit as tables and JSON: plain values only, None where a statistic is undefined."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from opsassay.analysis.audit.audit import AuditReport, PairAudit
from opsassay.analysis.audit.baselines import CHANCE
from opsassay.analysis.audit.interaction import Test
from opsassay.analysis.audit.selection import HeldOut, Pooling
from opsassay.scoring.rates import wilson
from opsassay.telemetry.content import whole_file

Row = dict[str, Any]

TABLES = (
    "inclusion",
    "methods",
    "effects",
    "pairs",
    "regret",
    "families",
    "interaction",
    "scenarios",
    "covariates",
    "protocols",
    "protocol_gaps",
    "recommendations",
    "power",
    "ledger",
)
"""Every table that an audit can have; empty ones are not written."""


def finite(value: Any) -> Any:
    """Return *value* in plain Python types, with None for every NaN and infinity."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: finite(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return finite(value.item()) if value.ndim == 0 else [finite(v) for v in value.tolist()]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return value


def pair_item(audit: AuditReport, pair: PairAudit) -> Row:
    """Return the audit of one pair as JSON-ready data; effects are first method minus second, as fractions."""
    names, pooled = audit.matched.methods, pair.pooled
    effects = {
        row["system"]: {k: v for k, v in row.items() if k not in ("first", "second", "system")}
        for row in effect_rows(audit, pair)
    }
    return dict(
        finite(
            {
                "pair": [names[pair.a], names[pair.b]],
                "effects": effects,
                "signs": dict(zip(("positive", "negative", "zero"), pair.signs, strict=True)),
                "mean": pooled.mean,
                "interval": _interval_or_none(pooled.low, pooled.high),
                "prediction_interval": _interval_or_none(pooled.prediction_low, pooled.prediction_high),
                "q": pooled.q,
                "q_p": pooled.q_p,
                "i2": pooled.i2,
                "i2_tau2": pooled.i2_tau2,
                "tau2": pooled.tau2,
                "tau2_dl": pooled.tau2_dl,
                "hksj_scale": pooled.scale,
                "loso": {pooling: _loso_row(audit, pair, pooling) for pooling in pair.loso},
                "lofo": _lofo_row(audit, pair),
                "leave_two_out": pair.two_out,
                "one_left_out": pair.one_left_out,
                "two_left_out": pair.two_left_out,
                "interaction": _interaction_row(pair),
                "scenarios": pair.scenarios,
                "nested": pair.nested,
            }
        )
    )


def _interval_or_none(low: Any, high: Any) -> list[float] | None:
    """Return [low, high], None when *low* is not a number."""
    return None if np.isnan(low) else [float(low), float(high)]


def _loso_row(audit: AuditReport, pair: PairAudit, pooling: Pooling) -> Row | None:
    """Return reversals and regret of leaving each system out in turn, pooled by *pooling*; None with one system."""
    held_out = pair.loso[pooling]
    if len(audit.matched.systems) < 2:
        return None
    interval = pair.regret_intervals.get(pooling)
    found: Row = {**finite(held_out.summary()), "reversed_systems": _names_of_reversed(audit.matched.systems, held_out)}
    return found | ({"mean_regret_interval": list(interval)} if interval else {})


def _lofo_row(audit: AuditReport, pair: PairAudit) -> Row | None:
    """Return reversals and regret of leaving each family out in turn, and the spread between families."""
    families = tuple(dict.fromkeys(audit.matched.families))
    spread: Row = finite(pair.spread)
    if len(families) < 2:
        return spread | {"reversals": None, "mean_regret": None, "max_regret": None, "reversed_families": []}
    return {**finite(pair.lofo.summary()), "reversed_families": _names_of_reversed(families, pair.lofo), **spread}


def _names_of_reversed(names: Iterable[str], held_out: HeldOut) -> list[str]:
    """Return those of *names*, one per entry of *held_out*, where the method that the others choose is worse."""
    return [name for name, wrong in zip(names, held_out.reversed, strict=True) if wrong]


def _interaction_row(pair: PairAudit) -> Row:
    """Return the main interaction test and its variants, JSON-ready."""
    main = pair.interaction["fractional_logit"]
    return {
        "lrt": main.statistic,
        "df": main.df,
        "p": main.p,
        "p_holm": pair.holm_p,
        "mcfadden": main.mcfadden,
        "mcfadden_without": main.mcfadden_without,
        "reason": main.reason,
        "permutation_p": pair.permutation_p,
        "wald_left_out": list(pair.wald_left_out),
        "variants": {name: _test_as_row(test) for name, test in pair.interaction.items() if name != "fractional_logit"},
    }


def _test_as_row(test: Test) -> Row:
    """Return statistic, df, p and reason of *test* by name."""
    return {"statistic": test.statistic, "df": test.df, "p": test.p, "reason": test.reason}


def effect_rows(audit: AuditReport, pair: PairAudit) -> list[Row]:
    """Return one row per system: effect, variance, interval, weight, and the regret of the choice by the others.

    *weight* = 1 / (variance + tau2); effects, intervals and regrets are fractions, first method minus second.
    """
    m = audit.matched
    macro = pair.loso["macro"]
    several = len(m.systems) > 1
    return [
        {
            "first": m.methods[pair.a],
            "second": m.methods[pair.b],
            "family": m.families[s],
            "system": m.systems[s],
            "n": int(m.sizes[s]),
            "effect": float(pair.paired.effect[s]),
            "variance": float(pair.paired.variance[s]),
            "zero_variance_rule": bool(pair.paired.adjusted[s]),
            "low": float(pair.low[s]),
            "high": float(pair.high[s]),
            "excludes_zero": bool(pair.low[s] > 0 or pair.high[s] < 0),
            "weight": float(1 / (pair.paired.variance[s] + np.nan_to_num(float(pair.pooled.tau2)))),
            "regret_macro": float(macro.regret[s]) if several else None,
            "regret_weighted": float(pair.loso["weighted"].regret[s]) if several else None,
            "winner_kept": float(pair.stability.winner_kept[s]),
            "reversal_kept": float(pair.stability.reversal_kept[s]) if several else None,
            "contrast": finite(pair.contrasts.contrast[s]),
            "contrast_low": finite(pair.contrasts.low[s]),
            "contrast_high": finite(pair.contrasts.high[s]),
            "contrast_permutation_p": finite(pair.contrasts.p[s]),
        }
        for s in range(len(m.systems))
    ]


def tables(audit: AuditReport) -> dict[str, pl.DataFrame]:
    """Return every table of the audit by file name without suffix; undefined values are null."""
    m = audit.matched
    pair_names = [(m.methods[p.a], m.methods[p.b]) for p in audit.pairs]
    rows: dict[str, list[Row]] = {
        "inclusion": [finite(a) for a in audit.ledger],
        "methods": _method_rows(audit),
        "effects": [row for pair in audit.pairs for row in effect_rows(audit, pair)],
        "pairs": [_pair_row(audit, pair) for pair in audit.pairs],
        "regret": [
            {"first": a, "second": b, "pooling": pooling, **_flatten_row(_loso_row(audit, pair, pooling))}
            for pair, (a, b) in zip(audit.pairs, pair_names, strict=True)
            for pooling in pair.loso
            if len(m.systems) > 1
        ],
        "families": [
            {"first": a, "second": b, **_flatten_row(_lofo_row(audit, pair))}
            for pair, (a, b) in zip(audit.pairs, pair_names, strict=True)
        ],
        "interaction": _interaction_rows(audit),
        "scenarios": [_flatten_row(finite(s)) for pair in audit.pairs for s in pair.scenarios],
        "covariates": [
            {"first": a, "second": b, **row}
            for pair, (a, b) in zip(audit.pairs, pair_names, strict=True)
            for row in _nested_rows(pair)
        ],
        "protocols": [finite(p) for p in audit.protocols],
        "protocol_gaps": [finite(g) for g in audit.protocol_gaps],
        "recommendations": [_flatten_row(finite(r)) for r in audit.recommendations],
        "power": [finite(p) for p in audit.power],
    }
    found = {name: pl.DataFrame(given, infer_schema_length=None) for name, given in rows.items() if given}
    return {**found, "ledger": ledger_table(audit)}


def _flatten_row(row: Row | None) -> Row:
    """Return *row* for CSV: lists of names joined by "; ", the regret interval as two fields."""
    joined = {
        k: "; ".join(map(str, v)) if isinstance(v, list) and k.startswith(("reversed", "cand")) else v
        for k, v in (row or {}).items()
    }
    interval = joined.pop("mean_regret_interval", None)
    if interval:
        joined |= {"mean_regret_low": interval[0], "mean_regret_high": interval[1]}
    return joined


def _method_rows(audit: AuditReport) -> list[Row]:
    """Return mean and Wilson's interval of each method on each system, reference rows (chance, constant) included.

    The chance row is an expectation and has no interval.
    """
    refs, level = audit.references, audit.settings.confidence
    rows = []
    for j, method in enumerate(refs.methods):
        baseline = j >= len(audit.matched.methods) or method in audit.settings.baselines
        modal = audit.modal[:, j] if audit.modal is not None and j < audit.modal.shape[1] else None
        for s, system in enumerate(refs.systems):
            mean, n = float(refs.means[s, j]), int(refs.sizes[s])
            low, high = (None, None) if method == CHANCE else wilson(mean * n, n, level)
            rows.append(
                {
                    "method": method,
                    "baseline": baseline,
                    "family": refs.families[s],
                    "system": system,
                    "n": n,
                    "mean": mean,
                    "low": low,
                    "high": high,
                    "modal_share": float(modal[s]) if modal is not None else None,
                }
            )
    return rows


def _pair_row(audit: AuditReport, pair: PairAudit) -> Row:
    """Return the pair's figures as a row of a CSV table."""
    item = pair_item(audit, pair)
    low, high = item["interval"] or (None, None)
    prediction_low, prediction_high = item["prediction_interval"] or (None, None)
    kept = ("mean", "q", "q_p", "i2", "i2_tau2", "tau2", "tau2_dl", "hksj_scale")
    return {
        "first": item["pair"][0],
        "second": item["pair"][1],
        **item["signs"],
        **{key: item[key] for key in kept},
        "interval_low": low,
        "interval_high": high,
        "prediction_low": prediction_low,
        "prediction_high": prediction_high,
        **{f"{name}_{k}": v for name in ("one_left_out", "two_left_out") for k, v in (item[name] or {}).items()},
        **{f"two_out_{k}": v for k, v in (item["leave_two_out"] or {}).items()},
    }


def _interaction_rows(audit: AuditReport) -> list[Row]:
    """Return a row per interaction test: of all methods first, then of each pair."""
    blank = {"p_holm": None, "mcfadden": None, "mcfadden_without": None}
    rows = [
        {
            "first": "all methods",
            "second": "",
            "model": name,
            **_test_as_row(test),
            **blank,
            "mcfadden": test.mcfadden,
            "mcfadden_without": test.mcfadden_without,
        }
        for name, test in audit.omnibus.items()
    ]
    rows.append(
        {
            "first": "all methods",
            "second": "",
            "model": "cluster-robust Wald",
            **_test_as_row(audit.omnibus_wald.test),
            **blank,
        }
    )
    for pair in audit.pairs:
        names = {"first": audit.matched.methods[pair.a], "second": audit.matched.methods[pair.b]}
        for model, test in pair.interaction.items():
            main = model == "fractional_logit"
            rows.append(
                {
                    **names,
                    "model": model,
                    **_test_as_row(test),
                    "p_holm": pair.holm_p if main else None,
                    "mcfadden": test.mcfadden,
                    "mcfadden_without": test.mcfadden_without,
                }
            )
        rows.append({**names, "model": "permutation", **_test_as_row(Test(None, 0, pair.permutation_p)), **blank})
    return [finite(row) for row in rows]


def _nested_rows(pair: PairAudit) -> list[Row]:
    """Return a row per test of the nested models, [] when there was none."""
    if pair.nested is None:
        return []
    rows = [
        {"test": "Y against X: covariates x method", **_test_as_row(pair.nested.y_against_x), "absorbed": None},
        {"test": "Z against Y: residual systems", **_test_as_row(pair.nested.z_against_y), "absorbed": None},
    ]
    return rows + [
        {"test": f"Z against Y without {name}", **_test_as_row(Test(None, 0, None)), "absorbed": share}
        for name, share in pair.nested.absorbed.items()
    ]


def ledger_table(audit: AuditReport) -> pl.DataFrame:
    """Return a table with a row per system: n, means, effects with intervals (leaderboard-audit, Table 4)."""
    m = audit.matched
    columns: dict[str, Any] = {"family": m.families, "system": m.systems, "n": m.sizes}
    columns |= {f"mean:{name}": m.means[:, j] for j, name in enumerate(m.methods)}
    for pair in audit.pairs:
        name = f"{m.methods[pair.a]}:{m.methods[pair.b]}"
        columns |= {f"delta_pp:{name}": 100 * pair.paired.effect}
        columns |= {f"ci_low:{name}": 100 * pair.low, f"ci_high:{name}": 100 * pair.high}
    return pl.DataFrame(columns)


def as_json(audit: AuditReport) -> Row:
    """Return the whole audit as one JSON object, as ``--json`` prints it and audit.json stores it."""
    m = audit.matched
    return {
        "systems": list(m.systems),
        "families": dict(zip(m.systems, m.families, strict=True)),
        "methods": list(m.methods),
        "excluded": [finite(a) for a in audit.ledger if not a.included],
        "claim": audit.claim,
        "remarks": list(audit.remarks),
        "omnibus": {name: _test_as_row(test) for name, test in audit.omnibus.items()}
        | {"cluster-robust Wald": _test_as_row(audit.omnibus_wald.test)},
        "recommendations": [finite(r) for r in audit.recommendations],
        "protocols": [finite(p) for p in audit.protocol_gaps],
        "settings": audit.settings.model_dump(mode="json"),
        "items": [pair_item(audit, pair) for pair in audit.pairs],
    }


def write_tables(audit: AuditReport, folder: Path) -> list[Path]:
    """Write every table as CSV and JSON into ``folder/tables``, and audit.json into *folder*; return the files."""
    target = folder / "tables"
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, table in tables(audit).items():
        for suffix, text in (("csv", table.write_csv()), ("json", _format_json(table.to_dicts()))):
            written.append(write_text(target / f"{name}.{suffix}", text))
    written.append(
        write_text(folder / "audit.json", _format_json({"command": "audit", "schema_version": 1, **as_json(audit)}))
    )
    return written


def write_text(path: Path, text: str) -> Path:
    """Write *text* to *path* atomically; return *path*."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def _format_json(value: Any) -> str:
    """Return *value* as JSON with a final newline; raises ValueError for NaN."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
