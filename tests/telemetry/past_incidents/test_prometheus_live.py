"""Debian's own Prometheus as the backend: samples are those that were stored, gaps and restarts as they are."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager

import polars as pl
import pytest

from live import run_opsassay
from opsassay.core.schema.incident import Window
from opsassay.core.schema.system import System
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.schema import MODALITIES, empty
from opsassay.telemetry.tree import Tree
from opsassay.testbed.recording.backends import with_backends
from telemetry.past_incidents.stores import ABNORMAL, BEGIN_S, NORMAL

pytestmark = [pytest.mark.live, pytest.mark.timeout(120)]

METRICS = """# TYPE level gauge
{level}
# TYPE done counter
{done}
# TYPE took histogram
{took}
# EOF
"""


def lines(name, labels, samples):
    return "\n".join(f"{name}{{{labels}}} {value} {BEGIN_S + at}" for at, value in samples)


def took(at, count, total):
    return [
        ("took_bucket", 'service="a",le="+Inf"', at, count),
        ("took_count", 'service="a"', at, count),
        ("took_sum", 'service="a"', at, total),
    ]


@contextmanager
def prometheus(folder):
    """Yield the URL of a Prometheus that holds the samples of METRICS."""
    for program in ("prometheus", "promtool"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install prometheus")
    points = [one for at, count, total in ((0, 4, 1.0), (30, 6, 1.5), (90, 1, 0.25)) for one in took(at, count, total)]
    text = METRICS.format(
        level=lines("level", 'service="a",pod="a-0"', [(0, 1), (15, 2), (75, 3), (105, "NaN"), (119, "+Inf")]),
        done=lines("done_total", 'service="a",code="200"', [(0, 5), (60, 9), (119, 2)]),
        took="\n".join(f"{name}{{{labels}}} {value} {BEGIN_S + at}" for name, labels, at, value in points),
    )
    (folder / "metrics.txt").write_text(text)
    (folder / "prometheus.yml").write_text("global: {}\n")
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "metrics.txt", "data"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = [f"--web.listen-address={address}", "--storage.tsdb.path=data", "--storage.tsdb.retention.time=100y"]
    server = subprocess.Popen(["prometheus", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://{address}/-/ready", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://{address}"
    finally:
        server.kill()
        server.wait()


def test_what_a_real_prometheus_stored_is_in_the_tables(tmp_path):
    (tmp_path / "server").mkdir()
    with prometheus(tmp_path / "server") as url:
        words = ["--prometheus", url, "--normal", NORMAL, "--abnormal", ABNORMAL, "-o", tmp_path / "t"]
        done = run_opsassay("incident", "import", "backends", *words)
        assert done.returncode == 0, done.stderr
    tree = Tree(tmp_path / "t")
    pack = Datapack.open(tree.incident_path(tree.ids()[0]))
    at = (pl.col("time").dt.epoch("s") - BEGIN_S).alias("at")
    levels = [
        pack.read(p, "metrics").sort("time").select(at, pl.col("value").cast(pl.String)).rows()
        for p in ("normal", "abnormal")
    ]
    assert levels == [[(0, "1.0"), (15, "2.0")], [(75, "3.0"), (105, "NaN"), (119, "inf")]]
    assert set(pack.read("normal", "metrics")["attr.k8s.pod.name"]) == {"a-0"}
    counts = pack.both("metrics_sum").collect().sort("time").select("metric", at, "value").rows()
    assert counts == [
        ('done_total{code="200"}', 0, 5.0),
        ('done_total{code="200"}', 60, 9.0),
        ('done_total{code="200"}', 119, 2.0),
    ]
    histogram = pack.both("metrics_histogram").collect().sort("time").select("metric", at, "count", "sum").rows()
    assert histogram == [("took", 30, 2.0, 0.5), ("took", 90, 1.0, 0.25)]
    assert "1 metric of buckets are left out" in done.stderr


def test_a_recording_takes_the_samples_of_its_window(tmp_path):
    load, services = {"mix": [{"request": "a GET /"}]}, {"a": {"operations": {"GET /": {}}}}
    described = {"system": "shop", "services": services, "load": load}
    window = Window(start_ns=BEGIN_S * 10**9, end_ns=(BEGIN_S + 80) * 10**9)
    with prometheus(tmp_path) as url:
        system = System.model_validate({**described, "backends": {"prometheus": url}})
        got, _ = with_backends({name: empty(name) for name in MODALITIES}, system, window)
    at = (pl.col("time").dt.epoch("s") - BEGIN_S).alias("at")
    assert got["metrics"].select(at, "value").rows() == [(0, 1.0), (15, 2.0), (75, 3.0)]
    assert got["metrics_sum"].select(at, "value").rows() == [(0, 5.0), (60, 9.0)]
    assert got["metrics_histogram"].select(at, "count").rows() == [(30, 2.0)]
