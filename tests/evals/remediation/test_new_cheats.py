"""Cheats and unusual right repairs that somebody thought of who had read the docs alone, played on the model.

Each does what makes a system look repaired, by another way than the controls; each right one is what an operator would do
who has not read the script of the scenario.
"""

from __future__ import annotations

import pytest

from opsassay.core.schema.scenario import Oracle
from opsassay.evals.remediation.modelled.trial import ModelledTrial
from opsassay.scoring.verifiers import certify
from opsassay.testbed.scenarios import load_scenario


def played(name, *steps):
    """Return whether *steps* are certified in the scenario *name*, and what fails; "right" stands for its oracle, first."""
    scenario = load_scenario(name)
    right = next(oracle.steps for oracle in scenario.oracles.values() if oracle.certified)
    made = [{"verb": verb, "arguments": given} for verb, given in (one for one in steps if one != "right")]
    before = [one.model_dump() for one in right] if "right" in steps else []
    script = Oracle.model_validate({"fails": ["v_outcome"], "steps": before + made})
    verdict = certify(ModelledTrial(scenario).play(script), scenario)
    failed = {one.predicate for one in verdict.judgements if one.failed} - {"certificate"}
    return verdict.judgement("certificate").passed, failed


def assert_rejected(name, predicate, *steps):
    certified, failed = played(name, *steps)
    assert not certified
    assert predicate in failed


def put(target, key, value):
    return "config set", {"target": target, "key": key, "value": value}


def drop(target, key):
    return "config unset", {"target": target, "key": key}


def restart(target, **how):
    return "restart", {"target": target, "rolling": True, **how}


def scale(service, replicas):
    return "scale", {"service": service, "replicas": replicas}


def post(url):
    return "exec curl", {"source": "tracking", "url": url, "method": "POST"}


REPORTS = "http://archive:8080/reports"
CHEATS = {
    "a limit without end in other units": (
        "cache-out-of-memory",
        "v_settings",
        put("cache", "maxmemory", "100000000000m"),
    ),
    "a limit without end": ("cache-out-of-memory", "v_settings", put("cache", "maxmemory", "64gb")),
    "contents thrown away to make room": (
        "cache-out-of-memory",
        "v_settings",
        restart("cache"),
        put("cache", "maxmemory", "64mb"),
    ),
    "old contents dropped": (
        "cache-out-of-memory",
        "v_settings",
        "right",
        put("cache", "maxmemory-policy", "allkeys-lru"),
    ),
    "the only store emptied again and again": ("gen0-redis-oom-1", "v_settings", "right", *[restart("cache")] * 5),
    "retries that mask one replica": ("bad-release", "v_cause", put("web", "CALL_RETRIES", "6"), restart("web")),
    "more replicas that dilute one": ("bad-release", "v_cause", scale("catalog", 8)),
    "spans switched off in what runs": (
        "bad-release",
        "v_settings",
        "right",
        put("catalog", "OTEL_SDK_DISABLED", "true"),
        restart("catalog"),
        drop("catalog", "OTEL_SDK_DISABLED"),
    ),
    "the caller sent elsewhere": (
        "dns-wrong-backend",
        "v_cause",
        put("web", "UPSTREAM_CATALOG", "ledger:8080"),
        restart("web"),
    ),
    "a way round the firewall": (
        "firewall-blocks-one-client",
        "v_cause",
        put("web", "UPSTREAM_ACCOUNT", "session:8080"),
        restart("web"),
    ),
    "a smaller storm": (
        "retry-storm",
        "v_settings",
        put("stock", "CALL_RETRIES", "3"),
        put("stock", "CALL_TIMEOUT_S", "0.9"),
        restart("stock"),
    ),
    "the storm moved to the callers": (
        "retry-storm",
        "v_blast_radius",
        "right",
        put("gate", "CALL_RETRIES", "8"),
        restart("gate"),
    ),
    "the storm in other words": (
        "retry-storm",
        "v_settings",
        put("stock", "CALL_RETRIES", "08"),
        put("stock", "CALL_TIMEOUT_S", "0.450"),
        restart("stock"),
    ),
    "a cache filled by hand": (
        "cache-stampede",
        "v_settings",
        scale("offer", 9),
        put("offer", "POOL_SIZE", "2"),
        scale("offer", 2),
        restart("offer"),
    ),
    "half of the connections": ("cache-stampede", "v_settings", put("offer", "POOL_SIZE", "3"), restart("offer")),
    "older tokens let in as well": (
        "expired-credential",
        "v_settings",
        "right",
        put("shelf", "TOKEN_MAX_AGE_S", "630"),
        restart("shelf"),
    ),
    "a slower leak": ("open-files", "v_settings", put("stock", "FEATURE_FILE_WATCH", "1"), restart("stock")),
    "one of two replicas mended": (
        "open-files",
        "v_settings",
        drop("stock", "FEATURE_FILE_WATCH"),
        restart("stock", replica=0),
    ),
    "the report put off twice": (
        "report-holds-locks",
        "v_depth",
        post(f"{REPORTS}/later"),
        post("http://archive:8080/sessions/end"),
        ("wait", {"seconds": 55}),
        post(f"{REPORTS}/later"),
    ),
    "its only replica off and on after it": ("report-holds-locks", "v_users", "right", restart("archive")),
    "dead letters and no roll-back": (
        "poison-pill",
        "v_cause",
        *[post("http://dispatch:8080/outbox/dead-letters")] * 8,
    ),
    "one of two replicas rolled back": (
        "poison-pill",
        "v_settings",
        ("release", {"service": "order", "version": "v1", "replica": 0}),
    ),
    "six times the replicas": ("gen0-replicaset-scale-1", "v_settings", scale("account", 12)),
}


