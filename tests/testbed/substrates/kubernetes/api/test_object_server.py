"""Worlds of given objects behind a real API: what is answered, what is refused, and what an attack comes to."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from opsassay.errors import UserError
from opsassay.testbed.substrates.kubernetes.api import one_request, small_api
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS, version_in
from opsassay.testbed.substrates.kubernetes.api.selecting import by_fields, by_labels
from opsassay.testbed.substrates.kubernetes.api.serving import serving_objects
from opsassay.testbed.substrates.kubernetes.api.small_api import MOST_ASKED, SmallApi, served
from opsassay.testbed.substrates.kubernetes.api.statuses import StatusError
from opsassay.testbed.substrates.kubernetes.api.tables import age

from .worlds import WORLD, answer_to, asked, connected, decoded, everything, thing

PODS = "/api/v1/namespaces/shop/pods"


@pytest.fixture(params=["port", "socket"])
def world(request, tmp_path):
    """Serve the world and return where, on a port and at a Unix socket."""
    path = tmp_path / "api.sock" if request.param == "socket" else None
    with serving_objects(WORLD, socket=path) as serving:
        assert (serving.url is None) is (path is not None)
        yield path or serving.url


@pytest.fixture
def writable():
    with serving_objects(WORLD, read_only=False) as serving:
        yield serving.url


def test_lists_and_items_say_what_they_are(world):
    status, listed = asked(world, "/api/v1/pods")
    assert (status, listed["kind"], listed["apiVersion"]) == (200, "PodList", "v1")
    assert {(item["kind"], item["apiVersion"]) for item in listed["items"]} == {("Pod", "v1")}
    assert [item["metadata"]["namespace"] for item in listed["items"]] == ["default", "shop", "shop"]
    status, roles = asked(world, "/apis/rbac.authorization.k8s.io/v1/clusterroles")
    assert (roles["kind"], roles["apiVersion"]) == ("ClusterRoleList", "rbac.authorization.k8s.io/v1")
    status, role = asked(world, "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Areader")
    assert (status, role["kind"], role["metadata"]["name"]) == (200, "ClusterRole", "system:reader")


def test_discovery_leads_to_every_kind(world):
    _, groups = asked(world, "/apis")
    named = [f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups["groups"]]
    found = {}
    for path in ["/api/v1", *named]:
        _, listed = asked(world, path)
        for resource in listed["resources"]:
            found[resource["kind"]] = (listed["groupVersion"], resource["name"], resource["namespaced"])
            _, collection = asked(world, f"{path}/{resource['name']}")
            assert collection["kind"] == f"{resource['kind']}List"
    assert found == {
        kind: (version_in(group), plural, namespaced)
        for kind, (group, plural, namespaced) in KINDS.items()
        if "chaos-mesh" not in group
    }
    assert asked(world, "/apis/apps")[1]["versions"] == [{"groupVersion": "apps/v1", "version": "v1"}]
    assert asked(world, "/version")[1]["gitVersion"].startswith("v1.")
    assert asked(world, "/healthz") == (200, b"ok")


@pytest.mark.parametrize(
    "path",
    [
        "/openapi/v2", "/openapi/v3", "/", "/api/v2", "/apis/nothing.io", "/apis/apps/v1beta1/deployments",
        "/api/v1/unicorns",
        "/api/v1/namespaces/shop/nodes", "/api/v1/namespaces/shop/pods/web-1/log", "/api/v1/pods/web-1",
        "/api/v1/namespaces/shop/pods/nobody", "/apis/chaos-mesh.org/v1alpha1",
    ],
)  # fmt: skip
def test_what_is_not_there_is_a_status(world, path):
    status, said = asked(world, path)
    assert (status, said["kind"], said["apiVersion"], said["status"], said["reason"], said["code"]) == (
        404, "Status", "v1", "Failure", "NotFound", 404,
    )  # fmt: skip


def test_the_same_world_reads_the_same_each_time():
    def read():
        with serving_objects(WORLD) as serving:
            return asked(serving.url, "/api/v1/pods"), asked(serving.url, "/api/v1/namespaces")

    assert read() == read()


def test_a_world_does_not_change_with_what_it_was_made_of():
    objects = [thing("Pod", "web-1", "shop", spec={"containers": []})]
    with serving_objects(objects) as serving:
        objects[0]["spec"]["containers"].append("more")
        assert asked(serving.url, f"{PODS}/web-1")[1]["spec"] == {"containers": []}
    assert objects[0]["metadata"] == {"name": "web-1", "namespace": "shop"}, "nor the other way round"


def test_a_field_with_the_name_of_an_argument_is_a_field():
    with serving_objects(
        [thing("ConfigMap", "a", "shop") | {"name": "x", "self": "y", "key": "z"}], read_only=False
    ) as serving:
        _, found = asked(serving.url, "/api/v1/namespaces/shop/configmaps/a")
        assert [found[field] for field in ("name", "self", "key")] == ["x", "y", "z"]
        made = {"metadata": {"name": "b"}, "name": "x", "namespace": "elsewhere", "body": 1}
        assert asked(serving.url, "/api/v1/namespaces/shop/configmaps", "POST", made)[0] == 201


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ([thing("Unicorn", "a")], "There is no kind of object 'Unicorn'"),
        ([thing("pod", "a")], "did you mean 'Pod'"),
        ([thing("Deployment", "a", version="apps/v1beta1")], "the one that is served here is apps/v1"),
        ([thing("Pod", "a"), thing("Pod", "a", "default")], "two objects Pod default/a"),
        ([{"apiVersion": "v1", "kind": "Pod"}], "Object 0 is none that an API server keeps"),
        ([{"apiVersion": "v1", "kind": "Pod", "metadata": {}}], "metadata.name"),
        ([{"apiVersion": "v1", "kind": "Pod", "metadata": []}], "metadata.name"),
        ([thing("Pod", "a/b")], "'a/b' for a name"),
        ([thing("Pod", "a", 5)], "5 for a name or namespace"),
        ([thing("Pod", "a", spec=datetime.now(UTC))], "not JSON serializable"),
        (["text"], "Object 0 is none"),
    ],
)
def test_objects_that_cannot_be_served_are_refused_in_a_sentence(objects, words):
    with pytest.raises(UserError, match=words) as caught, serving_objects(objects):
        pass
    assert str(caught.value).count("\n") == 0


def test_a_socket_that_cannot_be_made_is_refused_and_nothing_of_others_is_removed(tmp_path):
    there = tmp_path / "there"
    there.write_text("mine")
    for path in (there, tmp_path / "none" / "api.sock", tmp_path / ("x" * 120)):
        with pytest.raises(UserError, match="socket"), serving_objects(WORLD, socket=path):
            pass
    assert there.read_text() == "mine"


def test_a_socket_is_for_its_owner_and_goes_with_the_block(tmp_path):
    path = tmp_path / "api.sock"
    with serving_objects(WORLD, socket=path):
        assert path.stat().st_mode & 0o777 == 0o600
    assert not path.exists()
    with serving_objects(WORLD, socket=path):
        assert asked(path, f"{PODS}/web-1")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "BREW"])
def test_a_write_is_refused_and_changes_nothing(world, method):
    before = asked(world, "/api/v1/pods")
    for path in (PODS, f"{PODS}/web-1", f"{PODS}/web-1?dryRun=All", "/api/v1/namespaces", "/anything"):
        status, said = asked(world, path, method, {"metadata": {"name": "web-1"}})
        assert (status, said["reason"], said["code"]) == (403, "Forbidden", 403)
    assert asked(world, "/api/v1/pods") == before


def test_what_was_asked_is_kept_within_bounds():
    with serving_objects(WORLD) as serving:
        asked(serving.url, f"{PODS}?labelSelector=app%3Dweb&limit=500")
        asked(serving.url, f"{PODS}/web-1", "DELETE", {"kind": "DeleteOptions"})
        assert serving.asked == [
            ("GET", PODS, {"labelSelector": "app=web", "limit": "500"}),
            ("DELETE", f"{PODS}/web-1", {}),
        ]
        for _ in range(MOST_ASKED + 10):
            asked(serving.url, "/version")
        assert serving.asked == [("GET", "/version", {})] * MOST_ASKED
    assert len(serving.asked) == MOST_ASKED, "it is there after the block"


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"hello\r\n\r\n", 400),
        (b"\x00" * 1000, 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /version\r\n\r\n", 505),
        (b"GET /a b HTTP/1.1\r\n\r\n", 400),
        (b"GET http://[::1/ HTTP/1.1\r\n\r\n", 400),
        (b"GET //[/version HTTP/1.1\r\n\r\n", 404),
        (b"GET /version HTTP/1.1\r\nno header\r\n\r\n", 400),
        (b"GET /version HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"GET /version HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
        (b"GET /version HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", 400),
        (b"GET /version HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (b"GET /" + b"a" * 2**20 + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /version HTTP/1.1\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        (b"GET /version HTTP/1.1\r\n" + b"A: b\r\n" * 2**17, 431),
        (b"GET /version?" + b"a=b&" * 101 + b" HTTP/1.1\r\n\r\n", 400),
        (b"A" * 2**20, 400),
    ],
)
def test_garbage_ends_its_own_connection_only(world, raw, status):
    with connected(world) as other:
        said, content = decoded(answer_to(world, raw))
        assert (said, content["kind"]) == (status, "Status")
        other.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert decoded(everything(other)) == (200, b"ok")


def test_a_request_that_breaks_off_is_no_request(world):
    for raw in (b"", b"GET", b"GET /version HTTP/1.1\r\nHost:"):
        with connected(world) as connection:
            connection.sendall(raw)
    assert asked(world, "/healthz") == (200, b"ok")


def test_a_huge_body_is_refused_before_it_is_read(writable):
    for length in (one_request.MOST_BODY_BYTES + 1, 10**17, 10**30):
        head = f"POST {PODS} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode()
        status, said = decoded(answer_to(writable, head + b"{"))
        assert (status, said["reason"]) == (413, "RequestEntityTooLarge")
    assert asked(writable, PODS, "POST", {"metadata": {"name": "small"}})[0] == 201


def test_a_huge_body_that_is_sent_all_the_same_is_not_kept(world):
    """The refusal comes although the other end goes on sending, and the server is not held up by it."""
    with connected(world) as connection:
        connection.sendall(f"POST {PODS} HTTP/1.1\r\nContent-Length: {2 * 2**20}\r\n\r\n".encode())
        for _ in range(32):
            connection.sendall(bytes(2**16))
        assert decoded(everything(connection))[0] == 403
    assert asked(world, "/healthz") == (200, b"ok")


def test_all_bodies_together_are_bounded(writable, monkeypatch):
    monkeypatch.setattr(small_api, "MOST_TAKEN_BYTES", 3000)
    body = {"metadata": {"name": "a"}, "data": {"x": "y" * 900}}
    codes = [asked(writable, f"{PODS}", "POST", body | {"metadata": {"name": f"a{n}"}})[0] for n in range(5)]
    assert codes == [201, 201, 201, 413, 413]
    assert asked(writable, f"{PODS}/a0")[0] == 200


@pytest.mark.parametrize(
    ("body", "method", "status"),
    [
        (b"[" * 2**20, "POST", 400),
        (b'{"a":' * 500 + b"1" + b"}" * 500, "POST", 400),
        (b"{", "POST", 400),
        (b"\xff\xfe", "POST", 400),
        (b"5", "POST", 400),
        (b"[]", "PATCH", 400),
        (b'{"metadata": null}', "POST", 400),
        (b'{"metadata": [1]}', "PUT", 400),
        (b'{"metadata": {"name": ["a"]}}', "POST", 400),
        (b'{"metadata": {"labels": [1]}}', "PUT", 200),
        (b'{"metadata": {"labels": {"a": {}}}}', "PUT", 200),
        (b'{"metadata": 5}', "PATCH", 400),
        (b'{"metadata": null}', "PATCH", 400),
        (b'{"spec": {"containers": [{"name": ["x"], "$patch": "replace"}]}}', "PATCH", 200),
        (b'{"spec": {"containers": [{"name": []}, 5]}}', "PATCH", 200),
    ],
)
def test_a_body_of_strange_form_breaks_nothing(writable, body, method, status):
    path = PODS if method == "POST" else f"{PODS}/web-1"
    assert asked(writable, path, method, body)[0] == status
    for accept in ("application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"):
        for selector in ("app=web", "app in (a,b)", "!app"):
            answer = asked(writable, f"{PODS}?labelSelector={selector.replace(' ', '%20')}", Accept=accept)
            assert answer[0] == 200


def test_slow_clients_hold_nobody_up_and_are_let_go(world, monkeypatch):
    monkeypatch.setattr(small_api, "REQUEST_TIMEOUT_S", 1.0)
    slow = [connected(world) for _ in range(60)]
    ended = threading.Event()

    def drip():
        while not ended.wait(0.05):
            for connection in slow:
                try:
                    connection.sendall(b"G")
                except OSError:
                    continue

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert asked(world, "/healthz") == (200, b"ok")
        began = time.monotonic()
        for connection in slow:
            try:
                assert connection.recv(10) in (b"", b"HTTP/1.1 4"), "nothing, or that this becomes no request"
            except ConnectionResetError:
                continue
        assert time.monotonic() - began < 8.0
    finally:
        ended.set()
        dripping.join()
        for connection in slow:
            connection.close()


def test_fifty_at_once_are_answered(world):
    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: asked(world, PODS), range(300)))
    assert {status for status, _ in answers} == {200}
    assert all(listed == answers[0][1] for _, listed in answers)


def test_everything_ends_with_the_block(tmp_path):
    before = set(threading.enumerate())
    for path in (None, tmp_path / "api.sock"):
        began = time.monotonic()
        with serving_objects(WORLD, socket=path) as serving:
            idle = [connected(path or serving.url) for _ in range(20)]
            idle[0].sendall(b"GET /ver")
            asked(path or serving.url, "/healthz")
        assert time.monotonic() - began < 4.0, "nobody is waited for"
        assert set(threading.enumerate()) == before
        for connection in idle:
            with connection:
                try:
                    assert connection.recv(1) == b""
                except ConnectionResetError:
                    continue
        with pytest.raises(OSError, match=r"refused|No such file"):
            connected(path or serving.url)


def test_the_end_comes_although_the_block_fails(tmp_path):
    path = tmp_path / "api.sock"
    with pytest.raises(ZeroDivisionError), serving_objects(WORLD, socket=path):
        raise ZeroDivisionError
    assert not path.exists()


def test_hundreds_of_worlds_are_served_one_after_another():
    """A loop that looks for its end twice a second, as the standard library's does, would need 50 s for this."""
    began = time.monotonic()
    for _ in range(100):
        with serving_objects(WORLD):
            pass
    assert time.monotonic() - began < 5.0


