"""Selectors and ages, beside what Kubernetes documents of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from opsassay.testbed.substrates.kubernetes.api.selecting import by_fields, by_labels
from opsassay.testbed.substrates.kubernetes.api.statuses import StatusError
from opsassay.testbed.substrates.kubernetes.api.tables import age

from .worlds import PODS, asked, thing


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("", "abc"), ("app", "ab"), ("!app", "c"), ("app=web", "a"), ("app==web", "a"), ("app = web", "a"),
        ("app!=web", "bc"), ("app in (web,db)", "ab"), ("app in (web)", "a"), ("app notin (web)", "bc"),
        ("app,tier", "a"), ("app=web,tier=front", "a"), ("app=web,tier=back", ""), ("app in ( web , db ),!tier", "b"),
        ("example.com/x=1", ""), ("app=", ""), (" app=web , tier ", "a"),
    ],
)  # fmt: skip
def test_labels_select_as_kubernetes_documents_it(selector, expected):
    labels = {"a": {"app": "web", "tier": "front"}, "b": {"app": "db"}, "c": None}
    selects = by_labels(selector)
    assert "".join(n for n, has in labels.items() if selects({"metadata": {"labels": has}})) == expected


@pytest.mark.parametrize("selector", ["app=(", "=x", "app in web", "a b", "app in (a", "app>1", "app=a=b", ",", "-a=b"])
def test_a_selector_that_cannot_be_read_is_a_bad_request(selector, world):
    with pytest.raises(StatusError) as caught:
        by_labels(selector)
    assert caught.value.outcome[0] == 400
    assert asked(world, f"{PODS}?fieldSelector=spec.colour%3Dred")[1]["reason"] == "BadRequest"


def test_fields_select_by_what_a_server_selects_by():
    pod = thing("Pod", "a", "shop", spec={"nodeName": "n1", "hostNetwork": True})
    for selector, expected in (
        ("metadata.name=a", True), ("metadata.name!=a", False), ("metadata.namespace==shop,spec.nodeName=n1", True),
        ("spec.hostNetwork=true", True), ("status.phase=", True), ("status.phase=Running", False),
    ):  # fmt: skip
        assert by_fields(selector, "Pod")(pod) is expected, selector
    with pytest.raises(StatusError, match="not supported"):
        by_fields("spec.nodeName=n1", "Service")


@pytest.mark.parametrize(
    ("elapsed", "words"),
    [
        ({"seconds": 0}, "0s"), ({"seconds": 119}, "119s"), ({"seconds": 120}, "2m"), ({"seconds": 150}, "2m30s"),
        ({"minutes": 10, "seconds": 5}, "10m"), ({"minutes": 179}, "179m"), ({"hours": 3}, "3h"),
        ({"hours": 3, "minutes": 5}, "3h5m"), ({"hours": 8, "minutes": 5}, "8h"), ({"hours": 47}, "47h"),
        ({"hours": 48}, "2d"), ({"days": 7, "hours": 23}, "7d23h"), ({"days": 8, "hours": 5}, "8d"),
        ({"days": 729}, "729d"), ({"days": 730}, "2y"), ({"days": 740}, "2y10d"), ({"days": 365 * 8 + 3}, "8y"),
        ({"seconds": -60}, "<invalid>"),
    ],
)  # fmt: skip
def test_ages_are_in_the_words_of_kubectl(elapsed, words):
    """As HumanDuration of k8s.io/apimachinery/pkg/util/duration has it."""
    now = datetime(2025, 6, 1, tzinfo=UTC)
    assert age((now - timedelta(**elapsed)).isoformat(), now) == words
    assert age(None) == age("yesterday") == "<unknown>"
