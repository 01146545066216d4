"""Requests of the probe: a pod of ours that sends one request when it is asked to."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from opsassay.testbed.substrates.kubernetes.api.client import Api
from opsassay.testbed.substrates.kubernetes.manifests.system import PROBE, PROBE_PORT


def send_probe(api: Api, namespace: str, url: str, timeout_s: float) -> dict[str, Any]:
    """Have the probe pod in *namespace* send one GET to *url*; return status (None: no answer), latency_s and error."""
    query = urlencode({"url": url, "timeout": timeout_s})
    path = f"/api/v1/namespaces/{namespace}/services/{PROBE}:{PROBE_PORT}/proxy/?{query}"
    answer: dict[str, Any] = api.request("GET", path, timeout_s=timeout_s + 5)
    return answer
