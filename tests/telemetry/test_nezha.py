"""Nezha's importer on days whose no-fault recording is of another hour, and holds no metrics or its own."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from opsassay.telemetry.importers.nezha import import_nezha
from opsassay.telemetry.tree import Tree

DAY = "2024-03-05"
QUIET, FAULT, EARLIER = (datetime(2024, 3, 5, h, m, tzinfo=UTC) for h, m in ((17, 0), (9, 30), (9, 20)))


def _write(path: Path, header: str, rows: list[list[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows([header.split(","), *rows])


def _traces(folder: Path, at: datetime) -> None:
    begun = int(at.timestamp() * 1e9)
    rows = [
        [f"{n:032x}", f"{n:016x}", "root", "cart-5d-x1", "GET /cart", begun + n * 10**9, begun + n * 10**9 + 5, 5]
        for n in range(1, 50)
    ]
    header = "TraceID,SpanID,ParentID,PodName,OperationName,StartTimeUnixNano,EndTimeUnixNano,Duration"
    _write(folder / "trace" / f"{at:%H_%M}_trace.csv", header, rows)
    line = json.dumps({"log": json.dumps({"message": "it failed", "severity": "error"}), "stream": "stdout"})
    logs = [["", begun + 10**9, "n", "cart-5d-x1", "server", "a", "b", line]]
    _write(
        folder / "log" / f"{at:%H_%M}_log.csv", "Timestamp,TimeUnixNano,Node,PodName,Container,TraceID,SpanID,Log", logs
    )


def _metrics(folder: Path, begin: datetime, minutes: int) -> None:
    times = [begin + timedelta(minutes=n, seconds=20) for n in range(minutes)]
    rows = [[str(t), int(t.timestamp()), "cart-5d-x1", t.minute] for t in times]
    _write(folder / "metric" / "cart-5d-x1_metric.csv", "Time,TimeStamp,PodName,CpuUsage(m)", rows)


def _day(root: Path, *, with_faults: bool = True, without: bool = False) -> Path:
    day = root / "rca_data" / DAY
    _traces(day, FAULT)
    _traces(root / "construct_data" / DAY, QUIET)
    if with_faults:
        _metrics(day, FAULT - timedelta(minutes=20), 30)
    if without:
        _metrics(root / "construct_data" / DAY, QUIET, 1)
    faults = [
        {"inject_time": f"{at:%Y-%m-%d %H:%M:%S}", "inject_pod": "cart-5d-x1", "inject_type": "cpu_consumed"}
        for at in (EARLIER, FAULT)
    ]
    (day / f"{DAY}-fault_list.json").write_text(json.dumps({"09": faults}))
    return day


def _normal_minutes(report, out: Path) -> list[str]:
    (id_,) = (id_ for name, id_ in report.imported if "09:30" in name)
    times = Tree(out).datapack(id_).read("normal", "metrics").get_column("time")
    return [f"{time:%H:%M}" for time in times]


@pytest.mark.parametrize("below", ["", "rca_data", f"rca_data/{DAY}"])
def test_normal_metrics_are_of_the_quiet_minutes_before_whichever_folder_is_given(tmp_path, below):
    _day(tmp_path / "in")
    report = import_nezha(tmp_path / "in" / below, tmp_path / "out")
    assert _normal_minutes(report, tmp_path / "out") == [f"09:{m}" for m in range(24, 30)], (
        "none under the fault before"
    )


def test_the_folder_is_found_from_inside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(_day(tmp_path / "in"))
    assert _normal_minutes(import_nezha(Path(), tmp_path / "out"), tmp_path / "out")


def test_metrics_of_the_no_fault_recording_are_read(tmp_path):
    _day(tmp_path / "in", without=True)
    report = import_nezha(tmp_path / "in", tmp_path / "out")
    assert "17:00" in _normal_minutes(report, tmp_path / "out")


def test_a_modality_of_one_window_alone_is_in_the_notes(tmp_path):
    _day(tmp_path / "in", with_faults=False, without=True)
    notes = dict(import_nezha(tmp_path / "in", tmp_path / "out").notes)
    assert "metrics of the normal window alone" in notes[f"{DAY} 09:30:00"]


def test_the_level_of_a_line_of_json_is_its_severity(tmp_path):
    _day(tmp_path / "in")
    report = import_nezha(tmp_path / "in", tmp_path / "out")
    (id_,) = (id_ for name, id_ in report.imported if "09:30" in name)
    assert Tree(tmp_path / "out").datapack(id_).read("abnormal", "logs").get_column("level").to_list() == ["ERROR"]
