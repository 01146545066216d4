"""What backends hold is read whole, once, and counted: pages, ties at their edges, limits, gaps, incomplete traces."""

from __future__ import annotations

import math
from contextlib import ExitStack

import polars as pl
import pytest

from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.importers.backends.importing import import_backends
from opsassay.telemetry.importers.backends.settings import PastIncident
from opsassay.telemetry.tree import Tree
from telemetry.past_incidents.stores import (
    ABNORMAL,
    BEGIN_S,
    NORMAL,
    SECOND,
    jaeger,
    loki,
    prometheus,
    serving,
    span,
    tempo,
)

START_NS = BEGIN_S * SECOND


def imported(out, stores, **settings):
    """Return the datapack, and the notes, that the import of *stores* by name makes."""
    with ExitStack() as stack:
        urls = {name: stack.enter_context(serving(store)).url for name, store in stores.items()}
        for name, further in settings.pop("backends", {}).items():
            urls[name] = {"url": urls[name], **further}
        report = import_backends(PastIncident(**urls, normal=NORMAL, abnormal=ABNORMAL, **settings), out)
    assert not report.failed, report.failed
    tree = Tree(out)
    (id_,) = tree.ids()
    assert [path.name for path in out.iterdir() if path.name.startswith(".importing")] == []
    return Datapack.open(tree.incident_path(id_)), [note for _, note in report.notes], tree


def both(pack, modality):
    return pl.concat([pack.read("normal", modality), pack.read("abnormal", modality)])


def entries(count, ties=1, streams=2):
    """Return entries *ties* of which share an instant, over the two minutes."""
    return [
        (
            START_NS + (n // ties) * (120 * SECOND * ties // count),
            {"service_name": f"s{n % streams}", "level": "info"},
            f"line {n}",
            {},
        )
        for n in range(count)
    ]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("limit", "most", "ties"), [(7, 5000, 1), (7, 5000, 3), (10, 5000, 10), (50, 6, 5), (3, 3, 6), (1, 1, 2)]
)
def test_every_entry_is_read_once_wherever_pages_end(tmp_path, limit, most, ties):
    held = entries(120, ties, streams=ties)
    pack, notes, _ = imported(tmp_path / "t", {"loki": loki(held, most=most)}, limits={"entries": limit})
    assert sorted(both(pack, "logs")["message"]) == sorted(line for *_, line, _ in held)
    assert "loki: 120 entries" in notes
    assert set(both(pack, "logs")["service_name"]) == {stream["service_name"] for _, stream, *_ in held}


def test_an_instant_that_no_page_holds_is_said(tmp_path):
    held = [(START_NS + SECOND, {"service_name": "a"}, f"line {n}", {}) for n in range(9)]
    held.append((START_NS + 90 * SECOND, {"service_name": "a"}, "last", {}))
    pack, notes, _ = imported(tmp_path / "t", {"loki": loki(held, most=4)}, limits={"entries": 4})
    assert both(pack, "logs").height == 4 + 1
    assert any("1 instant have more entries than one page" in note for note in notes)


def test_what_an_entry_says_of_itself_is_in_its_columns(tmp_path):
    metadata = {"trace_id": "ab" * 16, "span_id": "cd" * 8, "k8s_pod_name": "a-0", "colour": "red"}
    held = [
        (START_NS + 1, {"app": "a", "detected_level": "warn"}, "x", metadata),
        (START_NS + 2, {"job": "shop/b"}, "ERROR it fails", {}),
        (START_NS + 3, {"colour": "red"}, "no service", {}),
        (START_NS + 90 * SECOND, {"app": "a"}, "last", {}),
    ]
    pack, notes, _ = imported(
        tmp_path / "t", {"loki": loki(held)}, services={"shop/b": "b"}, backends={"loki": {"select": 'colour=~".*"'}}
    )
    rows = (
        pack.read("normal", "logs").sort("time").select("service_name", "level", "trace_id", "attr.k8s.pod.name").rows()
    )
    assert rows == [("a", "WARN", "ab" * 16, "a-0"), ("b", "ERROR", "", None), ("", "INFO", "", None)]
    assert any("1 of them have no label that names a service" in note for note in notes)
    assert any("(colour)" in note for note in notes)


