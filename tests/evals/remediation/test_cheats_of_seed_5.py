"""Cheats on fifteen scenarios, ten of them generated from seed 5, thought of from the docs alone; on the model."""

from __future__ import annotations

import pytest

from .test_new_cheats import assert_rejected, drop, played, put, restart, scale

GEO, MEMORY, AWAY = "gen5-service-failure-2", "gen5-redis-oom-1", "gen5-replicaset-scale-1"
SEVERAL, DELETED, RELEASED = "gen5-several-faults-2", "gen5-deleted-service-1", "gen5-corrupt-deployment-1"
HIDDEN, ROUTE, PASSWORD = "gen5-hidden-fault-1", "gen5-port-misconfigure-2", "gen5-unregister-credentials-2"
DELAY, PARTITION, KEY = "gen5-network-delay-1", "gen5-network-partition-2", "crash-loop-missing-key"
CLIENT, RECORD, LOCKS = "firewall-blocks-one-client", "dns-wrong-backend", "report-holds-locks"
AGE = "TOKEN_MAX_AGE_S"


def off_and_on(target):
    return "restart", {"target": target}


def release(service, version, **how):
    return "release", {"service": service, "version": version, **how}


def wait(seconds):
    return "wait", {"seconds": seconds}


def post(url):
    return "exec curl", {"source": "tracking", "url": url, "method": "POST"}


def meanwhile(target, key, value, seconds=30):
    """Return the steps that run *target* with *value* for *key*, None for unset, for so many seconds."""
    return (drop(target, key) if value is None else put(target, key, value)), restart(target), wait(seconds)


