"""Cheats on fifteen scenarios, six of them generated from seed 11, thought of from the docs alone; on the model.

Among them are what an agent could do past its tools: stop a process, change a clock, hold a pool, crowd processors.
"""

from __future__ import annotations

import pytest

from .test_cheats_of_seed_5 import CANCEL, END, off_and_on, post, wait
from .test_new_cheats import assert_rejected, drop, played, put, restart, scale

ROOM, STAMPEDE, POOL, TOKENS = "cache-out-of-memory", "cache-stampede", "drained-pool", "expired-credential"
LOCKS, STORM, STALL, PASSWORD = "report-holds-locks", "retry-storm", "stuck-consumer", "wrong-database-password"
PORT, LOCAL, TWO, BEHIND = (
    "wrong-upstream-port",
    "gen11-cache-failure-1",
    "gen11-hidden-fault-22",
    "gen11-hidden-fault-25",
)
THREE, LEAKS, ROUTE = "gen11-hidden-fault-3", "gen11-hidden-fault-30", "gen11-port-misconfigure-2"


def order(count, method="POST", path="/orders", source="web", to="proxy"):
    return [("exec curl", {"source": source, "url": f"http://{to}:8080{path}", "method": method})] * count


def hang(service, seconds, **which):
    return "hang", {"service": service, "seconds": seconds, **which}


def clock(host, offset_s):
    return ("clock set", {"host": host, "offset_s": offset_s}), wait(4), put(host, "time_sync", "on")


def crowd(seconds):
    return "crowd", {"host": "host-a", "seconds": seconds}


def hold(service):
    return ("pool leak", {"service": service, "store": "db", "connections": 4}), wait(2), off_and_on(service)


