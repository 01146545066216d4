"""Record, serve, import: the tables are equal but for what docs/own-system.md lists as left out by backends."""

from __future__ import annotations

import polars as pl
import pytest

from live import run_opsassay
from opsassay.core.schema.incident import Window
from opsassay.telemetry.backends.serving import ApiServer, api_urls, serving_on_port
from opsassay.telemetry.datapack import Datapack, write_datapack
from opsassay.telemetry.injection import iso_time
from opsassay.telemetry.schema import MODALITIES, PERIODS
from opsassay.telemetry.tree import Tree
from telemetry.packs import make_frames, make_incident

METRICS = {
    "http_requests": {"name": "http.requests", "table": "metrics_sum"},
    "http_server_duration": {"name": "http.server.duration"},
}


def hexadecimal(column, digits):
    """Return the ids of *column*, words in these packs, as ids of OpenTelemetry."""
    digest = pl.col(column).hash(seed=digits).cast(pl.String).str.pad_start(20, "0")
    number = digest.str.slice(4).cast(pl.String).str.pad_start(digits, "a").str.slice(0, digits)
    return pl.when(pl.col(column) == "").then(pl.lit("")).otherwise(number).alias(column)


def recorded(path, later_ns=0, seconds=60, **knobs):
    """Write a datapack of a chain of services, with ids of OpenTelemetry, *later_ns* after the usual times."""
    frames = {}
    for key, frame in make_frames(seconds=seconds, **({"error_in": "store"} | knobs)).items():
        ids = {"trace_id": 32, "span_id": 16, "parent_span_id": 16}
        frames[key] = frame.with_columns(pl.col("time") + pl.duration(nanoseconds=later_ns)).with_columns(
            hexadecimal(name, digits) for name, digits in ids.items() if name in frame.columns
        )
    incident = make_incident(seconds=seconds)
    windows = {
        period: Window(start_ns=one.start_ns + later_ns, end_ns=one.end_ns + later_ns)
        for period, one in (("normal", incident.normal), ("abnormal", incident.abnormal))
    }
    write_datapack(path, frames, incident.model_copy(update=windows), {})
    return Datapack.open(path)


def window(span):
    return f"{iso_time(span.start_ns)}..{iso_time(span.end_ns)}"


def kept(frame, modality, tracer):
    """Return *frame* as a backend keeps it: Prometheus times in ms, Jaeger times and durations in us."""
    if modality.startswith("metrics"):
        frame = frame.with_columns(pl.col("time").dt.truncate("1ms"))
    if modality == "traces" and tracer == "jaeger":
        frame = frame.with_columns(pl.col("time").dt.truncate("1us"), pl.col("duration") // 1000 * 1000)
    return frame.sort(frame.columns)


@pytest.mark.sampled
@pytest.mark.parametrize("tracer", ["tempo", "jaeger"])
def test_tables_are_equal_but_for_what_backends_do_not_keep(tmp_path, tracer):
    pack = recorded(tmp_path / "pack")
    file = tmp_path / "incident.yaml"
    lines = [f"  {name}: {{{', '.join(f'{k}: {v}' for k, v in one.items())}}}\n" for name, one in METRICS.items()]
    left_out = "'traces_spanmetrics_.*', 'http_server_duration_m(in|ax)'"
    file.write_text(f"system: chain\nprometheus: {{leave_out: [{left_out}]}}\nmetrics:\n{''.join(lines)}")
    with serving_on_port(ApiServer.over(pack)) as url:
        urls = api_urls(url)
        options = [word for name in ("prometheus", "loki", tracer) for word in (f"--{name}", urls[name])]
        windows = ["--normal", window(pack.incident.normal), "--abnormal", window(pack.incident.abnormal)]
        done = run_opsassay(
            "incident",
            "import",
            "backends",
            file,
            *options,
            *windows,
            "--root",
            "store:http_aborted",
            "-o",
            tmp_path / "t",
        )
    assert done.returncode == 0, done.stderr
    tree = Tree(tmp_path / "t")
    (id_,) = tree.ids()
    got = Datapack.open(tree.incident_path(id_))
    for period in PERIODS:
        for modality in MODALITIES:
            if modality == "metrics_histogram":
                continue
            before, after = (kept(one.read(period, modality), modality, tracer) for one in (pack, got))
            assert before.height > 0
            assert after.equals(before), f"{period}_{modality}"
    histograms = [pl.concat([one.read(p, "metrics_histogram") for p in PERIODS]) for one in (pack, got)]
    assert histograms[1].height == histograms[0].height - 3, "the first record of each of three series is the base"
    columns = ["metric", "service_name", "count", "sum"]
    late = kept(pack.read("abnormal", "metrics_histogram"), "metrics", tracer).select(columns).sort(columns)
    assert histograms[1].select(columns).sort(columns).equals(late)
    truth = tree.truth(id_)
    assert truth.stated
    assert truth.roots[0].service == ("store",)
    assert "nothing verified it" in truth.notes[0]
    said = run_opsassay("incident", "annotate", tmp_path / "t", "--explain")
    assert said.returncode == 0, said.stderr
    assert (
        "The stated root, http_aborted at store, is borne out by the recording. What else would explain it:"
        in said.stdout
    )
    again = run_opsassay("incident", "import", "backends", file, *options, *windows, "-o", tmp_path / "t")
    assert "skipped" in again.stdout


@pytest.mark.slow
def test_a_stated_root_that_the_recording_does_not_bear_out_is_said(tmp_path):
    pack = recorded(tmp_path / "pack")
    with serving_on_port(ApiServer.over(pack)) as url:
        windows = ["--normal", window(pack.incident.normal), "--abnormal", window(pack.incident.abnormal)]
        run_opsassay(
            "incident",
            "import",
            "backends",
            "--tempo",
            api_urls(url)["tempo"],
            *windows,
            "--root",
            "cart:cpu_stress",
            "-o",
            tmp_path / "t",
        )
    said = run_opsassay("incident", "annotate", tmp_path / "t", "--explain")
    assert "The stated root, cpu_stress at cart, is not borne out by the recording." in said.stdout, said.stdout
    assert "store (" in said.stdout
