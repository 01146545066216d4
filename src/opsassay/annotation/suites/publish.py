"""A suite as a data set in the form of the Hugging Face Hub: a card, parquet, checksums; it stays a suite that can be run.

Source: the Hub's dataset cards (YAML before a README, ``configs`` with ``data_files``), read by ``datasets.load_dataset``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from opsassay.annotation.suites.curate import CHECKSUMS, SUITE, copy_case, copy_incident, write_checksums
from opsassay.core.errors import UserError
from opsassay.core.schema.run import Suite
from opsassay.telemetry.content import TABLES, content_hash, whole_folder, write_table
from opsassay.telemetry.schema import SCHEMA
from opsassay.telemetry.tree import Case, Tree, read_noun, write_noun

INDEX = "incidents.parquet"
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))


def write_data_set(cases: Sequence[Case], source: Path, out: Path, *, license_: str, with_truth: bool) -> int:
    """Write *cases* of the suite or folder *source*, *with_truth* or without, to the new folder *out*; return their number.

    Holds README.md, incidents.parquet (a row for each incident), incidents/, truth/ if *with_truth*, suite.json where
    *source* is a suite, and SHA256SUMS. Cases without truth are left out if *with_truth*. Raises UserError when no case
    is left, DatapackError when *out* exists; nothing is written then.
    """
    chosen = [case for case in cases if case.truth is not None or not with_truth]
    if not chosen:
        raise UserError(
            f"{source} holds no incident{' with its truth' * with_truth}; give a folder made by "
            "`opsassay incident record`, `opsassay incident curate` or `opsassay incident import`."
        )
    suite = read_noun(Suite, source / SUITE) if (source / SUITE).exists() else None
    with whole_folder(out) as partial:
        tree = Tree(partial)
        for case in chosen:
            if with_truth:
                copy_case(case, tree)
            else:
                copy_incident(case, tree.incident_path(case.datapack.incident.id))
        write_table(partial / INDEX, _incident_table(chosen))
        if suite is not None:
            write_noun(partial / SUITE, suite)
        (partial / "README.md").write_text(
            _format_dataset_card(chosen, suite, out.name, license_, with_truth), encoding="utf-8"
        )
        write_checksums(partial)
    return len(chosen)


def _incident_table(cases: Sequence[Case]) -> pl.DataFrame:
    """Return a table with a row for each incident: its description, alerts and other public fields."""
    rows = [
        {
            "id": incident.id,
            "system": incident.system,
            "description": incident.description,
            "normal_start_ns": incident.normal.start_ns,
            "normal_end_ns": incident.normal.end_ns,
            "abnormal_start_ns": incident.abnormal.start_ns,
            "abnormal_end_ns": incident.abnormal.end_ns,
            "services": case.datapack.services(),
            "alerts": [alert.model_dump_json() for alert in incident.alerts],
            "content_hash": content_hash(case.datapack.path),
        }
        for case in cases
        for incident in [case.datapack.incident]
    ]
    return pl.DataFrame(rows, schema_overrides={"services": pl.List(pl.String), "alerts": pl.List(pl.String)})


def _format_dataset_card(cases: Sequence[Case], suite: Suite | None, name: str, license_: str, with_truth: bool) -> str:
    """Return the README of a published data set: YAML header, counts, datasheet, and whether it holds the truth."""
    size = next((words for most, words in _SIZES if len(cases) < most), "n>100K")
    head = {
        "pretty_name": suite.name if suite else name,
        "license": license_,
        "tags": ["observability", "root-cause-analysis", "opsassay"],
        "size_categories": [size],
        "configs": _dataset_configs(cases),
    }
    truth = (
        "`truth/ID/` holds the faults and the verified cascade: keep it from whoever is graded."
        if with_truth
        else "The truth is not part of it: answers are graded by whoever published it."
    )
    canary = f"\nDo not train on it: {suite.canary}\n" if suite else ""
    sheet = yaml.safe_dump(suite.datasheet, sort_keys=False) if suite else ""
    return Path(__file__).with_name("card.txt").read_text(encoding="utf-8").format(
        head=yaml.safe_dump(head, sort_keys=False), name=head["pretty_name"], incidents=len(cases), truth=truth,
        canary=canary, sheet=f"\n## Datasheet\n\n```yaml\n{sheet}```\n" if sheet else "", index=INDEX, checksums=CHECKSUMS,
    )  # fmt: skip


def _dataset_configs(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Return the configurations for `datasets.load_dataset`: the index, and each kind of table, split by incident."""
    found: list[dict[str, Any]] = [{"config_name": "incidents", "data_files": INDEX, "default": True}]
    for table in TABLES:
        files = [
            {"split": case.datapack.incident.id, "path": f"incidents/{case.datapack.incident.id}/{table}"}
            for case in cases
            if _has_rows(case.datapack.path / table)
        ]
        if files:
            kind = table.removesuffix(".parquet")
            columns = list(SCHEMA[kind.partition("_")[2]])  # others differ from incident to incident
            found.append({"config_name": kind, "data_files": files, "columns": columns})
    return found


def _has_rows(table: Path) -> bool:
    """Return whether the parquet file *table* exists and has rows."""
    return table.exists() and bool(pl.scan_parquet(table).select(pl.len()).collect().item())
