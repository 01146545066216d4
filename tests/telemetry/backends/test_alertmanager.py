"""Alertmanager's API by its own client amtool, against a real Alertmanager where one is installed, and by hand."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from datetime import UTC, datetime

import pytest
import requests

from opsassay.telemetry.backends.alertmanager import fingerprint
from telemetry.backends.recordings import SECOND, START_S, alert, got, recorded, served

AMTOOL, ALERTMANAGER = shutil.which("amtool"), shutil.which("prometheus-alertmanager")
PACKAGE = "Debian's package prometheus-alertmanager is not installed"
ALERTS = (
    alert(),
    alert(service="back", signal="latency", value=120.0, severity="critical", message='a "slow" one'),
    alert(service="back", message="back fails"),
    alert(service="back", message="back fails still", time_ns=(START_S + 1900) * SECOND),
)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with served(recorded(tmp_path_factory.mktemp("r") / "incident", [], alerts=ALERTS)) as url:
        yield url


def asked(url, path="/api/v2/alerts", **parameters):
    return requests.get(f"{url}{path}", params=parameters, timeout=30)


def named(url, **parameters):
    return [(one["labels"]["alertname"], one["labels"]["service"]) for one in asked(url, **parameters).json()]


def test_an_alert_has_alertmanagers_shape(url):
    (front,) = got(url, "/api/v2/alerts", filter='service="front"')
    assert front == {
        "annotations": {"summary": "half of the requests fail", "threshold": "0.1"},
        "endsAt": "2026-01-02T04:08:20.000Z",
        "fingerprint": "c1740c08ef627a93",
        "receivers": [{"name": "recorded"}],
        "startsAt": "2026-01-02T03:33:20.123Z",
        "status": {"inhibitedBy": [], "silencedBy": [], "state": "active"},
        "updatedAt": "2026-01-02T04:03:20.000Z",
        "labels": {"alertname": "error_rate", "service": "front"},
    }


def test_fingerprints_are_those_that_a_real_alertmanager_gave():
    assert fingerprint({"service": "front", "alertname": "error_rate"}) == "c1740c08ef627a93"
    assert fingerprint({"alertname": "latency", "service": "back", "severity": "page"}) == "d2e6578a4a43364c"


def test_one_alert_stands_for_all_with_the_same_labels(url):
    (found,) = asked(url, filter=["alertname=error_rate", "service=back"]).json()
    assert found["startsAt"] == "2026-01-02T03:33:20.123Z"
    assert found["annotations"]["summary"] == "back fails still"


@pytest.mark.parametrize(
    ("asking", "expected"),
    [
        ({}, {("error_rate", "front"), ("error_rate", "back"), ("latency", "back")}),
        ({"filter": "service=~f.*"}, {("error_rate", "front")}),
        ({"filter": 'service!="back"'}, {("error_rate", "front")}),
        ({"filter": ["service=back", "severity!~crit.*"]}, {("error_rate", "back")}),
        ({"filter": "severity="}, {("error_rate", "front"), ("error_rate", "back")}),
        ({"filter": "service=~ac"}, set()),
        ({"filter": "service=front,alertname=error_rate"}, set()),
        ({"active": "false"}, set()),
        ({"active": "maybe"}, set()),
        ({"active": "TRUE", "silenced": "false", "filter": " service = front "}, {("error_rate", "front")}),
        ({"receiver": "rec.*", "filter": "alertname=latency"}, {("latency", "back")}),
        ({"receiver": "rec"}, set()),
    ],
)  # fmt: skip
def test_filters(url, asking, expected):
    found = named(url, **asking)
    assert set(found) == expected
    assert len(found) == len(expected)


def test_groups_receivers_silences_and_status(url):
    groups = got(url, "/api/v2/alerts/groups")
    assert [(one["labels"], len(one["alerts"]), one["receiver"]) for one in groups] == [
        ({"alertname": "error_rate"}, 2, {"name": "recorded"}),
        ({"alertname": "latency"}, 1, {"name": "recorded"}),
    ]
    assert [one["labels"]["alertname"] for one in got(url, "/api/v2/alerts/groups", filter="service=front")] == [
        "error_rate"
    ]
    assert got(url, "/api/v2/receivers") == [{"name": "recorded"}]
    assert got(url, "/api/v2/silences") == []
    status = got(url, "/api/v2/status")
    assert status["versionInfo"]["version"] == "0.25.0"
    assert (status["cluster"], status["uptime"]) == ({"peers": [], "status": "disabled"}, "2026-01-02T03:03:20.000Z")


WRONG = {
    "bad": "bad matcher format: bad",
    "": "bad matcher format: ",
    '{service="front"}': 'bad matcher format: {service="front"}',
}


def test_errors(url):
    for text, said in WRONG.items():
        answer = asked(url, filter=text)
        assert (answer.status_code, answer.json()) == (400, said)
    assert asked(url, filter='a=~"("').json().startswith("error parsing regexp: ")
    assert asked(url, receiver="(").json().startswith("failed to parse receiver param: error parsing regexp: ")
    answer = asked(url, "/api/v2/nothing")
    assert (answer.status_code, answer.json()) == (404, {"code": 404, "message": "path /api/v2/nothing was not found"})


def test_nothing_can_be_written(url):
    before = asked(url).json()
    for path in ("/api/v2/alerts", "/api/v2/silences"):
        answer = requests.post(f"{url}{path}", json=[{"labels": {"alertname": "x"}}], timeout=9)
        assert (answer.status_code, answer.json()["code"]) == (405, 405)
    assert requests.delete(f"{url}/api/v2/silence/x", timeout=9).status_code == 405
    assert asked(url).json() == before


def test_an_incident_without_alerts_has_none(tmp_path):
    with served(recorded(tmp_path / "incident", [])) as url:
        assert (got(url, "/api/v2/alerts"), got(url, "/api/v2/alerts/groups")) == ([], [])


def amtool(url, *words):
    done = subprocess.run(
        [AMTOOL, f"--alertmanager.url={url}", *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(AMTOOL is None, reason=PACKAGE)
def test_amtool_lists_and_filters(url):
    assert {one["labels"]["service"] for one in json.loads(amtool(url, "-o", "json", "alert", "query"))} == {
        "front",
        "back",
    }
    table = amtool(url, "alert", "query", "alertname=latency", "service=~ba.+")
    assert 'a "slow" one' in table
    assert "error_rate" not in table
    assert 'service="front"' in amtool(url, "-o", "extended", "alert", "query", "--active", 'service="front"')
    assert "receiver: recorded" in amtool(url, "config", "show")
    assert "disabled" in amtool(url, "cluster", "show")


@pytest.fixture
def real(tmp_path):
    """The URL of a real Alertmanager with the receiver and the grouping that ours shows."""
    (tmp_path / "am.yml").write_text(
        "route:\n  receiver: recorded\n  group_by: [alertname]\n  group_wait: 0s\nreceivers:\n- name: recorded\n"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [f"--config.file={tmp_path}/am.yml", f"--storage.path={tmp_path}/data",
             f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address="]  # fmt: skip
    with subprocess.Popen([ALERTMANAGER, *words], stderr=subprocess.DEVNULL) as running:
        for _ in range(100):
            try:
                requests.get(f"http://127.0.0.1:{port}/-/ready", timeout=1)
                break
            except requests.ConnectionError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
        running.terminate()


@pytest.mark.skipif(ALERTMANAGER is None, reason=PACKAGE)
def test_a_real_alertmanager_answers_the_same(url, real):
    """The same alerts are sent to a real one; all but times of its own has to be equal, errors included."""
    sent = [
        {"labels": one["labels"], "annotations": one["annotations"], "startsAt": datetime.now(UTC).isoformat()}
        for one in asked(url).json()
    ]
    requests.post(f"{real}/api/v2/alerts", json=sent, timeout=9).raise_for_status()
    for _ in range(50):
        if len(asked(real, "/api/v2/alerts/groups").json()) == 2:
            break
        time.sleep(0.1)

    def same(path="/api/v2/alerts", **parameters):
        ours, theirs = asked(url, path, **parameters), asked(real, path, **parameters)
        kinds = {one.headers["Content-Type"] for one in (ours, theirs)}
        assert (ours.status_code, kinds) == (theirs.status_code, {"application/json"})
        assert timeless(ours.json()) == timeless(theirs.json())

    same()
    same("/api/v2/alerts/groups")
    for path in ("/api/v2/receivers", "/api/v2/silences", "/api/v2/nothing"):
        same(path)
    for text in ('service="front"', "service=~b.*", "service!=back", "service=f", "severity=", *WRONG):
        same(filter=text)
        same("/api/v2/alerts/groups", filter=text)
    for active in ("true", "false", "maybe", "1"):
        same(active=active)
    for receiver in ("recorded", "rec", ".*"):
        same(receiver=receiver)
    assert asked(url, "/api/v2/status").json().keys() == asked(real, "/api/v2/status").json().keys()


def timeless(found):
    if isinstance(found, list):
        return [timeless(one) for one in found]
    if isinstance(found, dict):
        return {key: timeless(value) for key, value in found.items() if key not in {"startsAt", "endsAt", "updatedAt"}}
    return found
