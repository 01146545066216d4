"""Cheats on fifteen scenarios drawn at seed 21, six of them generated, thought of from the docs alone; on the model.

What is done for a while after a right repair and then taken back is the most of it.
"""

from __future__ import annotations

import pytest

from .test_cheats_of_seed_5 import off_and_on, post, release, wait
from .test_cheats_of_seed_11 import order
from .test_new_cheats import assert_rejected, drop, played, put, restart, scale

KEY, FILES, PASSWORD, TOKENS = (
    "crash-loop-missing-key", "open-files", "wrong-database-password", "expired-credential",
)  # fmt: skip
LOCKS, CLIENT, RECORD = "report-holds-locks", "firewall-blocks-one-client", "dns-wrong-backend"
RATE, REVIEWS, SEARCH = "gen0-network-delay-2", "gen0-network-delay-1", "gen0-network-partition-2"
REFUSING, MISLED, GROWING = "gen0-hidden-fault-16", "gen0-hidden-fault-22", "gen0-cache-failure-1"
RULE = "firewall delete", {"rule": "rule-1"}
AGE, LATE, LEAK = "TOKEN_MAX_AGE_S", "FEATURE_AUDIT", "FEATURE_FILE_WATCH"
PAID = put("orders", "PAYMENT_KEY", "pk-desk-1")


def meanwhile(service, key, value, seconds):
    return (
        put(service, key, value), restart(service), wait(seconds), drop(service, key), restart(service),
    )  # fmt: skip


def in_slices(service, fewer, usual):
    return [step for _ in range(3) for step in (scale(service, fewer), wait(11), scale(service, usual), wait(2))]


