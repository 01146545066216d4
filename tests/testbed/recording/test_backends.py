"""What a recording takes from a team's own backends: our own APIs serve a known datapack as those would."""

from __future__ import annotations

import polars as pl
import pytest

from opsassay.core.errors import OperationError
from opsassay.core.schema.incident import Window
from opsassay.core.schema.system import System
from opsassay.telemetry.backends.serving import ApiServer, api_urls, serving_on_port
from opsassay.telemetry.schema import MODALITIES, empty
from opsassay.testbed.recording.backends import require_backends, with_backends
from telemetry.past_incidents.test_round_trip import METRICS, kept, recorded


def system_with(backends, services=("frontend", "cart", "store")):
    described = {name: {"operations": {"GET /": {}}} for name in services}
    load = {"mix": [{"request": f"{services[0]} GET /"}]}
    return System.model_validate({"system": "chain", "services": described, "load": load, "backends": backends})


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("served") / "pack")


def whole(pack):
    return Window(start_ns=pack.incident.normal.start_ns, end_ns=pack.incident.abnormal.end_ns)


@pytest.mark.parametrize("tracer", ["tempo", "jaeger"])
def test_a_recording_has_what_the_backends_hold_of_its_window(pack, tracer):
    stored = {modality: pack.both(modality).drop("period").collect() for modality in MODALITIES}
    sent = stored["traces"].filter(pl.col("service_name") == "loadgenerator")
    frames = {modality: empty(modality) for modality in MODALITIES} | {"traces": sent}
    with serving_on_port(ApiServer.over(pack)) as url:
        named = {name: {"url": api_urls(url)[name]} for name in ("prometheus", "loki", tracer)}
        named["prometheus"]["leave_out"] = ["traces_spanmetrics_.*", "http_server_duration_m(in|ax)"]
        system = system_with(named | {"metrics": METRICS})
        require_backends(system)
        got, notes = with_backends(frames, system, whole(pack))
    for modality in ("traces", "logs", "metrics", "metrics_sum"):
        before, after = (kept(one, modality, tracer) for one in (stored[modality], got[modality]))
        assert after.equals(before), modality
    assert any("of services that the project lacks are left out: loadgenerator" in note for note in notes)


def test_no_service_is_there_twice_and_windows_have_their_ends(pack):
    stored = pack.both("traces").drop("period").collect()
    own = stored.filter(pl.col("service_name") == "store").with_columns(span_name=pl.lit("ours"))
    half = Window(start_ns=pack.incident.normal.start_ns, end_ns=pack.incident.normal.end_ns)
    cpu = pack.both("metrics").drop("period").collect().with_columns(value=pl.lit(-1.0))
    frames = {modality: empty(modality) for modality in MODALITIES} | {"traces": own, "metrics": cpu}
    with serving_on_port(ApiServer.over(pack)) as url:
        urls = api_urls(url)
        system = system_with({"tempo": urls["tempo"], "prometheus": urls["prometheus"]}, ("frontend", "store"))
        got, _ = with_backends(frames, system, half)
    assert set(got["traces"]["service_name"]) == {"frontend", "store"}
    assert "ours" not in set(got["traces"]["span_name"])
    assert got["traces"]["time"].dt.epoch("ns").max() < half.end_ns
    assert set(got["metrics"].filter(pl.col("metric") == "container.cpu.usage")["value"]) == {-1.0}, "ours is exact"


def test_a_system_without_backends_keeps_what_was_received(pack):
    frames = {modality: pack.both(modality).drop("period").collect() for modality in MODALITIES}
    assert with_backends(frames, system_with(None), whole(pack)) == (frames, [])


def test_a_backend_that_does_not_answer_is_said_before_anything_is_broken():
    system = system_with({"loki": "http://127.0.0.1:1", "limits": {"retry_s": 0}})
    with pytest.raises(OperationError, match=r"127\.0\.0\.1:1"):
        require_backends(system)
