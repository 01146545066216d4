"""The Kubernetes substrate keeps the contract of all substrates, on a cluster of its own."""

from __future__ import annotations

import pytest

from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate
from testbed.substrates.contract import *  # noqa: F403
from testbed.substrates.contract import PAIR, planned

pytestmark = [pytest.mark.live, pytest.mark.kubernetes, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def substrate(cluster):
    return KubernetesSubstrate(cluster.kubeconfig)


@pytest.fixture(scope="module")
def pair(substrate):
    with substrate.deployed(PAIR, "pair") as running:
        yield running


@pytest.fixture
def leftovers(substrate):
    return lambda name: [
        item["metadata"]["name"]
        for item in substrate.api.list("Namespace")
        if item["metadata"]["name"] in (name, f"{name}-watch")
    ]


@pytest.fixture
def slow_fault():
    return planned("HTTPRequestDelay", delay_ms=150)
