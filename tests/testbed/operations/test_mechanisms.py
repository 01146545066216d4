"""Each thing that a scenario breaks is really broken for users, and each verb that repairs it really repairs it."""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest

from live import state_folder
from opsassay.core.errors import OpsAssayError
from opsassay.testbed.apps import load_system
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
PAGE = ("export", "proxy", "/")
FRESH = ("web", "ledger", "/fresh")

MECHANISMS = {
    "upstream port": (
        PAGE,
        [("config set", {"target": "proxy", "key": "UPSTREAM_WEB", "value": "web:9090"}), ("restart", {"target": "proxy"})],
        [("config set", {"target": "proxy", "key": "UPSTREAM_WEB", "value": "web:8080"}),
         ("restart", {"target": "proxy", "rolling": True})],
        502,
    ),
    "database password": (
        PAGE,
        [("config set", {"target": "catalog", "key": "DB_PASSWORD", "value": "x"}), ("restart", {"target": "catalog"})],
        [("config set", {"target": "catalog", "key": "DB_PASSWORD", "value": "harbour-seven"}),
         ("restart", {"target": "catalog"})],
        502,
    ),
    "missing key": (
        PAGE,
        [("config unset", {"target": "orders", "key": "PAYMENT_KEY"}), ("restart", {"target": "orders"})],
        [("config set", {"target": "orders", "key": "PAYMENT_KEY", "value": "1"}), ("restart", {"target": "orders"})],
        502,
    ),
    "firewall": (
        PAGE,
        [("firewall add", {"service": "account", "client": "web"})],
        [("firewall delete", {"rule": "rule-1"})],
        502,
    ),
    "cache memory": (
        PAGE,
        [("config set", {"target": "cache", "key": "maxmemory", "value": "600kb"})],
        [("config set", {"target": "cache", "key": "maxmemory", "value": "64mb"})],
        502,
    ),
    "bad release": (
        PAGE,
        [("release", {"service": "catalog", "version": "v2"})],
        [("release", {"service": "catalog", "version": "v1"})],
        502,
    ),
    "name record": (
        PAGE,
        [("config set", {"target": "names", "key": "catalog", "value": "ledger"})],
        [("config set", {"target": "names", "key": "catalog", "value": "catalog"})],
        502,
    ),
    "deleted name record": (
        PAGE,
        [("dns delete", {"service": "catalog"})],
        [("config set", {"target": "names", "key": "catalog", "value": "catalog"})],
        502,
    ),
    "clock": (
        PAGE,
        [("clock set", {"host": "host-b", "offset_s": -60})],
        [("config set", {"target": "host-b", "key": "time_sync", "value": "on"})],
        502,
    ),
    "leaked pool": (
        PAGE,
        [("pool leak", {"service": "orders", "store": "db", "connections": 4})],
        [("restart", {"target": "orders", "rolling": True})],
        502,
    ),
    "unready code": (
        PAGE,
        [("config set", {"target": "catalog", "key": "FEATURE_STRICT_INPUT", "value": "1"}),
         ("restart", {"target": "catalog"})],
        [("config unset", {"target": "catalog", "key": "FEATURE_STRICT_INPUT"}), ("restart", {"target": "catalog"})],
        502,
    ),
    "bodies that cannot be read": (
        PAGE,
        [("config set", {"target": "account", "key": "FEATURE_COMPRESSION", "value": "1"}),
         ("restart", {"target": "account"})],
        [("config unset", {"target": "account", "key": "FEATURE_COMPRESSION"}), ("restart", {"target": "account"})],
        502,
    ),
    "inspected packets": (
        PAGE,
        [("firewall add", {"service": "account", "client": "web", "delay_ms": 2500})],
        [("firewall delete", {"rule": "rule-1"})],
        502,
    ),
    "stalled consumer": (
        FRESH,
        [("consumer stall", {"service": "billing"})],
        [("restart", {"target": "billing", "rolling": True})],
        500,
    ),
}  # fmt: skip


@contextmanager
def small_desk(level):
    """Run `desk` with one replica of each service on the isolation *level*."""
    from opsassay.testbed.substrates.local.capabilities import probe

    if not probe()[level].available:
        pytest.skip(f"no {level} isolation: {probe()[level].reason}")
    desk = load_system("desk")
    single = {name: service.model_copy(update={"replicas": 1}) for name, service in desk.services.items()}
    small = desk.model_copy(update={"services": single, "load": desk.load.model_copy(update={"rate_rps": 4.0})})
    with state_folder(), LocalSubstrate().deployed(small, "desk", isolation=level) as system:
        yield system


