"""Jaeger's API by a real, unmodified client from PyPI, jaeger-mcp, where it is installed; it wants an older MCP SDK."""

from __future__ import annotations

import pytest

from telemetry.backends.recordings import served
from telemetry.packs import START_NS, make_pack

facade = pytest.importorskip(
    "jaeger_mcp.facade", reason="jaeger-mcp is not installed: pip install --no-deps jaeger-mcp"
)


@pytest.fixture
def client(tmp_path, monkeypatch):
    with served(make_pack(tmp_path / "pack", error_in="store")) as url:
        monkeypatch.setenv("JAEGER_URL", url)
        yield facade.JaegerClient.from_env()


def test_the_client_finds_services_traces_and_the_service_that_failed(client):
    assert client.list_services() == ["cart", "frontend", "loadgenerator", "store"]
    start_us = START_NS // 1000
    found = client.search_traces("store", tags={"error": "true"}, time_from=start_us, time_to=start_us + 121 * 10**6)
    assert len(found) == 20
    assert {one.root_service for one in found} == {"loadgenerator"}
    assert all(one.errors_count for one in found)
    trace = client.get_trace(found[0].trace_id)
    assert {span.service_name for span in trace.spans if span.error} >= {"store"}
    path = client.critical_path(found[0].trace_id)
    assert path.model_dump() if hasattr(path, "model_dump") else path


def test_the_client_compares_traces_and_hears_of_those_that_are_not_there(client):
    start_us = START_NS // 1000
    first, second = client.search_traces("cart", time_from=start_us, time_to=start_us + 121 * 10**6, limit=2)
    compared = client.compare_traces(first.trace_id, second.trace_id)
    assert compared.added_spans == []
    with pytest.raises(Exception, match="404"):
        client.get_trace("abcdef0123456789")
