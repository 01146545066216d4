"""The connection names what went wrong, tries again what may pass, and follows objects through drops of the watch."""

from __future__ import annotations

import time

import pytest
from tiny_api import tiny_api

from opsassay.core.errors import LostError, StartError, UserError
from opsassay.testbed.substrates.kubernetes.api import client as module
from opsassay.testbed.substrates.kubernetes.api import mirror as following
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, DeniedError
from opsassay.testbed.substrates.kubernetes.api.mirror import Mirror


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.001)


def status(code, message):
    return code, {"kind": "Status", "code": code, "message": message}


def pod(name, version, **labels):
    return {"metadata": {"name": name, "namespace": "shop", "resourceVersion": version, "labels": labels}}


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_requests_carry_the_token_of_the_context_and_a_neutral_field_manager(tmp_path):
    with tiny_api(lambda *_: (201, {"metadata": {"name": "a"}}), tmp_path) as (tiny, config):
        Api.connect(config).create({"kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}, "data": {}})
    method, path, query, headers, body = tiny.asked[0]
    assert (method, path) == ("POST", "/api/v1/namespaces/shop/configmaps")
    assert headers["authorization"] == "Bearer abc"
    assert query == {"fieldManager": "kubectl"}
    assert body["data"] == {}
    assert "opsassay" not in str(headers).lower()


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        (401, DeniedError, "expired"),
        (403, DeniedError, "pods is forbidden"),
        (409, ApiError, "409"),
        (422, ApiError, "422"),
    ],
)
def test_a_refusal_is_named_and_not_tried_again(tmp_path, code, error, words):
    refusing = tiny_api(lambda *_: status(code, "pods is forbidden"), tmp_path)
    with refusing as (tiny, config), pytest.raises(error, match=words) as caught:
        Api.connect(config).list("Pod", "shop")
    assert len(tiny.asked) == 1
    assert "here" in str(caught.value) or code in {409, 422}


def test_an_object_that_is_not_there_is_none_and_its_deletion_no_error(tmp_path):
    with tiny_api(lambda *_: status(404, "not found"), tmp_path) as (_, config):
        api = Api.connect(config)
        assert api.get("Pod", "a", "shop") is None
        assert api.delete("Pod", "a", "shop") is False


@pytest.mark.parametrize(
    ("served", "version"), [(["poddisruptionbudgets"], "v1"), (None, "v1beta1"), (["podsecuritypolicies"], "v1beta1")]
)
def test_a_kind_that_moved_is_asked_for_where_this_server_has_it(tmp_path, served, version):
    """Disruption budgets are in policy/v1beta1 up to 1.24, in policy/v1 from 1.21 on; a version may be there without."""

    def script(_method, path, _query):
        if path == "/apis/policy/v1":
            return (200, {"resources": [{"name": one} for one in served]}) if served else status(404, "not found")
        return 200, {"items": []}

    with tiny_api(script, tmp_path) as (tiny, config):
        api = Api.connect(config)
        assert api.list("PodDisruptionBudget", "shop") == api.list("PodDisruptionBudget", "mall") == []
        assert api.version_of("PodDisruptionBudget") == f"policy/{version}"
        assert api.version_of("Deployment") == "apps/v1"
        assert api.version_of("Pod") == "v1"
    paths = [path for _, path, *_ in tiny.asked]
    budgets = [f"/apis/policy/{version}/namespaces/{name}/poddisruptionbudgets" for name in ("shop", "mall")]
    assert paths == ["/apis/policy/v1", *budgets], "it is asked once"


def test_an_overloaded_server_is_asked_again_within_bounds(tmp_path):
    answers = iter([status(503, "starting"), status(429, "slow down"), (200, {"items": []})])
    with tiny_api(lambda *_: next(answers), tmp_path) as (tiny, config):
        assert Api.connect(config).list("Pod") == []
    assert len(tiny.asked) == 3
    with (
        tiny_api(lambda *_: status(503, "starting"), tmp_path) as (tiny, config),
        pytest.raises(ApiError, match="starting"),
    ):
        Api.connect(config).list("Pod")
    assert len(tiny.asked) == module.TRIES


def test_a_write_whose_answer_was_lost_is_not_sent_twice(tmp_path):
    with tiny_api(lambda *_: None, tmp_path) as (tiny, config), pytest.raises(LostError, match="cannot be reached"):
        Api.connect(config).create({"kind": "Pod", "metadata": {"name": "a", "namespace": "shop"}})
    assert len(tiny.asked) == 1
    with tiny_api(lambda *_: None, tmp_path) as (tiny, config), pytest.raises(LostError):
        Api.connect(config).get("Pod", "a", "shop")
    assert len(tiny.asked) == module.TRIES


