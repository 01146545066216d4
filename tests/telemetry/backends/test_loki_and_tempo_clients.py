"""Loki and Tempo by a real, unmodified client from PyPI, argus-o11y, with its defaults."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest
from argus.backends.loki import LokiBackend
from argus.backends.prometheus import PrometheusBackend
from argus.backends.tempo import TempoBackend
from argus.errors import BackendError, TraceNotFound

from telemetry.backends.recordings import served
from telemetry.packs import START_NS, make_pack

SPAN_NS = {"start_ns": START_NS, "end_ns": START_NS + 120 * 10**9}
SPAN_S = {"start_seconds": START_NS // 10**9, "end_seconds": START_NS // 10**9 + 121}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with served(make_pack(tmp_path_factory.mktemp("r") / "pack", error_in="store")) as url:
        yield url


def test_the_client_reads_logs_and_labels(url):
    async def ask():
        loki = LokiBackend(url)
        names = await loki.label_names(**SPAN_NS)
        values = await loki.label_values("service_name", **SPAN_NS)
        found = await loki.search('{service_name="store"} |= "500"', limit=5, direction="forward", **SPAN_NS)
        with pytest.raises(BackendError, match=r"parse error at line 1.*\| json is not served"):
            await loki.search('{service_name="store"} | json', limit=5, **SPAN_NS)
        await loki.aclose()
        return names, values, found

    names, values, found = asyncio.run(ask())
    assert names == ["k8s_pod_name", "level", "service_name"]
    assert values == ["cart", "frontend", "store"]
    assert [one.line for one in found] == ["GET /store answered 500"] * 5
    assert found[0].labels["level"] == "ERROR"
    assert found[0].timestamp < found[-1].timestamp


def test_the_client_finds_a_failing_trace_and_reads_it(url):
    async def ask():
        tempo = TempoBackend(f"{url}/tempo")
        found = await tempo.search('{ resource.service.name = "store" && status = error }', limit=3, **SPAN_S)
        trace = await tempo.get_trace(found[0].trace_id)
        with pytest.raises(TraceNotFound):
            await tempo.get_trace("abcdef")
        with pytest.raises(BackendError, match="invalid TraceQL query"):
            await tempo.search("{ status = }", limit=3, **SPAN_S)
        await tempo.aclose()
        return found, trace

    found, trace = asyncio.run(ask())
    assert len(found) == 3
    assert (found[0].root_service, found[0].duration_ms) == ("loadgenerator", 40.0)
    assert [span.service for span in trace.spans] == ["loadgenerator", "frontend", "cart", "store"]
    assert {span.status for span in trace.spans} == {"error"}


def test_all_three_stand_at_one_port(url):
    async def ask():
        prometheus = PrometheusBackend(url)
        found = await prometheus.instant_query(
            "count(container_cpu_usage)", at=datetime.fromtimestamp(START_NS / 1e9 + 60, UTC)
        )
        await prometheus.aclose()
        return found

    (sample,) = asyncio.run(ask())
    assert sample.value == 3