@pytest.fixture(scope="module", params=["namespaced", "plain"])
def running(request):
    with small_desk(request.param) as system:
        yield system


def answers(running, asked, wanted, timeout_s=60.0):
    """Wait until a request through the system is answered with *wanted*, twice in a row; return what came last."""
    source, service, path = asked
    about = {"source": source, "service": service, "port": 8080, "path": path, "method": "GET", "timeout_s": 10.0}
    deadline, row, last = time.monotonic() + timeout_s, 0, None
    while row < 2 and time.monotonic() < deadline:
        try:
            last = running.operate("exec curl", about)
        except OpsAssayError as error:
            last = {"error": str(error)}
        row = row + 1 if last.get("status") == wanted else 0
        time.sleep(0.3)
    return last


@pytest.mark.parametrize("name", MECHANISMS)
def test_what_is_broken_is_broken_and_what_is_repaired_works(running, name):
    asked, broken, repaired, status = MECHANISMS[name]
    assert answers(running, asked, 200)["status"] == 200
    for verb, arguments in broken:
        running.operate(verb, arguments)
    if name == "missing key":  # nothing of it runs: the gateway says so too
        assert "PAYMENT_KEY is missing" in str(running.operate("logs", {"target": "orders", "lines": 2}))
    assert answers(running, asked, status).get("status") in (status, 504), name
    for verb, arguments in repaired:
        rules = running.operate("firewall list", {})["rules"]
        running.operate(verb, {"rule": rules[0]["rule"]} if verb == "firewall delete" else arguments)
    assert answers(running, asked, 200)["status"] == 200, name


def test_scaling_starts_and_ends_processes(running):
    assert running.operate("scale", {"service": "web", "replicas": 3})["added"] == ["web-1", "web-2"]
    assert answers(running, PAGE, 200)["status"] == 200
    assert len(running.status().pids) == 12
    assert running.operate("scale", {"service": "web", "replicas": 0})["removed"] == ["web-0", "web-1", "web-2"]
    assert answers(running, PAGE, 502)["status"] == 502
    running.operate("scale", {"service": "web", "replicas": 1})
    assert answers(running, PAGE, 200)["status"] == 200


def test_a_crowd_stays_on_its_host_until_replicas_are_asked_for_anew(running):
    def hosts():
        rows = running.operate("describe", {"target": "orders"})["replicas"]
        return sorted(row["host"] for row in rows if row["state"] == "ready")

    running.operate("scale", {"service": "orders", "replicas": 2})
    assert hosts() == ["host-a", "host-b"]
    running.operate("crowd", {"service": "orders", "host": "host-b"})
    running.operate("restart", {"target": "orders"})
    assert hosts() == ["host-b", "host-b"]
    running.operate("scale", {"service": "orders", "replicas": 1})
    running.operate("scale", {"service": "orders", "replicas": 2})
    assert hosts() == ["host-a", "host-b"]
    running.operate("scale", {"service": "orders", "replicas": 1})
    assert answers(running, PAGE, 200)["status"] == 200


def test_a_store_restarts_and_its_users_find_it_again(running):
    for store, emptied in (("cache", 1), ("db", 0), ("queue", 1)):
        assert running.operate("restart", {"target": store})["restarted"] == [store]
        assert running.operate("describe", {"target": store})["emptied"] == emptied
    assert answers(running, PAGE, 200)["status"] == 200
    assert answers(running, FRESH, 200)["status"] == 200
    assert running.operate("config get", {"target": "cache"})["settings"]["maxmemory"] == "64mb"


def test_what_a_store_throws_out_to_make_room_is_lost_like_what_a_restart_loses(running):
    def lost():
        return running.operate("describe", {"target": "cache"})["emptied"]

    assert answers(running, PAGE, 200)["status"] == 200
    before = lost()
    for key, value in (("maxmemory-policy", "allkeys-random"), ("maxmemory", "600kb")):
        running.operate("config set", {"target": "cache", "key": key, "value": value})
    assert answers(running, PAGE, 502)["status"] == 502  # when there is nothing left to throw out
    for key, value in (("maxmemory", "64mb"), ("maxmemory-policy", "noeviction")):
        running.operate("config set", {"target": "cache", "key": key, "value": value})
    assert lost() > before
