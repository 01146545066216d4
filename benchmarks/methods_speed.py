"""BARO's scorer beside the reference package, and its ranking: `python benchmarks/methods_speed.py`.

The peer is the PyPI package fse-baro (baro.root_cause_analysis.robust_scorer) in a virtual environment of its own under
~/.cache/opsassay-bench/baro, made on first use. Both score the same 594 x 274 readings; imports and reading of the file are
not counted, and each is run several times: the least is taken.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from opsassay.solvers.methods.baro import robust_scores

PEER = Path.home() / ".cache" / "opsassay-bench" / "baro"
ROWS, COLUMNS, BOUNDARY = 594, 274, 589
LEAST_RATIO = 10.0

THEIRS = """
import json, sys, time
import pandas as pd
from baro.root_cause_analysis import robust_scorer
data = pd.read_csv(sys.argv[1])
seconds = []
for _ in range(5):
    began = time.perf_counter()
    ranks = robust_scorer(data, inject_time=int(sys.argv[2]))["ranks"]
    seconds.append(time.perf_counter() - began)
print(json.dumps({"seconds": min(seconds), "ranks": ranks}))
"""


def main() -> int:
    """Measure both and compare; 1 when the ranking differs or the ratio is too small."""
    readings = made_readings()
    names = [f"service{i % 40}_metric{i:03d}" for i in range(COLUMNS)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        frame = pl.DataFrame(readings, schema=names).with_columns(time=pl.int_range(ROWS))
        frame.write_csv(path)
        told = subprocess.run(
            [str(peer()), "-c", THEIRS, str(path), str(BOUNDARY)], check=True, capture_output=True, text=True
        )
        theirs = json.loads(told.stdout)
        given = pl.read_csv(path).select(names).to_numpy()
    seconds = []
    for _ in range(20):
        began = time.perf_counter()
        scores = robust_scores(given[:BOUNDARY], given[BOUNDARY:])
        seconds.append(time.perf_counter() - began)
    # the reference sorts stably by falling score and leaves out columns that are constant in a period
    order = sorted((i for i in range(COLUMNS) if not np.isnan(scores[i])), key=lambda i: -scores[i])
    same = [names[i] for i in order] == theirs["ranks"]
    ratio = theirs["seconds"] / min(seconds)
    print(f"fse-baro {theirs['seconds']:.4f} s, opsassay {min(seconds):.4f} s: {ratio:.0f} times as fast")
    print(f"ranking of {len(order)} columns: {'the same' if same else 'DIFFERENT'}")
    return 0 if same and ratio >= LEAST_RATIO else 1


def made_readings() -> np.ndarray:
    """Return readings with drift, spikes, flat columns, columns that are flat in one period, and ties."""
    draw = np.random.default_rng(42)
    readings = draw.gamma(2.0, 1.0, (ROWS, COLUMNS)) * draw.uniform(0.1, 1000, COLUMNS)
    readings[:, 3] = 5.0
    readings[BOUNDARY:, 7] = 1.0
    readings[:BOUNDARY, 11] = 2.0
    readings[:, 20] = np.where(np.arange(ROWS) % 50 == 0, 9.0, 0.0)  # an interquartile range of 0
    readings[BOUNDARY:, 30:35] *= 40
    readings[:, 41] = readings[:, 40]
    return readings


def peer() -> Path:
    """Return the python of the peer's environment, made when it is not there."""
    python = PEER / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        subprocess.run([str(PEER / "bin" / "pip"), "install", "-q", "fse-baro"], check=True)
    return python


if __name__ == "__main__":
    sys.exit(main())