def test_a_cluster_that_is_away_and_a_config_that_is_none_are_one_sentence_each(tmp_path):
    with tiny_api(lambda *_: None, tmp_path) as (_, config):
        api = Api.connect(config)
    with pytest.raises(LostError, match=r"API server of here \(http://127.0.0.1:\d+\) cannot be reached"):
        api.require()
    with pytest.raises(UserError, match=r"nowhere\.yaml cannot be used"):
        Api.connect(tmp_path / "nowhere.yaml")
    with pytest.raises(UserError, match="elsewhere"):
        Api.connect(config, "elsewhere")
    for number, content in enumerate(("half a config", "[1, 2]", "{a: 'b", "")):
        (broken := tmp_path / f"broken-{number}.yaml").write_text(content)
        with pytest.raises(UserError, match=rf"broken-{number}\.yaml cannot be used: .*; set KUBECONFIG"):
            Api.connect(broken)


def test_a_mirror_lists_once_and_goes_on_where_a_dropped_watch_stopped(tmp_path):
    watches = iter([
        [{"type": "ADDED", "object": pod("b", "11")}, {"type": "MODIFIED", "object": pod("a", "12", new="yes")}],
        None,
        [{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "20"}}},
         {"type": "DELETED", "object": pod("b", "21")}],
    ])  # fmt: skip

    def script(_, path, query):
        assert path == "/api/v1/namespaces/shop/pods"
        if "watch" not in query:
            return 200, {"metadata": {"resourceVersion": "10"}, "items": [pod("a", "9")]}
        events = next(watches, ...)
        return None if events is None else (200, events if events is not ... else [])

    with tiny_api(script, tmp_path) as (tiny, config):
        seen = []
        mirror = Mirror(
            Api.connect(config), "Pod", "shop", lambda what, item: seen.append((what, item["metadata"]["name"]))
        )
        mirror.start().wait()
        until(lambda: ("DELETED", "b") in seen)
        mirror.stop()
        until(lambda: not mirror._thread.is_alive())
    assert mirror.lists == 1
    assert mirror.drops >= 2
    assert seen == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    assert list(mirror.objects) == [("shop", "a")]
    asked = [query["resourceVersion"] for _, _, query, *_ in tiny.asked if "watch" in query]
    assert asked[:3] == ["10", "12", "12"]
    assert set(asked[3:]) <= {"21"}


def test_a_mirror_lists_again_only_when_its_place_in_history_is_gone(tmp_path):
    lists = iter([[pod("a", "9"), pod("b", "9")], [pod("a", "30")]])
    watches = iter([[{"type": "ERROR", "object": {"code": 410, "message": "too old"}}]])

    def script(_method, _path, query):
        if "watch" in query:
            return 200, next(watches, [])
        return 200, {"metadata": {"resourceVersion": "30"}, "items": next(lists)}

    with tiny_api(script, tmp_path) as (_, config):
        seen = []
        mirror = Mirror(
            Api.connect(config), "Pod", "shop", lambda what, item: seen.append((what, item["metadata"]["name"]))
        )
        mirror.start()
        until(lambda: mirror.lists == 2)
        until(lambda: mirror.fresh)
        assert list(mirror.objects) == [("shop", "a")]
        assert ("DELETED", "b") in seen, "what had gone while nobody watched is told"
        mirror.stop()
        until(lambda: not mirror._thread.is_alive())


def test_a_watch_that_is_asked_for_again_is_not_yet_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(following, "RETRY_S", 0.01)
    fresh = []

    def script(_method, _path, query):
        if "watch" not in query:
            return 200, {"metadata": {"resourceVersion": "30"}, "items": []}
        fresh.append(mirror.fresh)
        return None

    with tiny_api(script, tmp_path) as (_, config):
        mirror = Mirror(Api.connect(config), "Pod", "shop")
        mirror.start()
        until(lambda: len(fresh) > 3)
        mirror.stop()
        until(lambda: not mirror._thread.is_alive())
    assert fresh[0], "it has just been listed"
    assert not any(fresh[1:])


def test_a_mirror_says_why_it_cannot_list(tmp_path):
    with tiny_api(lambda *_: status(403, "pods is forbidden"), tmp_path) as (_, config):
        mirror = Mirror(Api.connect(config), "Pod", "shop")
        mirror.start()
        with pytest.raises((DeniedError, StartError), match="forbidden"):
            mirror.wait(1.0)
        assert not mirror.fresh
        mirror.stop()
        until(lambda: not mirror._thread.is_alive())
