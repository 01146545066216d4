"""The local substrate keeps the contract of all substrates."""

from __future__ import annotations

import pytest

from live import state_folder, strays
from opsassay.testbed.substrates.local.substrate import LocalSubstrate
from testbed.substrates.contract import *  # noqa: F403
from testbed.substrates.contract import PAIR, planned

pytestmark = [pytest.mark.live, pytest.mark.timeout(200)]


@pytest.fixture(scope="module")
def state():
    with state_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def substrate(state):
    return LocalSubstrate()


@pytest.fixture(scope="module")
def pair(substrate):
    with substrate.deployed(PAIR, "pair", isolation="plain") as running:
        yield running


@pytest.fixture
def leftovers(state):
    return lambda name: strays(state / "systems" / name)


@pytest.fixture
def slow_fault():
    return planned("HTTPRequestDelay", delay_ms=150)
