"""What a replica was not started with waits for its next start; who does not run waits for nothing."""

from __future__ import annotations

import pytest

from opsassay.testbed.apps import load_system
from opsassay.testbed.core.fleet import Fleet


@pytest.fixture
def replica():
    """Return a replica whose process was started with two settings and the first release."""
    (found, *_) = Fleet(load_system("desk"), 0).replicas_of("catalog")
    found.pid, found.settings, found.started_release = 1, {"A": "1", "B": "2"}, found.release
    return found


@pytest.mark.parametrize(
    ("settings", "waiting"),
    [
        ({"A": "1", "B": "2"}, []),
        ({"A": "1", "B": "3"}, ["B"]),
        ({"A": "1"}, ["B"]),
        ({"A": "", "B": "2", "C": "x"}, ["A", "C"]),
    ],
)
def test_settings_that_are_others_or_gone_or_new_wait(replica, settings, waiting):
    assert replica.pending_restart(settings) == waiting


def test_a_release_that_was_said_and_not_started_waits(replica):
    replica.release = "v2"
    assert replica.pending_restart({"A": "1", "B": "2"}) == ["release"]
    replica.started_release = "v2"
    assert replica.pending_restart({"A": "1", "B": "2"}) == []


def test_who_does_not_run_has_tried_nothing_else(replica):
    replica.pid, replica.release = None, "v2"
    assert replica.pending_restart({}) == []
