"""Datapacks of any size with a known fault: `python benchmarks/causes_packs.py FOLDER --spans 1000000`.

Requests walk trees of calls between services; a span of the caller, one of the callee under it, and store calls, as
OpenTelemetry would write them. In the abnormal window every answer of one service in the middle is 200 ms late. Made
column by column, so that ten million spans take a minute. With --dense every service calls many others, in cycles.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from opsassay.core.schema.incident import Fault
from opsassay.telemetry.injection import iso_time

EPOCH_NS = 1_700_000_000 * 10**9
WINDOW_S = 300
DELAY_MS = 1000.0
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Node:
    """One operation in a tree of calls."""

    service: str
    operation: str
    calls: tuple[Node, ...] = ()
    stores: int = 1

    def spans(self) -> int:
        """Return how many spans one request makes below and at this node, its caller's span included."""
        return 2 + self.stores + sum(call.spans() for call in self.calls)


def trees(services: int, rng: np.random.Generator, *, dense: bool = False) -> list[Node]:
    """Return the trees of calls that users start: six layers deep, or (dense) any service calling any other, twice."""

    def grow(depth: int, seen: tuple[int, ...]) -> Node:
        layer = range(services) if dense else range(depth * services // 6, max((depth + 1) * services // 6, depth + 1))
        name = int(rng.choice(layer))
        below = () if depth >= 5 else tuple(grow(depth + 1, (*seen, name)) for _ in range(2 if depth % 2 else 1))
        return Node(f"svc-{name:03d}", f"GET /op{int(rng.integers(3))}", below)

    return [grow(0, ()) for _ in range(max(services // 3, 4) * (10 if dense else 1))]


@dataclass(frozen=True)
class Row:
    """Columns of one span of a tree, for all its requests at once."""

    parent: int
    service: str
    name: str
    kind: str
    start_ms: Floats
    length_ms: Floats


def walk(tree: Node, at_ms: Floats, slow: str | None, rng: np.random.Generator) -> list[Row]:
    """Return the spans of requests to *tree* that begin at *at_ms*, parents first; answers of *slow* are late."""
    rows: list[Row] = []

    def own(median: float) -> Floats:
        return median * rng.lognormal(0.0, 0.3, at_ms.size)

    def call(node: Node, caller: str, parent: int, start: Floats) -> Floats:
        mine = len(rows)
        rows.append(Row(parent, caller, node.operation, "Client", start, start))
        rows.append(Row(mine, node.service, node.operation, "Server", start, start))
        begin = start + 0.5
        now = begin + own(2.0)
        for child in node.calls:
            now = call(child, node.service, mine + 1, now)
        for number in range(node.stores):
            took = own(1.5)
            rows.append(Row(mine + 1, node.service, f"SELECT table{number}", "Client", now, took))
            now = now + took
        now = now + own(2.0) + (DELAY_MS if node.service == slow else 0.0)
        rows[mine + 1] = Row(mine, node.service, node.operation, "Server", begin, now - begin)
        rows[mine] = Row(parent, caller, node.operation, "Client", start, now + 0.5 - start)
        return now + 0.5

    call(tree, "loadgenerator", -1, at_ms)
    return rows


def table(forest: list[Node], spans: int, period: str, slow: str | None, rng: np.random.Generator) -> pl.DataFrame:
    """Return about *spans* spans of *period* as a traces table."""
    each = max(spans // sum(tree.spans() for tree in forest), 2)
    start_ns = EPOCH_NS + (WINDOW_S * 10**9 if period == "abnormal" else 0)
    parts = []
    for number, tree in enumerate(forest):
        at_ms = np.sort(rng.uniform(0, WINDOW_S * 1e3 - 5e3, each))
        rows = walk(tree, at_ms, slow, rng)
        trace = pl.select(
            pl.lit(f"{period[0]}{number:04d}") + pl.int_range(each).cast(pl.String).str.zfill(27)
        ).to_series()
        ids = [
            pl.select(
                pl.lit(f"{period[0]}{number:04d}{i:04d}") + pl.int_range(each).cast(pl.String).str.zfill(8)
            ).to_series()
            for i in range(len(rows))
        ]
        parts += [
            pl.DataFrame(
                {
                    "time": start_ns + (row.start_ms * 1e6).astype(np.int64),
                    "trace_id": trace,
                    "span_id": ids[i],
                    "parent_span_id": ids[row.parent] if row.parent >= 0 else pl.repeat("", each, eager=True),
                    "duration": (row.length_ms * 1e6).astype(np.uint64),
                }
            ).with_columns(
                pl.lit(row.name).alias("span_name"),
                pl.lit(row.service).alias("service_name"),
                pl.lit(row.kind).alias("attr.span_kind"),
                pl.lit("Ok").alias("attr.status_code"),
                pl.lit(f"{row.service}-0").alias("attr.k8s.pod.name"),
                pl.lit(row.service).alias("attr.k8s.service.name"),
                pl.lit("bench").alias("attr.k8s.namespace.name"),
                pl.lit("GET").alias("attr.http.request.method"),
                pl.lit(200, pl.UInt16).alias("attr.http.response.status_code"),
                pl.lit(0, pl.UInt64).alias("attr.http.request.content_length"),
                pl.lit(512, pl.UInt64).alias("attr.http.response.content_length"),
            )
            for i, row in enumerate(rows)
        ]
    return pl.concat(parts).with_columns(pl.col("time").cast(pl.Datetime("ns", "UTC"))).sort("time")


def metrics(services: list[str], period: str, rng: np.random.Generator) -> pl.DataFrame:
    """Return a CPU series per service, one point in five seconds."""
    start_ns = EPOCH_NS + (WINDOW_S * 10**9 if period == "abnormal" else 0)
    names = ("node", "namespace", "deployment", "replicaset", "statefulset", "pod", "container")
    grid = pl.DataFrame({"service_name": services}).join(
        pl.DataFrame({"time": start_ns + np.arange(0, WINDOW_S, 5) * 10**9}), how="cross"
    )
    of = {"node": pl.lit("node-0"), "namespace": pl.lit("bench"), "pod": pl.col("service_name") + "-0"}
    return grid.with_columns(
        pl.col("time").cast(pl.Datetime("ns", "UTC")),
        metric=pl.lit("container.cpu.usage"),
        value=pl.Series(rng.normal(0.1, 0.01, grid.height)),
        **{f"attr.k8s.{n}.name": of.get(n, pl.col("service_name")) for n in names},
    )


def make(folder: Path, spans: int, services: int = 20, *, dense: bool = False, seed: int = 0) -> Fault:
    """Write a datapack of about *spans* spans into *folder* (public form) and return the fault in it."""
    rng = np.random.default_rng(seed)
    forest = trees(services, rng, dense=dense)
    folder.mkdir(parents=True, exist_ok=True)
    slow = forest[0].calls[0].calls[0].service
    for period in ("normal", "abnormal"):
        made = table(forest, spans // 2, period, slow if period == "abnormal" else None, rng)
        made.write_parquet(folder / f"{period}_traces.parquet")
        names = sorted(set(made.get_column("service_name")) - {"loadgenerator"})
        series = metrics(names, period, rng)
        series.write_parquet(folder / f"{period}_metrics.parquet")
        series.clear().write_parquet(folder / f"{period}_metrics_sum.parquet")
        _histogram().write_parquet(folder / f"{period}_metrics_histogram.parquet")
        _logs().write_parquet(folder / f"{period}_logs.parquet")
    start_ns, end_ns = EPOCH_NS + WINDOW_S * 10**9, EPOCH_NS + 2 * WINDOW_S * 10**9
    told = {
        "fault_type": "HTTPResponseDelay",
        "start_time": iso_time(start_ns),
        "end_time": iso_time(end_ns),
        "engine_config": [{"app": slow, "chaos_type": "HTTPResponseDelay", "namespace": "bench"}],
        "ground_truth": [{"service": [slow]}],
    }
    (folder / "injection.json").write_text(json.dumps(told, indent=1), encoding="utf-8")
    (folder / "env.json").write_text(json.dumps(_environment(start_ns, end_ns)), encoding="utf-8")
    return Fault(type="HTTPResponseDelay", service=slow, start_ns=start_ns, end_ns=end_ns)


def _environment(start_ns: int, end_ns: int) -> dict[str, object]:
    def seconds(ns: int) -> str:
        return str(int(datetime.fromtimestamp(ns / 1e9, UTC).timestamp()))

    return {
        "namespace": "bench",
        "NORMAL_START": seconds(start_ns - WINDOW_S * 10**9),
        "NORMAL_END": seconds(start_ns),
        "ABNORMAL_START": seconds(start_ns),
        "ABNORMAL_END": seconds(end_ns),
        "TIMEZONE": "UTC",
    }


def _histogram() -> pl.DataFrame:
    texts = ["metric", "service_name", "attr.jvm.gc.action", "attr.jvm.gc.name"]
    texts += [f"attr.k8s.{n}.name" for n in ("node", "namespace", "deployment", "pod", "container")]
    schema: dict[str, pl.DataType] = {"time": pl.Datetime("ns", "UTC"), **dict.fromkeys(texts, pl.String())}
    return pl.DataFrame(schema={**schema, **dict.fromkeys(("count", "sum", "min", "max"), pl.Float64())})


def _logs() -> pl.DataFrame:
    names = ("trace_id", "span_id", "level", "service_name", "message", "attr.k8s.pod.name", "attr.k8s.service.name")
    return pl.DataFrame(schema={"time": pl.Datetime("ns", "UTC"), **dict.fromkeys(names, pl.String)})


def main() -> None:
    """Write one pack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--spans", type=int, default=1_000_000)
    parser.add_argument("--services", type=int, default=20)
    parser.add_argument("--dense", action="store_true", help="every service calls many others, in cycles")
    given = parser.parse_args()
    fault = make(given.folder, given.spans, given.services, dense=given.dense)
    print(f"{given.folder}: the answers of {fault.service} are {DELAY_MS:.0f} ms late")


if __name__ == "__main__":
    main()
