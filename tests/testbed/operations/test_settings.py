"""What processes make of their settings: upstreams, tokens by the clock, required keys."""

from __future__ import annotations

import pytest

from opsassay.testbed.workload.runtime.settings import FEATURES, TOKEN_HEADER, Settings, SettingsError

NOW = 1_700_000_000_000_000_000


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ("stock-db", None)),
        ("stock:8080", ("stock", None)),
        ("stock:9090", ("stock", 9090)),
        ("127.0.0.1:22", ("127.0.0.1", 22)),  # a name like any other, which the system's name server does not know
        ("stock:99999", ("stock:99999", None)),
        ("${HOME}/x", ("${HOME}/x", None)),
        ("", ("-", None)),
    ],
)
def test_upstreams_are_names_and_ports(value, expected):
    settings = Settings({} if value is None else {"UPSTREAM_STOCK_DB": value})
    assert settings.upstream("stock-db") == expected


@pytest.mark.parametrize(("offset_s", "let_in"), [(0, True), (9.9, True), (-9.9, True), (11, False), (-60, False)])
def test_tokens_hold_as_long_as_the_clocks_agree(offset_s, let_in):
    caller, callee = Settings({"TOKEN_SECRET": "s"}), Settings({"TOKEN_SECRET": "s", "TOKEN_MAX_AGE_S": "10"})
    token = caller.token(NOW)[TOKEN_HEADER]
    assert (callee.objection(token, NOW + int(offset_s * 1e9)) is None) is let_in


@pytest.mark.parametrize("token", [None, "", "x", f"{NOW}.", f"{NOW}.{'0' * 16}", f"{NOW}.ä"])
def test_unsigned_tokens_are_refused(token):
    assert Settings({"TOKEN_SECRET": "s", "TOKEN_MAX_AGE_S": "10"}).objection(token, NOW) is not None
    assert Settings({}).objection(token, NOW) is None


def test_a_process_without_what_it_requires_says_so():
    Settings({"KEY": "1"}).require(["KEY"])
    for values in ({}, {"KEY": " "}):
        with pytest.raises(SettingsError, match="KEY is missing"):
            Settings(values).require(["KEY"])
    for values in ({"POOL_SIZE": "many"}, {"TOKEN_MAX_AGE_S": "soon"}):
        with pytest.raises(SettingsError, match="must be a"):
            Settings(values).require([])


def test_a_feature_is_a_hook_of_the_runtime_within_its_range():
    settings = Settings({"FEATURE_ADMISSION": "503", "FEATURE_AUDIT": "", "FEATURE_LOCAL_CACHE": "64"})
    assert settings.features() == [
        {"type": "abort_request", "parameters": {"code": 503}},
        {"type": "grow_heap", "parameters": {"size_mb": 64}},
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FEATURE_ADMISSION", "200"),  # a refusal that is an answer would have a broken service look well
        ("FEATURE_ADMISSION", "-503"),
        ("FEATURE_AUDIT", "1e9"),
        ("FEATURE_PREFETCH", "99"),
        ("FEATURE_COMPRESSION", "yes"),
    ],
)
def test_a_process_does_not_start_with_a_feature_that_it_cannot_have(name, value):
    with pytest.raises(SettingsError, match=name):
        Settings({name: value}).require(())


def test_no_feature_can_make_a_request_succeed():
    succeeding = {"replace_result", "replace_path", "replace_method", "patch_body", "replace_code"}
    assert not {feature.hook for feature in FEATURES.values()} & succeeding
    assert FEATURES["FEATURE_ADMISSION"].least >= 400


def test_a_token_that_is_signed_once_is_the_same_until_it_has_expired():
    caller = Settings({"TOKEN_SECRET": "s", "FEATURE_SIGN_ONCE": "1"})
    callee = Settings({"TOKEN_SECRET": "s", "TOKEN_MAX_AGE_S": "70"})
    first = caller.token(NOW)
    late = NOW + 71 * 10**9
    assert caller.token(late) == first
    assert callee.objection(first[TOKEN_HEADER], NOW + 69 * 10**9) is None
    assert "expired" in callee.objection(first[TOKEN_HEADER], late)
    blank = Settings({"TOKEN_SECRET": "s", "FEATURE_SIGN_ONCE": " "})  # counts as unset, and is
    assert blank.features() == []
    assert blank.token(NOW) != blank.token(late)


def test_how_often_and_how_long_a_call_is_tried_is_a_setting():
    usual, other = Settings(), Settings({"CALL_RETRIES": "8", "CALL_TIMEOUT_S": "0.45"})
    assert (usual.retries(2), usual.timeout_s(3.0)) == (2, 3.0)
    assert (other.retries(2), other.timeout_s(3.0)) == (8, 0.45)
    assert (usual.preview_port(), Settings({"PREVIEW_PORT": "9100"}).preview_port()) == (None, 9100)
    for value in ("80", "70000", "http", "-1"):
        with pytest.raises(SettingsError, match="must be a port"):
            Settings({"PREVIEW_PORT": value}).require([])
    assert (usual.keep_alive(), Settings({"KEEP_ALIVE": "off"}).keep_alive()) == (True, False)
    for values in ({"CALL_RETRIES": "21"}, {"CALL_RETRIES": "-1"}, {"CALL_TIMEOUT_S": "soon"}, {"KEEP_ALIVE": "no"}):
        with pytest.raises(SettingsError, match="must be"):
            Settings(values).require([])