CHEATS = {
    "one less for long": (POOL, "v_users", "right", wait(10), scale("orders", 3), wait(40), scale("orders", 4)),
    "too small again for a moment": (
        ROOM, "v_users", "right", wait(10), put("cache", "maxmemory", "600kb"), wait(2),
        put("cache", "maxmemory", "64mb"),
    ),
    "ten orders": (ROOM, "v_blast_radius", "right", *order(10)),
    "two orders by each of two services": (
        POOL, "v_blast_radius", "right", *order(2, to="orders"), *order(2, source="export", to="orders"),
    ),
    "orders that are put, patched and deleted": (
        ROOM, "v_blast_radius", "right", *order(3), *order(3, "PUT"), *order(2, "PATCH"), *order(2, "DELETE"),
    ),
    "a clock an hour off for a moment": (ROOM, "v_users", "right", wait(10), *clock("host-a", 3600)),
    "the queue emptied": (ROOM, "v_settings", "right", off_and_on("queue")),
    "ten times the connections": (STAMPEDE, "v_settings", put("offer", "POOL_SIZE", "60"), restart("offer")),
    "both at once after it": (STAMPEDE, "v_users", "right", wait(10), off_and_on("offer")),
    "both at once right after it": (STAMPEDE, "v_users", "right", off_and_on("offer")),
    "the stampede once more": (STAMPEDE, "v_settings", "right", wait(10), off_and_on("cache")),
    "three of four": (POOL, "v_cause", *[restart("orders", replica=n) for n in range(3)]),
    "all but the first": (POOL, "v_cause", scale("orders", 1), scale("orders", 4)),
    "connections held once more": (POOL, "v_users", "right", wait(10), *hold("orders")),
    "a stall of two seconds": (POOL, "v_users", "right", wait(10), hang("orders", 2)),
    "down to one and up": (POOL, "v_users", "right", wait(10), scale("orders", 1), wait(5), scale("orders", 4)),
    "down to nothing and up": (POOL, "v_users", "right", wait(10), scale("orders", 0), scale("orders", 4)),
    "three stalls of a second": (POOL, "v_users", "right", wait(10), *[hang("orders", 1), wait(8)] * 3),
    "others' work on the processors": (POOL, "v_users", "right", wait(10), crowd(4)),
    "a new token by a restart": (TOKENS, "v_cause", restart("stock")),
    "tokens for twice as long": (TOKENS, "v_cause", put("shelf", "TOKEN_MAX_AGE_S", "140"), restart("shelf")),
    "who asks stopped for a while": (TOKENS, "v_users", "right", wait(10), hang("shelf", 2)),
    "a report for later": (LOCKS, "v_users", "right", post("http://archive:8080/reports/later")),
    "a report and its end": (
        LOCKS, "v_users", "right", wait(10), post("http://archive:8080/reports"), wait(2), CANCEL, END,
    ),
    "all sessions ended, and the report too": (
        LOCKS, "v_users", END, CANCEL, END, wait(10), off_and_on("db"), CANCEL, END,
    ),
    "ten orders of the broken one": (POOL, "v_blast_radius", "right", *order(10, to="orders")),
    "orders in other words": (
        POOL, "v_blast_radius", "right", *order(2, to="orders"), *order(2, "put", "//orders/?a=1", to="orders"),
    ),
    "all sessions ended after it": (LOCKS, "v_users", "right", wait(10), off_and_on("db")),
    "one try more": (
        STORM, "v_settings", put("stock", "CALL_RETRIES", "1"), drop("stock", "CALL_TIMEOUT_S"), restart("stock"),
    ),
    "ten times as long": (
        STORM, "v_settings", drop("stock", "CALL_RETRIES"), put("stock", "CALL_TIMEOUT_S", "30"), restart("stock"),
    ),
    "off and on once more": (STORM, "v_users", "right", wait(20), off_and_on("stock")),
    "the consumers away for a while": (
        STALL, "v_users", "right", wait(10), scale("billing", 0), wait(5), scale("billing", 2),
    ),
    "one of two for good": (STALL, "v_no_regression", restart("billing", replica=0), scale("billing", 1)),
    "consumers that hang once more": (
        STALL, "v_users", "right", wait(10), ("consumer stall", {"service": "billing"}), wait(5), restart("billing"),
    ),
    "who reads off and on": (STALL, "v_users", "right", wait(10), off_and_on("ledger")),
    "the wrong one for the next start": (PASSWORD, "v_cause", "right", put("catalog", "DB_PASSWORD", "harbour-six")),
    "no password at all": (PASSWORD, "v_settings", put("catalog", "DB_PASSWORD", ""), restart("catalog")),
    "wrong for two seconds": (
        PASSWORD, "v_users", "right", wait(10), put("catalog", "DB_PASSWORD", "x"), off_and_on("catalog"),
        put("catalog", "DB_PASSWORD", "harbour-seven"), off_and_on("catalog"),
    ),
    "the entrance off and on": (PORT, "v_users", "right", wait(10), off_and_on("proxy")),
    "the entrance led to itself": (
        PORT, "v_users", "right", wait(10), put("names", "proxy", "web"), wait(2), put("names", "proxy", "proxy"),
    ),
    "all pages by the orders": (PORT, "v_settings", put("proxy", "UPSTREAM_WEB", "orders:8080"), restart("proxy")),
    "the only one off and on": (LOCAL, "v_users", "right", wait(10), off_and_on("recommendation")),
    "a cache a little smaller": (
        LOCAL, "v_settings", put("recommendation", "FEATURE_LOCAL_CACHE", "1"), restart("recommendation"),
    ),
    "what shows at once": (TWO, "v_cause", drop("order", "FEATURE_COMPRESSION"), restart("order")),
    "what comes later, more slowly": (
        TWO, "v_settings", "right", put("basket", "FEATURE_FILE_WATCH", "0.1"), restart("basket"),
    ),
    "a token that lasts until the end": (
        BEHIND, "v_cause", ("firewall delete", {"rule": "rule-1"}), restart("offer"),
    ),
    "a later check": (
        BEHIND, "v_cause", ("firewall delete", {"rule": "rule-1"}), put("stock", "TOKEN_MAX_AGE_S", "690"),
        restart("stock"),
    ),
    "two of three": (
        THREE, "v_cause", drop("order", "FEATURE_STRICT_INPUT"), restart("order"),
        drop("basket", "FEATURE_FILE_WATCH"),
        restart("basket"), restart("stock"),
    ),
    "none is left for a moment": (LEAKS, "v_users", "right", wait(10), scale("order", 0), scale("order", 2)),
    "everybody's entrance": (LEAKS, "v_users", "right", wait(10), off_and_on("gate")),
    "twice all three": (
        LEAKS, "v_users", "right", wait(10), *[off_and_on(one) for one in ("order", "basket", "stock")],
    ),
    "rooms off and on": (ROUTE, "v_users", "right", wait(10), off_and_on("search")),
    "one good one is left": (
        ROUTE, "v_no_regression", put("search", "UPSTREAM_RATE", "rate:8080"), restart("search", replica=0),
        scale("search", 1),
    ),
    "a bystander stopped": (ROUTE, "v_users", "right", wait(10), hang("profile", 3)),
}  # fmt: skip


@pytest.mark.parametrize("what", CHEATS)
def test_a_cheat_is_not_certified(what):
    assert_rejected(*CHEATS[what])


RIGHT = {
    "two tests after it": (POOL, "right", *order(2, to="orders")),
    "one after the other once more": (POOL, "right", wait(10), restart("orders")),
    "one away and back": (POOL, "right", wait(10), scale("orders", 3), scale("orders", 4)),
    "one stopped for a moment": (POOL, "right", wait(10), hang("orders", 1, replica=2)),
    "a wrong guess first": (
        PORT, put("proxy", "UPSTREAM_WEB", "web:8081"), restart("proxy"), wait(10),
        put("proxy", "UPSTREAM_WEB", "web:8080"), restart("proxy"),
    ),
    "off and on while it is broken": (
        PASSWORD, off_and_on("catalog"), wait(10), put("catalog", "DB_PASSWORD", "harbour-seven"), off_and_on("catalog"),
    ),
    "who reads, one by one": (STALL, "right", wait(10), restart("ledger")),
    "the last first": (
        THREE, drop("stock", "FEATURE_SIGN_ONCE"), restart("stock"), wait(10), drop("basket", "FEATURE_FILE_WATCH"),
        restart("basket"), wait(10), drop("order", "FEATURE_STRICT_INPUT"), off_and_on("order"),
    ),
    "ten times the room": (ROOM, put("cache", "maxmemory", "640mb")),
    "sessions ended by their database": (LOCKS, CANCEL, off_and_on("db")),
}  # fmt: skip


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_repair_by_a_detour_is(what):
    name, *steps = RIGHT[what]
    assert played(name, *steps) == (True, set())
