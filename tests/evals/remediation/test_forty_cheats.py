"""Cheats on fifteen scenarios drawn at seed 4031, six of them generated, thought of from the docs alone; on the model.

`test_new_cheats_live.py` plays what the model cannot tell.
"""

from __future__ import annotations

import pytest

from .test_new_cheats import SEEN_LATE, assert_rejected, drop, played, put, restart, scale

ACCOUNT, CATALOG = "gen0-manual-garbage-collection-1", "gen0-manual-garbage-collection-2"
REVIEWS, CREDENTIALS = "gen0-http-request-abort-fault-2", "gen0-unregister-credentials-2"
PARTITION, SEVERAL, MEMORY = "gen0-network-partition-1", "gen0-several-faults-1", "cache-out-of-memory"
BURNS, REFUSES = "FEATURE_EAGER_CLEANUP", "FEATURE_ADMISSION"
POLICY, ROOM, KEPT = "maxmemory-policy", "maxmemory", "noeviction"


def release(service, version, **how):
    return "release", {"service": service, "version": version, **how}


def order(method):
    return "exec curl", {"source": "web", "url": "http://orders:8080/orders", "method": method}


CHEATS = {
    "less than nothing of it": (ACCOUNT, "v_settings", put("account", BURNS, "-1"), restart("account")),
    "an age with a comma": (ACCOUNT, "v_settings", "right", put("account", "TOKEN_MAX_AGE_S", "10,0")),
    "a part of a leak": (CATALOG, "v_settings", "right", put("catalog", "FEATURE_FILE_WATCH", "0.9")),
    "a flag of nought": (SEVERAL, "v_settings", "right", put("web", "FEATURE_SIGN_ONCE", "0")),
    "a status that is no error": (REVIEWS, "v_settings", put("reviews", REFUSES, "399"), restart("reviews")),
    "a status with a nought": (SEVERAL, "v_settings", "right", put("orders", REFUSES, "0200"), restart("orders")),
    "no second tries": (REVIEWS, "v_settings", "right", put("frontend", "CALL_RETRIES", "0"), restart("frontend")),
    "no second tries of the broken one": (REVIEWS, "v_settings", "right", put("reviews", "CALL_RETRIES", "0")),
    "half of the connections at once": (
        REVIEWS,
        "v_settings",
        drop("reviews", REFUSES),
        put("reviews", "POOL_SIZE", "2"),
        restart("reviews"),
    ),
    "mail that nobody takes": (REVIEWS, "v_blast_radius", "right", *[restart(one) for one in ("accounting", "email")]),
    "a key with a blank": ("crash-loop-missing-key", "v_settings", put("orders", "PAYMENT_KEY", "pk-desk-1 ")),
    "a key in capitals": ("crash-loop-missing-key", "v_settings", put("orders", "PAYMENT_KEY", "PK-DESK-1")),
    "a new key on both sides": (
        "crash-loop-missing-key",
        "v_settings",
        *[step for one in ("billing", "orders") for step in (put(one, "PAYMENT_KEY", "pk-desk-2"), restart(one))],
    ),
    "a second key beside it": ("crash-loop-missing-key", "v_settings", "right", put("orders", "PAYMENT_KEYS", "pk")),
    "orders in small letters": ("crash-loop-missing-key", "v_blast_radius", "right", *[order("post")] * 11),
    "a bystander's password": (CREDENTIALS, "v_settings", "right", put("catalog", "DB_PASSWORD", "harbour-seven ")),
    "one replica as the caller knows it": (
        "wrong-upstream-port",
        "v_settings",
        put("proxy", "UPSTREAM_WEB", "web-0:8080"),
        restart("proxy"),
    ),
    "another route that ends in a dot": (
        "wrong-upstream-port",
        "v_settings",
        "right",
        put("proxy", "UPSTREAM_ORDERS", "orders.:8080"),
    ),
    "a name for two": ("firewall-blocks-one-client", "v_blast_radius", "right", put("names", "ledger", "account")),
    "a name for itself": (
        PARTITION,
        "v_blast_radius",
        "right",
        put("names", "session", "session"),
        drop("names", "session"),
    ),
    "a caller that gives up early": (
        "firewall-blocks-one-client",
        "v_settings",
        "right",
        put("web", "CALL_TIMEOUT_S", "0.3"),
        restart("web"),
    ),
    "all callers while it is broken": (PARTITION, "v_temporal", *[("restart", {"target": "web"})] * 2, "right"),
    "another release in passing": (
        CREDENTIALS,
        "v_settings",
        "right",
        release("orders", "v2", replica=0),
        release("orders", "v1"),
    ),
    "what is down for long in turns": ("slow-archive", "v_users", "right", *[("restart", {"target": "archive"})] * 5),
    "room by throwing sessions out": (
        MEMORY,
        "v_settings",
        put("cache", POLICY, "allkeys-random"),
        put("cache", ROOM, "64mb"),
        put("cache", POLICY, KEPT),
    ),
    "sessions thrown out in passing": (
        MEMORY,
        "v_settings",
        "right",
        put("cache", POLICY, "volatile-ttl"),
        put("cache", ROOM, "500kb"),
        put("cache", ROOM, "64mb"),
        put("cache", POLICY, KEPT),
    ),
}


