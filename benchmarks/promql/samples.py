"""The same made samples in an OpsAssay recording and in a real Prometheus, each behind its HTTP API.

No sample lies at a whole or a half second, where Prometheus 3 (whose semantics are ours) and Debian's 2.42 count the begin
of a range differently.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl

from opsassay.core.schema.incident import Incident, Window
from opsassay.telemetry.datapack import write_datapack
from opsassay.telemetry.schema import MODALITIES, PERIODS, empty

START_S, HOUR_S, STEP_S = 1_767_322_800, 3600, 15
PACKAGES = {"prometheus": shutil.which("prometheus"), "promtool": shutil.which("promtool")}
BOUNDS = ("0.05", "0.1", "0.5", "1", "+Inf")
ZONES = ("north", "south", "east")


class Series(NamedTuple):
    """One series: the times of its samples, ms of the epoch, and their values."""

    name: str
    labels: dict[str, str]
    ms: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


def made(services: int, seed: int = 1) -> list[Series]:
    """Return an hour of *services*: counters that begin again, gauges with gaps, histograms, what begins late or ends."""
    random = np.random.default_rng(seed)
    found: list[Series] = []
    count = HOUR_S // STEP_S

    def add(
        name: str, labels: dict[str, str], values: npt.ArrayLike, kept: slice | npt.NDArray[np.int64] = slice(None)
    ) -> None:
        ms = (START_S + np.arange(count) * STEP_S) * 1000 + 137 + 2000 * (len(found) % 3)
        found.append(Series(name, labels, ms[kept], np.asarray(values, dtype=np.float64)[kept]))

    for number in range(services):
        own = {"service": f"s{number}", "zone": ZONES[number % len(ZONES)]}
        for code in ("200", "404", "500"):
            counter = np.cumsum(random.integers(0, 20, count)) + (10**6 if code == "200" else 500.0)
            if code == "500":  # began again
                counter[count // 3 :] -= counter[count // 3]
            add("requests_total", {**own, "code": code}, counter)
        depth = np.cumsum(random.normal(0, 3, count)) + 50
        depth[40:46] = np.nan if number == 1 else depth[40:46]
        depth[100:103] = np.inf if number == 2 else depth[100:103]
        add("queue_depth", own, depth)
        add("limit_bytes", own, [8e9 + 4096.0 * (number % 4)] * count)
        add("build_info", {"service": own["service"], "version": f"1.{number % 5}"}, [1.0] * count)
        buckets = 10**5 + np.cumsum(random.integers(0, 9, (len(BOUNDS), count)), axis=0).cumsum(axis=1)
        for bound, values in zip(BOUNDS, buckets, strict=True):
            add("latency_seconds_bucket", {**own, "le": bound}, values)
        add("late_total", own, np.cumsum(np.arange(count)) * 1.5, slice(count // 2, None))
        add("early_depth", own, random.random(count), slice(None, count // 2 + 7 * number % 60))
        if number % 2:
            gap = np.arange(count)
            add(
                "gaps_total", own, np.cumsum(random.integers(1, 9, count)) + 10**5, np.flatnonzero((gap // 30) % 2 == 0)
            )
    young = {"service": "s0", "zone": "north"}
    add("young_total", young, 10.0 * (np.arange(count) - count // 2 + 1), slice(count // 2, None))
    return found


def write_recording(folder: Path, series: list[Series]) -> None:
    """Write *series* as a recording to *folder*."""
    rows = [
        pl.DataFrame({"time": one.ms * 10**6, "metric": one.name, "value": one.values}).with_columns(
            pl.lit(one.labels.get(label), pl.String).alias("service_name" if label == "service" else f"attr.{label}")
            for label in ("service", "zone", "code", "le", "version")
        )
        for one in series
    ]
    frame = pl.concat(rows).with_columns(pl.from_epoch("time", time_unit="ns").dt.replace_time_zone("UTC"))
    begin, end = START_S * 10**9, (START_S + HOUR_S) * 10**9
    middle = begin + (end - begin) // 2
    tables = {(period, name): empty(name) for period in PERIODS for name in MODALITIES}
    late = pl.col("time").dt.epoch("ns") >= middle
    tables |= {("normal", "metrics_sum"): frame.filter(~late), ("abnormal", "metrics_sum"): frame.filter(late)}
    incident = Incident(
        id="made",
        system="made",
        normal=Window(start_ns=begin, end_ns=middle),
        abnormal=Window(start_ns=middle, end_ns=end),
    )
    write_datapack(folder, tables, incident, {})


@contextmanager
def served_by_us(folder: Path, series: list[Series]) -> Iterator[str]:
    """Serve *series* from a recording in *folder* by the command that does, and yield the URL; it ends with the block."""
    write_recording(folder, series)
    port = _free_port()
    command = [sys.executable, "-m", "opsassay", "incident", "serve-apis", folder, "--port", port]
    with _running(command, f"http://127.0.0.1:{port}") as url:
        yield url


@contextmanager
def served_by_prometheus(folder: Path, series: list[Series]) -> Iterator[str]:
    """Serve *series* from a real Prometheus over blocks in *folder*, and yield the URL; it ends with the block."""
    folder.mkdir()
    text = folder / "samples.txt"
    by_name: dict[str, list[Series]] = {}
    for one in series:
        by_name.setdefault(one.name, []).append(one)
    with text.open("w") as file:
        for name, alike in by_name.items():
            file.write(f"# TYPE {name} unknown\n")
            for one in alike:
                labels = ",".join(f'{label}="{value}"' for label, value in one.labels.items())
                for ms, value in zip(one.ms.tolist(), one.values.tolist(), strict=True):
                    file.write(f"{name}{{{labels}}} {_number(value)} {ms / 1000:.3f}\n")
        file.write("# EOF\n")
    blocks, settings = folder / "data", folder / "prometheus.yml"
    settings.write_text("global: {}\n")
    making = [PACKAGES["promtool"], "tsdb", "create-blocks-from", "openmetrics", text, blocks]
    subprocess.run([str(word) for word in making], check=True, capture_output=True)
    url = f"http://127.0.0.1:{_free_port()}"
    command = [
        PACKAGES["prometheus"], f"--config.file={settings}", f"--storage.tsdb.path={blocks}", "--log.level=error",
        "--storage.tsdb.retention.time=100y", f"--web.listen-address={url.removeprefix('http://')}",
    ]  # fmt: skip
    with _running(command, url):
        yield url


@contextmanager
def _running(command: Sequence[object], url: str) -> Iterator[str]:
    """Run *command*, which serves *url*, and yield that once it is ready."""
    server = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_until_ready(url)
        yield url
    finally:
        server.terminate()
        server.wait(timeout=60)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def _wait_until_ready(url: str) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(f"{url}/-/ready", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError) as error:
            if time.monotonic() > until:
                raise TimeoutError(f"the server at {url} is not ready after 60 s") from error
            time.sleep(0.1)


def _number(value: float) -> str:
    return "NaN" if np.isnan(value) else "+Inf" if value == np.inf else repr(value)
