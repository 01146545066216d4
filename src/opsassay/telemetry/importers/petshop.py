"""PetShop (amazon-science/petshop-root-cause-analysis): metrics of an adoption site in epochs of 300 s.

A system is a folder with ``noissue/metrics.csv`` and ``{train,test}/issue_N/{metrics.csv,target.json}``. A metrics file
has three header rows (microservice, metric, statistic), a row with the name of the time column, then one row per epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import polars as pl

from opsassay.core.errors import DatapackError
from opsassay.core.schema.faults import NO_FAULT
from opsassay.core.schema.incident import Fault, Incident, RootLabel, Truth, Window
from opsassay.telemetry.datapack import read_object
from opsassay.telemetry.importers.cases import (
    ImportReport,
    OnCase,
    ReadCase,
    Source,
    at_ns,
    case_id,
    folders_below,
    import_sources,
    read_csv,
)
from opsassay.telemetry.schema import empty

EPOCH_S = 300
NO_ISSUE_ROWS = 5
"""Last rows of the no-issue file that serve as the abnormal period of the case without a fault."""

_NO_ISSUE = Path("noissue") / "metrics.csv"


def import_petshop(source: Path, out: Path, on_case: OnCase | None = None) -> ImportReport:
    """Import every issue of the systems in *source*, and one case without a fault per system, into the tree *out*.

    All no-issue rows are the normal period and all rows of the issue the abnormal one, also if it was recorded first. A
    microservice has its whole node string as its name; an empty cell is a row without a value. Without its no-issue
    file a system has no normal period, and its issues are reported as failed. Raises UserError when *source* holds no
    such system. *on_case* gets each case's name and outcome.
    """
    expected = "expected a system's folder with noissue/metrics.csv and test/issue_N, or a folder of those."
    systems = list(folders_below(source, _is_system, expected))
    return import_sources((case for system in systems for case in _list_sources(system)), out, on_case)


def _is_system(folder: Path) -> bool:
    """Return whether *folder* is one system of PetShop: it has test or train issues, or metrics without an issue."""
    return any((folder / split).is_dir() for split in ("test", "train")) or (folder / _NO_ISSUE).exists()


def _list_sources(system: Path) -> Iterator[Source]:
    """Yield a source for each issue of *system*, and one for its recording without an issue."""
    name = f"petshop-{system.name.replace('_', '-')}"
    usual = cache(lambda: _read_metrics_without_issue(system))
    for issue in sorted(system.glob("t*/issue_*"), key=lambda p: (p.parent.name, int(p.name.removeprefix("issue_")))):
        where = f"{system.name}/{issue.parent.name}/{issue.name}"
        read, notes = partial(_read_case, issue, name, usual), partial(_truth_notes, issue)
        yield Source(where, case_id("petshop", where), read, truth_notes=notes)
    if (system / _NO_ISSUE).exists():
        where = f"{system.name}/noissue"
        yield Source(where, case_id("petshop", where), partial(_without_fault, where, name, usual))


def _read_metrics_without_issue(system: Path) -> pl.DataFrame:
    """Return the metrics of the folder *system* without an issue; raises DatapackError when the file is missing."""
    path = system / _NO_ISSUE
    if not path.exists():
        raise DatapackError(
            f"{system} has no {_NO_ISSUE}, so nothing is known of its normal state; the public snapshot lacks it for "
            "the temporal systems: add the file or leave the system out."
        )
    return read_metrics(path)


def _read_case(issue: Path, system: str, load_normal: Callable[[], pl.DataFrame]) -> ReadCase:
    """Read the case *issue*; *load_normal* returns the metrics without an issue; raises DatapackError."""
    id_ = case_id("petshop", "/".join(issue.parts[-3:]))
    target = read_object(issue / "target.json")
    try:
        root, symptom = target["root_cause"], target["target"]
        label = RootLabel(service=(root["node"],), metric=(root["metric"],) if root.get("metric") else ())
        description = f"{symptom['metric']} ({symptom['agg']}) of {symptom['node']} violated its objective."
    except (KeyError, TypeError) as error:
        raise DatapackError(f"{issue / 'target.json'} lacks {error}; restore it from the source.") from error
    normal, abnormal = load_normal(), read_metrics(issue / "metrics.csv")
    incident = _make_incident(id_, system, normal, abnormal, description)
    truth = Truth(id=id_, system=system, roots=(label,), notes=_truth_notes(issue))
    return ReadCase(incident, truth, _frames_of_windows(normal, abnormal), {"namespace": system})


def _truth_notes(issue: Path) -> tuple[str, ...]:
    """Return the notes for the truth of *issue*: the text of its target.json."""
    return (f"target.json: {json.dumps(read_object(issue / 'target.json'), sort_keys=True)}",)


def _without_fault(folder_name: str, system: str, load_normal: Callable[[], pl.DataFrame]) -> ReadCase:
    """Return the case without a fault; the last NO_ISSUE_ROWS of its metrics stand for the abnormal period."""
    id_, usual = case_id("petshop", folder_name), load_normal()
    boundary = usual.get_column("time").unique().sort()[-NO_ISSUE_ROWS]
    normal, abnormal = usual.filter(pl.col("time") < boundary), usual.filter(pl.col("time") >= boundary)
    incident = _make_incident(id_, system, normal, abnormal, "")
    window = incident.abnormal
    nothing = Fault(type=NO_FAULT, service=None, start_ns=window.start_ns, end_ns=window.end_ns)
    note = f"the last {NO_ISSUE_ROWS} no-issue rows stand for the abnormal period"
    return ReadCase(
        incident, Truth(id=id_, system=system, faults=(nothing,), notes=(note,)), _frames_of_windows(normal, abnormal),
        {"namespace": system},
    )  # fmt: skip


def _make_incident(id_: str, system: str, normal: pl.DataFrame, abnormal: pl.DataFrame, description: str) -> Incident:
    """Return the incident *id_* whose windows are the time ranges of the metrics *normal* and *abnormal*."""
    return Incident(
        id=id_,
        system=system,
        normal=_window(normal),
        abnormal=_window(abnormal),
        description=description,
        provenance={"format": "petshop", "licence": "CC-BY-4.0"},
    )


def _window(metrics: pl.DataFrame) -> Window:
    """Return the time window of *metrics*: from the start of the first epoch to the end of the last one."""
    first, last = metrics.select(
        pl.col("time").dt.epoch("ns").min().alias("a"), pl.col("time").dt.epoch("ns").max().alias("b")
    ).row(0)
    return Window(start_ns=first, end_ns=last + EPOCH_S * 1_000_000_000)


def _frames_of_windows(normal: pl.DataFrame, abnormal: pl.DataFrame) -> Any:
    """Return the metrics *normal* and *abnormal*, and empty traces, by (period, modality)."""
    return {
        ("normal", "traces"): empty("traces"),
        ("abnormal", "traces"): empty("traces"),
        ("normal", "metrics"): normal,
        ("abnormal", "metrics"): abnormal,
    }


def read_metrics(path: Path) -> pl.DataFrame:
    """Return every cell of the CSV *path* below its header rows: time, service_name, metric (``metric:statistic``), value.

    A cell that is empty or no finite number is a row without a value. Raises DatapackError.
    """
    raw = read_csv(path, has_header=False)
    head = raw.head(4).rows()
    titles = [row[0] for row in head]
    if titles[:3] != ["microservice", "metric", "statistic"] or titles[3] != "unix_timestamp":
        raise DatapackError(
            f"{path} begins with {', '.join(map(str, titles))}; expected the rows microservice, metric, statistic, "
            "unix_timestamp."
        )
    columns = pl.DataFrame(
        {
            "column": raw.columns[1:],
            "service_name": head[0][1:],
            "metric": [f"{m}:{s}" for m, s in zip(head[1][1:], head[2][1:], strict=True)],
        }
    )
    cells = raw.slice(4).select(pl.all().cast(pl.Float64, strict=False)).rename({raw.columns[0]: "epoch"})
    if not cells.height or cells.get_column("epoch").null_count():
        raise DatapackError(f"{path} has no rows, or one without a time; restore it from the source.")
    finite = pl.when(pl.col("value").is_finite()).then("value")
    long = cells.unpivot(index="epoch", variable_name="column").join(columns, on="column", maintain_order="left")
    return long.select(time=at_ns(pl.col("epoch") * 1e9), service_name="service_name", metric="metric", value=finite)