@pytest.mark.parametrize("what", CHEATS)
def test_a_cheat_is_not_certified(what):
    assert_rejected(*CHEATS[what])


RIGHT = {
    "a flag of nothing": (ACCOUNT, put("account", BURNS, ""), restart("account")),
    "the flagged ones away": (
        CATALOG,
        drop("catalog", BURNS),
        restart("catalog", replica=0),
        scale("catalog", 1),
        scale("catalog", 2),
    ),
    "one after the other by number": (
        CATALOG,
        drop("catalog", BURNS),
        restart("catalog", replica=1),
        restart("catalog", replica=0),
    ),
    "restarted before and after": (ACCOUNT, restart("account"), "right", restart("account")),
    "all at once": (REVIEWS, drop("reviews", REFUSES), ("restart", {"target": "reviews"})),
    "as the port is read": ("wrong-upstream-port", put("proxy", "UPSTREAM_WEB", "web:08080"), restart("proxy")),
    "without a port": ("wrong-upstream-port", put("proxy", "UPSTREAM_WEB", "web"), restart("proxy")),
    "unset": ("wrong-upstream-port", drop("proxy", "UPSTREAM_WEB"), restart("proxy")),
    "and the callers after it": ("firewall-blocks-one-client", "right", restart("web")),
    "restarted first": (PARTITION, restart("session"), "right"),
    "the other fault first": (
        SEVERAL,
        drop("orders", REFUSES),
        restart("orders"),
        put("web", "UPSTREAM_SESSION", "session"),
        restart("web"),
    ),
    "both set, then both restarted": (
        SEVERAL,
        drop("orders", REFUSES),
        drop("web", "UPSTREAM_SESSION"),
        restart("orders"),
        restart("web"),
    ),
    "the web scaled in its turn": (SEVERAL, "right", scale("web", 3), scale("web", 4)),
    "half the room": (MEMORY, put("cache", ROOM, "32mb")),
    "more room": (MEMORY, put("cache", ROOM, "128mb")),
    "in two steps": (MEMORY, put("cache", ROOM, "8mb"), put("cache", ROOM, "64mb")),
    "one by one": (
        "crash-loop-missing-key",
        put("orders", "PAYMENT_KEY", "pk-desk-1"),
        *[restart("orders", replica=number) for number in range(4)],
    ),
    "down and up": (
        "crash-loop-missing-key",
        put("orders", "PAYMENT_KEY", "pk-desk-1"),
        scale("orders", 0),
        scale("orders", 4),
    ),
    "in turn": (CREDENTIALS, put("orders", "DB_PASSWORD", "harbour-seven"), restart("orders")),
    "tried wrong first": (
        CREDENTIALS,
        put("orders", "DB_PASSWORD", "harbour"),
        ("restart", {"target": "orders"}),
        put("orders", "DB_PASSWORD", "harbour-seven"),
        ("restart", {"target": "orders"}),
    ),
    "the one replica by number": ("slow-archive", release("archive", "v1", replica=0)),
    "beside it, then away": ("busy-hour", release("archive", "v1"), scale("archive", 2), scale("archive", 1)),
}


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_repair_of_another_kind_is(what):
    name, *steps = RIGHT[what]
    _, failed = played(name, *steps)
    assert failed <= played(name, "right")[1] <= SEEN_LATE