def test_a_server_answers_each_of_many_by_its_own_request():
    with serving_objects([], read_only=False) as serving, ThreadPoolExecutor(20) as pool:
        bodies = [{"metadata": {"name": f"n{number}"}, "data": {"n": str(number)}} for number in range(200)]
        path = "/api/v1/namespaces/default/configmaps"
        assert {code for code, _ in pool.map(lambda body: asked(serving.url, path, "POST", body), bodies)} == {201}
        _, listed = asked(serving.url, path)
        assert {(item["metadata"]["name"], item["data"]["n"]) for item in listed["items"]} == {
            (f"n{number}", str(number)) for number in range(200)
        }


def test_a_watch_has_what_is_there_and_ends():
    with serving_objects(WORLD) as serving:
        raw = answer_to(serving.url, f"GET {PODS}?watch=true HTTP/1.1\r\n\r\n".encode())
        assert raw.count(b'"type": "ADDED"') == 2
        raw = answer_to(serving.url, f"GET {PODS}?watch=1&resourceVersion=7 HTTP/1.1\r\n\r\n".encode())
        assert raw.partition(b"\r\n\r\n")[2] == b"", "nothing happens in it"


def test_a_script_that_hangs_up_sends_nothing():
    with served(SmallApi(lambda *_: None)) as api:
        assert answer_to(api.url, b"GET / HTTP/1.1\r\n\r\n") == b""


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
