"""From raw files in OpenRCA's published layout to the audit's tables, by one command."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from benchmarks.papers.audit_chain import command
from benchmarks.papers.running import run

DAY = 1_616_169_600  # 2021-03-20 00:00:00 +08:00
COMPONENTS = ("cart-0", "front-0", "pay-0", "ship-0")
HOURS = (2, 5, 8, 11, 14, 17)


def write_system(folder: Path) -> None:
    """Write a day of metrics in which one component after the other jumps at the time of its record."""
    metrics = folder / "telemetry" / "2021_03_20" / "metric"
    metrics.mkdir(parents=True)
    records, rows = [], []
    for number, hour in enumerate(HOURS):
        begun, broken = DAY + 3600 * hour, COMPONENTS[number % len(COMPONENTS)]
        records.append(f"pod,{broken},{begun},2021-03-20 {hour:02}:00:00,container CPU load")
        for t in range(-1800, 600, 60):
            for at, component in enumerate(COMPONENTS):
                usual = 10 + at + (t // 60) % 3
                rows.append(f"{begun + t},{component},cpu,{usual + (60 if component == broken and t >= 0 else 0)}")
    (folder / "record.csv").write_text("level,component,timestamp,datetime,reason\n" + "\n".join(records) + "\n")
    (metrics / "metric_container.csv").write_text("timestamp,cmdb_id,kpi_name,value\n" + "\n".join(rows) + "\n")


@pytest.mark.slow
def test_raw_files_become_the_row_of_baselines(tmp_path, capsys):
    for system in ("Bank", "Telecom"):
        write_system(tmp_path / "raw" / system)
    arguments = ["openrca", str(tmp_path / "raw"), "-o", str(tmp_path / "out"), "--resamples", "100"]
    assert run(command, arguments) == 0
    out, err = capsys.readouterr()
    assert "Table 4. Per-system ledger" in out
    assert "$ opsassay score run" in err
    scores = pl.read_csv(tmp_path / "out" / "scores.csv")
    assert scores.height == 4 * 2 * len(HOURS)
    assert dict(scores.group_by("method").agg(pl.col("score").mean()).rows())["baro"] == 1.0
    assert run(command, [*arguments[:-2], "--resamples", "100", "-m", "baro", "-m", "max-z"]) == 0  # goes on from there


def test_a_folder_without_the_layout_is_refused_in_a_sentence(tmp_path, capsys):
    (tmp_path / "raw").mkdir()
    assert run(command, ["openrca", str(tmp_path / "raw"), "-o", str(tmp_path / "out")]) == 2
    assert "expected a system's folder with record.csv" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