def trees(traces, spans=4):
    """Return traces of *spans* spans each, one after the other over the two minutes."""
    return [
        span(t + 1, t * spans + n + 1, f"s{n}", start_ns=START_NS + t * (120 * SECOND // traces) + n * 1000,
             parent=n and t * spans + n, error=n == 1, attributes={"http.status_code": 500 if n == 1 else 200})
        for t in range(traces)
        for n in range(spans)
    ]  # fmt: skip


STORES = {
    "tempo": tempo, "jaeger": jaeger,
    "tempo, older path": lambda spans: tempo(spans, v2=False),
    "tempo, ids in hex": lambda spans: tempo(spans, hexadecimal=True),
}  # fmt: skip


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("limit", [2, 1000])
def test_every_span_is_read_once_whatever_the_limit_of_a_search(tmp_path, store, limit):
    held = trees(30)
    pack, notes, _ = imported(tmp_path / "t", {store.partition(",")[0]: STORES[store](held)}, limits={"traces": limit})
    found = both(pack, "traces").sort("span_id")
    assert found["span_id"].to_list() == [one["id"] for one in held]
    assert found["parent_span_id"].to_list() == [one["parent"] or "" for one in held]
    assert found["time"].dt.epoch("ns").to_list() == [one["start_ns"] for one in held]
    assert set(found["duration"]) == {5 * 10**6}
    assert found.filter(pl.col("attr.status_code") == "Error")["service_name"].unique().to_list() == ["s1"]
    assert set(found.filter(service_name="s1")["attr.http.response.status_code"]) == {500}
    assert set(found["attr.span_kind"]) == {"Server"}
    assert any(note.endswith("120 spans of 30 traces") for note in notes)
    assert not any("incomplete" in note for note in notes)


@pytest.mark.parametrize("store", STORES)
def test_what_of_spans_is_not_kept_is_counted(tmp_path, store):
    held = [
        *trees(3),
        span(9, 90, "s0", start_ns=START_NS + SECOND, events=3, links=2, attributes={"colour": "red"}),
        span(9, 91, "s1", start_ns=START_NS + SECOND, parent=90, events=1, links=1),
    ]
    _, notes, _ = imported(tmp_path / "t", {store.partition(",")[0]: STORES[store](held)})
    name = store.partition(",")[0]
    said = "not kept: a datapack has no place for such"
    for note in (f"{name}: 4 span events {said}", f"{name}: 3 span links {said}"):
        assert any(one.endswith(note) for one in notes), notes
    _, notes, _ = imported(tmp_path / "u", {name: STORES[store](trees(3))})
    assert not any(said in note for note in notes)


@pytest.mark.parametrize("make", [tempo, jaeger])
def test_incomplete_traces_are_counted_and_kept(tmp_path, make):
    held = [one for one in trees(10) if (one["trace"], one["service"]) != (f"{3:032x}", "s1")]
    outside = (
        span(77, 900, "s0", start_ns=START_NS - 5 * SECOND),
        span(77, 901, "s1", start_ns=START_NS + SECOND, parent=900),
    )
    pack, notes, _ = imported(tmp_path / "t", {make.__name__: make([*held, *outside])})
    assert both(pack, "traces").height == 40
    assert "2 of 11 traces are incomplete: a span's parent is not there" in notes
    assert any("1 span of these traces lie outside both windows" in note for note in notes)


def test_traces_that_tempo_loses_or_cuts_are_counted(tmp_path):
    pack, notes, _ = imported(tmp_path / "t", {"tempo": tempo(trees(10), gone={2}, partial={3, 4})})
    assert both(pack, "traces")["trace_id"].n_unique() == 9
    assert any("1 trace were found by the search and are not there" in note for note in notes)
    assert any("2 traces are said to be incomplete" in note for note in notes)


def samples(begin, end, step=15, first=0.0, grow=1.0):
    return [(BEGIN_S + s, str(first + grow * n)) for n, s in enumerate(range(begin, end, step))]


def test_samples_are_those_that_were_scraped_with_their_gaps(tmp_path):
    series = [
        ({"__name__": "up", "job": "a"}, samples(0, 30) + samples(90, 120)),
        (
            {"__name__": "odd", "service": "a"},
            [(BEGIN_S + 0.5, "NaN"), (BEGIN_S + 1.25, "+Inf"), (BEGIN_S + 2, "1e-7")],
        ),
    ]
    pack, notes, _ = imported(tmp_path / "t", {"prometheus": prometheus(series)})
    ups = both(pack, "metrics").filter(metric="up")
    assert [(ns - START_NS) // SECOND for ns in ups["time"].dt.epoch("ns")] == [0, 15, 90, 105]
    odd = both(pack, "metrics").filter(metric="odd").sort("time")
    assert math.isnan(odd["value"][0])
    assert odd["value"].to_list()[1:] == [math.inf, 1e-7]
    assert odd["time"].dt.epoch("ns").to_list()[1] == START_NS + 1_250_000_000
    assert "prometheus: 7 samples of 2 metrics" in notes


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("most", [10**9, 60, 7])
def test_a_page_that_is_too_much_is_read_in_parts(tmp_path, most):
    series = [
        ({"__name__": f"m{n}", "service": "a", "pod": f"p{k}"}, samples(0, 120, 5)) for n in range(5) for k in range(2)
    ]
    pack, _, _ = imported(tmp_path / "t", {"prometheus": prometheus(series, most_samples=most)})
    found = both(pack, "metrics")
    assert found.height == 5 * 2 * 24
    assert found.select("metric", "attr.k8s.pod.name", "time").is_unique().all()


def test_names_labels_and_tables_follow_the_one_rule(tmp_path):
    series = [
        ({"__name__": "container_cpu_usage", "service": "a", "pod": "a-0", "node": "n1"}, samples(0, 30)),
        ({"__name__": "requests_total", "app": "a", "instance": "10.0.0.1:80", "code": "500"}, samples(0, 30)),
        ({"__name__": "requests_total", "app": "a", "instance": "10.0.0.1:80", "code": "200"}, samples(0, 30)),
        ({"__name__": "jobs_done", "service": "a"}, samples(0, 30)),
        ({"__name__": "depth", "service": "a"}, samples(0, 30)),
        ({"__name__": "homeless"}, samples(0, 120)),
        ({"__name__": "go_threads", "service": "a"}, samples(0, 30)),
    ]
    store = prometheus(series, {"jobs_done": "counter", "depth": "gauge"})
    pack, notes, _ = imported(
        tmp_path / "t", {"prometheus": store}, backends={"prometheus": {"leave_out": ["go_.*"]}},
        metrics={"depth": {"name": "queue.depth", "table": "metrics_sum"}},
    )  # fmt: skip
    gauges, sums = both(pack, "metrics"), both(pack, "metrics_sum")
    assert set(gauges["metric"]) == {"container.cpu.usage", "homeless"}
    assert set(sums["metric"]) == {
        'requests_total{code="500"}',
        'requests_total{code="200"}',
        "jobs_done",
        "queue.depth",
    }
    assert gauges.filter(metric="container.cpu.usage").select("attr.k8s.pod.name", "attr.k8s.node.name").rows()[0] == (
        "a-0",
        "n1",
    )
    assert set(sums.filter(pl.col("metric").str.starts_with("requests"))["attr.k8s.pod.name"]) == {"10.0.0.1:80"}
    assert any(
        "series of 1 metric have no label that names a service; they are kept (homeless)" in note for note in notes
    )
    assert any("1 metric are left out by leave_out (go_threads)" in note for note in notes)


@pytest.mark.parametrize("kinds", [{"took": "histogram"}, {}, {"took_count": "counter", "took_sum": "counter"}])
def test_histograms_are_what_happened_between_samples(tmp_path, kinds):
    counts = [(BEGIN_S + s, str(v)) for s, v in ((5, 10), (20, 14), (65, 20), (80, 3))]
    sums = [(BEGIN_S + s, str(v)) for s, v in ((5, 1.0), (20, 1.5), (65, 2.0), (80, 0.25))]
    series = [
        ({"__name__": "took_count", "service": "a"}, counts), ({"__name__": "took_sum", "service": "a"}, sums),
        ({"__name__": "took_bucket", "service": "a", "le": "+Inf"}, counts),
    ]  # fmt: skip
    pack, notes, _ = imported(tmp_path / "t", {"prometheus": prometheus(series, kinds)})
    found = both(pack, "metrics_histogram").select("metric", "count", "sum").rows()
    assert found == [
        ("took", 4.0, 0.5),
        ("took", 6.0, 0.5),
        ("took", 3.0, 0.25),
    ]  # the first is the base, the last a restart
    assert pack.read("normal", "metrics_histogram").height == 1
    assert any("1 metric of buckets are left out" in note for note in notes)


def test_backends_that_hold_nothing_in_the_windows_say_so(tmp_path):
    with serving(loki([(START_NS - SECOND, {"app": "a"}, "early", {})])) as store:
        report = import_backends(PastIncident(loki=store.url, normal=NORMAL, abnormal=ABNORMAL), tmp_path / "t")
    ((_, said),) = report.failed
    assert "hold nothing" in said
    assert "loki: 0 entries" in said