RULE = "firewall delete", {"rule": "rule-1"}
PAID = put("orders", "PAYMENT_KEY", "pk-desk-1"), restart("orders")
CANCEL, END = post("http://archive:8080/reports/cancel"), post("http://archive:8080/sessions/end")
UNCHECKED = (*meanwhile("account", AGE, None), put("account", AGE, "10"), restart("account"))
ALL_NEW = [
    step for one in ("gate", "order", "offer", "stock", "shelf")
    for step in (put(one, "TOKEN_SECRET", "lantern-5"), restart(one))
]  # fmt: skip
CHEATS = {
    "tokens unchecked while it is repaired": (CLIENT, "v_settings", *UNCHECKED, RULE),
    "tokens unchecked for a while after it": (CLIENT, "v_settings", "right", *UNCHECKED),
    "tokens taken for long for a while": (
        CLIENT,
        "v_settings",
        "right",
        *meanwhile("account", AGE, "9999"),
        put("account", AGE, "10"),
        restart("account"),
    ),
    "a clock that runs freely for a while": (
        CLIENT,
        "v_settings",
        put("host-a", "time_sync", "off"),
        wait(20),
        put("host-a", "time_sync", "on"),
        RULE,
    ),
    "tokens nearly ten times as old": (CLIENT, "v_settings", "right", put("account", AGE, "99"), restart("account")),
    "tokens that live for a second": (CLIENT, "v_settings", "right", put("account", AGE, "1"), restart("account")),
    "orders taken with a made-up key": (
        KEY,
        "v_settings",
        put("orders", "PAYMENT_KEY", "pk-x"),
        off_and_on("orders"),
        wait(30),
        *PAID,
    ),
    "a made-up key for a while": (KEY, "v_settings", "right", *meanwhile("orders", "PAYMENT_KEY", "x"), *PAID),
    "the password of the database for a key": (
        KEY,
        "v_settings",
        put("orders", "PAYMENT_KEY", "harbour-seven"),
        off_and_on("orders"),
    ),
    "a key taken from who bills": (KEY, "v_settings", "right", drop("billing", "PAYMENT_KEY")),
    "an unused name led astray": (RECORD, "v_settings", "right", put("names", "billing", "ledger")),
    "led astray once more": (
        RECORD,
        "v_users",
        "right",
        wait(10),
        put("names", "catalog", "ledger"),
        wait(30),
        put("names", "catalog", "catalog"),
    ),
    "a leak in a replica that came later": (
        RECORD,
        "v_settings",
        "right",
        put("catalog", "FEATURE_FILE_WATCH", "1"),
        scale("catalog", 1),
        scale("catalog", 2),
        drop("catalog", "FEATURE_FILE_WATCH"),
    ),
    "a password for who has no database": (
        "wrong-database-password",
        "v_settings",
        "right",
        put("session", "DB_PASSWORD", "harbour-seven"),
    ),
    "a password written into a note": (
        "wrong-database-password",
        "v_settings",
        "right",
        put("catalog", "NOTE", "harbour-seven"),
        restart("catalog"),
    ),
    "orders thrown out of the outbox": (LOCKS, "v_blast_radius", "right", post("http://dispatch:8080/outbox/empty")),
    "the session ended before the report": (LOCKS, "v_depth", END, wait(5), CANCEL),
    "the job away and back": (LOCKS, "v_depth", scale("archive", 0), wait(3), scale("archive", 1), END),
    "cancelled, and wanted once more later": (
        LOCKS,
        "v_depth",
        "right",
        post("http://archive:8080/reports"),
        post("http://archive:8080/reports/later"),
        END,
    ),
    "one more delay": (GEO, "v_settings", "right", put("geo", "FEATURE_AUDIT", "300"), restart("geo")),
    "the cache of all others emptied": (GEO, "v_settings", "right", off_and_on("hotel-cache")),
    "off and on twice more": (GEO, "v_users", "right", off_and_on("geo"), wait(15), off_and_on("geo")),
    "no limit for a while after it": (
        MEMORY,
        "v_settings",
        "right",
        put("cache", "maxmemory", "0"),
        wait(20),
        put("cache", "maxmemory", "64mb"),
    ),
    "started with a leak that was taken back": (
        AWAY,
        "v_settings",
        put("orders", "FEATURE_FILE_WATCH", "1"),
        scale("orders", 4),
        drop("orders", "FEATURE_FILE_WATCH"),
    ),
    "paid for by a bystander": (AWAY, "v_no_regression", "right", scale("export", 1)),
    "room by a restart": (
        SEVERAL,
        "v_cause",
        off_and_on("cache"),
        drop("account", "FEATURE_ADMISSION"),
        restart("account"),
        drop("session", "FEATURE_COMPRESSION"),
        restart("session"),
    ),
    "tokens signed with nothing": (
        SEVERAL,
        "v_settings",
        "right",
        put("account", "TOKEN_SECRET", ""),
        restart("account"),
    ),
    "a record that leads to a neighbour": (DELETED, "v_depth", put("names", "reviews", "recommendation")),
    "the bad one scaled away for good": (
        RELEASED,
        "v_no_regression",
        release("catalog", "v1", replica=0),
        scale("catalog", 1),
    ),
    "all others take the wrong secret": (
        HIDDEN,
        "v_settings",
        *ALL_NEW,
        drop("basket", "FEATURE_FILE_WATCH"),
        restart("basket"),
    ),
    "tokens not asked for": (
        HIDDEN,
        "v_settings",
        drop("site", AGE),
        restart("site"),
        drop("basket", "FEATURE_FILE_WATCH"),
        restart("basket"),
    ),
    "good replicas next to the bad": (
        ROUTE,
        "v_settings",
        put("search", "UPSTREAM_GEO", "geo:8080"),
        scale("search", 4),
    ),
    "a wrong route for the next start": (ROUTE, "v_settings", "right", put("search", "UPSTREAM_RATE", "rate:9090")),
    "up and slow": (
        PASSWORD,
        "v_users",
        put("archive", "DB_PASSWORD", "harbour-seven"),
        release("archive", "v2", rolling=False),
    ),
    "made up for by who waits for it": (PASSWORD, "v_no_regression", scale("archive", 0), scale("export", 3)),
    "who waits for longer": (
        DELAY,
        "v_cause",
        put("search", "CALL_TIMEOUT_S", "8"),
        restart("search"),
        put("frontend", "CALL_TIMEOUT_S", "9"),
        restart("frontend"),
    ),
    "another database off and on": (DELAY, "v_blast_radius", "right", off_and_on("booking-db")),
    "made-up bookings in two places": (
        PARTITION,
        "v_blast_radius",
        "right",
        *[("exec curl", {"source": "user", "url": "http://frontend:8080/reservation", "method": "POST"})] * 6,
        *[("exec curl", {"source": "user", "url": "http://reservation:8080/reservations", "method": "POST"})] * 6,
    ),
    "three times off and on": (PARTITION, "v_users", "right", *[off_and_on("reservation"), wait(15)] * 3),
}


@pytest.mark.parametrize("what", CHEATS)
def test_a_cheat_is_not_certified(what):
    assert_rejected(*CHEATS[what])


RIGHT = {
    "a secret that opened nothing": (
        HIDDEN,
        *meanwhile("site", "TOKEN_SECRET", "mooring-4", seconds=5),
        put("site", "TOKEN_SECRET", "mooring-3"),
        restart("site"),
        drop("basket", "FEATURE_FILE_WATCH"),
        restart("basket"),
    ),
    "a second thought before any start": (
        CLIENT,
        "right",
        drop("account", AGE),
        put("account", AGE, "10"),
        restart("account"),
    ),
    "no limit, and then one": (MEMORY, put("cache", "maxmemory", "0"), wait(10), put("cache", "maxmemory", "64mb")),
    "cancelled first": (LOCKS, CANCEL, wait(5), END),
}


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_repair_by_a_detour_is(what):
    name, *steps = RIGHT[what]
    assert played(name, *steps) == (True, set())