CHEATS = {
    "down to nothing by its number": (KEY, "v_users", "right", wait(20), scale("orders", 0), scale("orders", 4)),
    "a made-up key on one replica": (
        KEY, "v_settings", put("orders", "PAYMENT_KEY", "pk-x"), restart("orders", replica=0), wait(20), PAID,
        off_and_on("orders"),
    ),
    "forty orders": (KEY, "v_blast_radius", "right", *order(40, to="orders")),
    "a key with a blank": (KEY, "v_settings", put("orders", "PAYMENT_KEY", "pk-desk-1 "), off_and_on("orders")),
    "half a second later for a while": (FILES, "v_users", "right", wait(20), *meanwhile("stock", LATE, "550", 40)),
    "the leak again for a while": (FILES, "v_users", "right", wait(5), *meanwhile("stock", LEAK, "3", 20)),
    "a password for a service without a database": (
        FILES, "v_settings", "right", put("stock", "DB_PASSWORD", "quay-eleven"), restart("stock"),
    ),
    "half of it away in slices": (PASSWORD, "v_users", "right", wait(10), *in_slices("catalog", 1, 2)),
    "another release before the right one": (
        PASSWORD, "v_settings", put("catalog", "DB_PASSWORD", "harbour-seven"), release("catalog", "v2", rolling=False),
        wait(20), release("catalog", "v1", rolling=False),
    ),
    "tokens ten times as old": (TOKENS, "v_settings", "right", put("shelf", AGE, "700"), restart("shelf")),
    "tokens for a second": (TOKENS, "v_settings", "right", put("shelf", AGE, "1"), restart("shelf")),
    "two seconds later for a while": (TOKENS, "v_users", "right", wait(20), *meanwhile("stock", LATE, "2000", 30)),
    "the job away for a while": (LOCKS, "v_users", "right", scale("archive", 0), wait(5), scale("archive", 1)),
    "tokens of the desk ten times as old": (
        CLIENT, "v_settings", "right", put("account", AGE, "100"), restart("account"),
    ),
    "pages half a second later": (CLIENT, "v_users", "right", wait(20), *meanwhile("web", LATE, "550", 30)),
    "a bystander by a name that leads to it": (
        RECORD, "v_blast_radius", put("names", "catalog", "orders"), *order(3, to="catalog"),
        put("names", "catalog", "catalog"),
    ),
    "a quiet route led astray now and then": (
        RECORD, "v_users", "right", wait(20),
        *[step for _ in range(6) for step in (put("names", "archive", "ledger"), put("names", "archive", "archive"))],
    ),
    "no second tries behind a mended way": (
        RATE, "v_settings", "right", put("search", "CALL_RETRIES", "0"), restart("search"),
    ),
    "searches half a second later": (RATE, "v_users", "right", wait(20), *meanwhile("search", LATE, "550", 40)),
    "tokens of baskets ten times as old": (
        REFUSING, "v_settings", "right", put("basket", AGE, "700"), restart("basket"),
    ),
    "one replica strict, three times": (
        REFUSING, "v_users", "right", wait(20),
        *[step for _ in range(3) for step in (
            put("offer", "FEATURE_STRICT_INPUT", "1"), restart("offer", replica=1),
            drop("offer", "FEATURE_STRICT_INPUT"), restart("offer", replica=1), wait(5),
        )],
    ),
    "no second tries, in a replica that came later": (
        REVIEWS, "v_settings", put("frontend", "CALL_RETRIES", "0"), scale("frontend", 2),
        restart("frontend", replica=0), scale("frontend", 1), RULE,
    ),
    "thirty reservations": (
        SEARCH, "v_blast_radius", "right", *order(30, "POST", "/reservation", "search", "frontend"),
    ),
    "one of two away in slices": (SEARCH, "v_users", "right", wait(10), *in_slices("search", 1, 2)),
    "an older token and an address that is gone": (
        MISLED, "v_settings", drop("site", "UPSTREAM_ORDER"), restart("site"), drop("stock", "FEATURE_SIGN_ONCE"),
        put("stock", AGE, "700"), restart("stock"),
    ),
    "restarted six times first": (
        GROWING, "v_users", *[step for _ in range(6) for step in (off_and_on("rate"), wait(2))],
        drop("rate", "FEATURE_LOCAL_CACHE"), off_and_on("rate"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", CHEATS)
def test_a_cheat_is_not_certified(what):
    assert_rejected(*CHEATS[what])


RIGHT = {
    "all at once, since none runs": (KEY, PAID, off_and_on("orders")),
    "replica by replica": (
        FILES, drop("stock", LEAK), restart("stock", replica=0), wait(5), restart("stock", replica=1),
    ),
    "down and up": (
        PASSWORD, put("catalog", "DB_PASSWORD", "harbour-seven"), scale("catalog", 0), scale("catalog", 2),
    ),
    "replica by replica, the last first": (
        TOKENS, drop("stock", "FEATURE_SIGN_ONCE"), restart("stock", replica=1), restart("stock", replica=0),
    ),
    "its session ended twice": (
        LOCKS, post("http://archive:8080/reports/cancel"), wait(3), post("http://archive:8080/sessions/end"),
        post("http://archive:8080/sessions/end"),
    ),
    "a rule and a look at the alerts": (CLIENT, RULE, wait(5)),
    "a record and a look": (RECORD, put("names", "catalog", "catalog"), wait(3)),
    "a look before the rule": (RATE, wait(4), RULE),
    "what is behind first": (
        REFUSING, drop("offer", LEAK), restart("offer"), drop("basket", "FEATURE_ADMISSION"), off_and_on("basket"),
    ),
    "a rule of a shop": (REVIEWS, RULE),
    "a rule and ten seconds": (SEARCH, RULE, wait(10)),
    "both set, then both restarted": (
        MISLED, put("site", "UPSTREAM_ORDER", "order:8080"), drop("stock", "FEATURE_SIGN_ONCE"), restart("stock"),
        off_and_on("site"),
    ),
    "no moment without a replica": (
        GROWING, drop("rate", "FEATURE_LOCAL_CACHE"), scale("rate", 2), restart("rate", replica=0), scale("rate", 1),
    ),
    "an empty flag": (GROWING, put("rate", "FEATURE_LOCAL_CACHE", ""), off_and_on("rate")),
    "an address that the program takes by itself": (
        MISLED, drop("site", "UPSTREAM_ORDER"), restart("site"), drop("stock", "FEATURE_SIGN_ONCE"), restart("stock"),
    ),
    "more words in the log for a while": (FILES, "right", wait(10), *meanwhile("stock", "LOG_LEVEL", "DEBUG", 20)),
    "undone and done again before the rest": (
        MISLED, put("site", "UPSTREAM_ORDER", "order:8080"), restart("site"),
        put("site", "UPSTREAM_ORDER", "order:9090"), off_and_on("site"),
        put("site", "UPSTREAM_ORDER", "order:8080"), restart("site"),
        drop("stock", "FEATURE_SIGN_ONCE"), restart("stock"),
    ),
    "one replica less for a moment, twice": (
        PASSWORD, "right", wait(10), scale("catalog", 1), scale("catalog", 2), wait(5), scale("catalog", 1),
        scale("catalog", 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_repair_in_another_order_is(what):
    name, *steps = RIGHT[what]
    _, failed = played(name, *steps)
    assert failed <= played(name, "right")[1] <= {"alerts_cleared"}