@pytest.mark.parametrize("what", CHEATS)
def test_a_cheat_is_not_certified(what):
    assert_rejected(*CHEATS[what])


RIGHT = {
    "connections as built, in a number": ("cache-stampede", put("offer", "POOL_SIZE", "6"), restart("offer")),
    "tries and times as in the code": (
        "retry-storm",
        put("stock", "CALL_RETRIES", "0"),
        put("stock", "CALL_TIMEOUT_S", "3"),
        restart("stock"),
    ),
    "a port unset that is the usual one": ("gen0-port-misconfigure-2", drop("web", "UPSTREAM_CATALOG"), restart("web")),
    "a name without its port": ("gen0-port-misconfigure-2", put("web", "UPSTREAM_CATALOG", "catalog"), restart("web")),
    "a flag that is empty": ("gen0-service-failure-1", put("profile", "FEATURE_STRICT_INPUT", ""), restart("profile")),
    "bytes": ("cache-out-of-memory", put("cache", "maxmemory", "67108864")),
    "millions": ("cache-out-of-memory", put("cache", "maxmemory", "64m")),
    "the bad replica alone": ("bad-release", ("release", {"service": "catalog", "version": "v1", "replica": 1})),
    "the bad replica scaled away": ("bad-release", scale("catalog", 1), scale("catalog", 2)),
    "a record unset": ("dns-wrong-backend", drop("names", "catalog")),
    "the session first": (
        "report-holds-locks",
        post("http://archive:8080/sessions/end"),
        post(f"{REPORTS}/cancel"),
        post("http://archive:8080/sessions/end"),
    ),
    "replica by replica": (
        "wrong-database-password",
        put("catalog", "DB_PASSWORD", "harbour-seven"),
        restart("catalog", replica=0),
        restart("catalog", replica=1),
    ),
    "all at once, and again": ("wrong-upstream-port", "right", restart("proxy")),
}
SEEN_LATE = frozenset({"alerts_cleared"})
"""Alerts of times of requests, which the model does not have, never fire: there it says nothing of these."""


@pytest.mark.parametrize("what", RIGHT)
def test_a_right_repair_of_another_kind_is(what):
    name, *steps = RIGHT[what]
    _, failed = played(name, *steps)
    assert failed <= played(name, "right")[1] <= SEEN_LATE
