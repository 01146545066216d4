"""How long Prometheus' query_range takes over an hour of 44 services, measured by a client over HTTP; made data.

44 services with two pods each; a gauge, a counter and a histogram a pod, a sample every 15 s for an hour (the step of the
queries), and five operations a service, of which spans are counted in 15 buckets. The bar is 50 ms for each query.

Run: ``python benchmarks/apis.py [--services N] [--repeats N]``
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import numpy.typing as npt
import polars as pl

from opsassay.core.schema.incident import Incident, Window
from opsassay.telemetry.backends.serving import ApiServer, serving_on_port
from opsassay.telemetry.datapack import Datapack, write_datapack
from opsassay.telemetry.schema import MODALITIES, PERIODS, empty

SECOND = 10**9
START_NS, HOUR_S, STEP_S = 1_767_323_045 * SECOND, 3600, 15
BAR_MS = 50.0
OPERATIONS, SPANS_PER_S = 5, 4
QUERIES = (
    "container_cpu_usage",
    "sum by (service) (rate(http_requests[5m]))",
    "rate(http_duration_sum[5m]) / rate(http_duration_count[5m])",
    "topk(5, avg_over_time(container_cpu_usage[5m]))",
    'max by (service) (container_cpu_usage{service=~"service-1.*"}) > 0.5',
    "histogram_quantile(0.95, sum by (service, le) (rate(traces_spanmetrics_latency_bucket[5m])))",
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--services", type=int, default=44)
    options.add_argument("--repeats", type=int, default=30)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        view = made(Path(folder) / "incident", chosen.services)
        began = time.perf_counter()
        server = ApiServer.over(view)
        print(f"opened in {1000 * (time.perf_counter() - began):.0f} ms")
        with serving_on_port(server) as url:
            for query in QUERIES:
                spent_s = time.process_time()
                times = [asked(url, query) for _ in range(chosen.repeats)]
                spent_ms = 1000 * (time.process_time() - spent_s) / chosen.repeats
                median = statistics.median(times)
                print(
                    f"{median:6.1f} ms median, {min(times):6.1f} ms at best, {spent_ms:6.1f} ms of processor (both ends), "
                    f"{'within' if median < BAR_MS else 'ABOVE'} the bar: {query}"
                )


def asked(url: str, query: str) -> float:
    """Return how long *query* over the hour takes, ms, until its answer is read."""
    start = START_NS // SECOND
    parameters = urlencode({"query": query, "start": start, "end": start + HOUR_S - STEP_S, "step": STEP_S})
    began = time.perf_counter()
    with urllib.request.urlopen(f"{url}/api/v1/query_range?{parameters}") as answer:
        content = answer.read()
    assert len(content) > 1000
    return 1000 * (time.perf_counter() - began)


def made(path: Path, services: int) -> Datapack:
    """Write an hour of *services* to *path*: half of it normal, half abnormal."""
    at = np.arange(0, HOUR_S, STEP_S)
    random = np.random.default_rng(7)
    tables: dict[tuple[str, str], pl.DataFrame] = {
        (period, name): empty(name) for period in PERIODS for name in MODALITIES
    }
    halves = {"normal": at < HOUR_S // 2, "abnormal": at >= HOUR_S // 2}
    for period, half in halves.items():
        rows = {"metrics": [], "metrics_sum": [], "metrics_histogram": []}  # type: dict[str, list[pl.DataFrame]]
        for number in range(services):
            for pod in range(2):
                whose = {
                    "service_name": pl.lit(f"service-{number}"),
                    "attr.k8s.pod.name": pl.lit(f"service-{number}-{pod}"),
                }
                times = pl.DataFrame({"time": pl.Series(START_NS + at[half] * SECOND).cast(pl.Datetime("ns", "UTC"))})
                gauge = pl.Series(random.random(half.sum()))
                counter = pl.Series((at[half] * (number + 1)).astype(float))
                count = pl.Series(random.integers(1, 100, half.sum()).astype(float))
                rows["metrics"].append(times.with_columns(metric=pl.lit("container.cpu.usage"), value=gauge, **whose))
                rows["metrics_sum"].append(times.with_columns(metric=pl.lit("http.requests"), value=counter, **whose))
                rows["metrics_histogram"].append(
                    times.with_columns(metric=pl.lit("http.duration"), count=count, sum=count * 12.5, **whose)
                )
        tables |= {(period, name): pl.concat(parts) for name, parts in rows.items()}
        tables[period, "traces"] = spans(services, at[half], random)
    middle, end = START_NS + HOUR_S // 2 * SECOND, START_NS + HOUR_S * SECOND
    incident = Incident(
        id="hour", system="made", normal=Window(start_ns=START_NS, end_ns=middle),
        abnormal=Window(start_ns=middle, end_ns=end),
    )  # fmt: skip
    write_datapack(path, tables, incident, {})
    return Datapack.open(path)


def spans(services: int, at: npt.NDArray[np.int64], random: np.random.Generator) -> pl.DataFrame:
    """Return the spans of *services* in the steps *at*: each a trace of its own, of 1 to 300 ms for the most part."""
    count = services * len(at) * STEP_S * SPANS_PER_S
    began_ns = START_NS + at[0] * SECOND + np.sort(random.integers(0, len(at) * STEP_S * SECOND, count))
    return pl.DataFrame(
        {
            "time": pl.Series(began_ns).cast(pl.Datetime("ns", "UTC")),
            "trace_id": pl.Series(np.arange(count)).cast(pl.String),
            "span_id": pl.Series(np.arange(count)).cast(pl.String),
            "parent_span_id": pl.repeat("", count, eager=True),
            "span_name": "GET /" + pl.Series(random.integers(0, OPERATIONS, count)).cast(pl.String),
            "service_name": "service-" + pl.Series(random.integers(0, services, count)).cast(pl.String),
            "duration": pl.Series(random.lognormal(16.7, 1.0, count)).cast(pl.UInt64),
        }
    )


if __name__ == "__main__":
    main()
