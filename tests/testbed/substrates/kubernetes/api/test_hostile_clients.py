"""What an attack on a served world comes to: writes, garbage, bodies without end, clients that take all the time."""

from __future__ import annotations

import threading
import time

import pytest

from opsassay.core.http import one_request
from opsassay.testbed.substrates.kubernetes.api import small_api
from opsassay.testbed.substrates.kubernetes.api.serving import serving_objects
from opsassay.testbed.substrates.kubernetes.api.small_api import MOST_ASKED

from .worlds import PODS, WORLD, answer_to, asked, connected, decoded, everything


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
    for connection in slow[1:]:  # the first says nothing at all
        connection.sendall(b"GET /version HTTP/1.1\r\nX: ")
    ended = threading.Event()

    def drip():
        while not ended.wait(0.05):
            for connection in slow[1:]:
                try:
                    connection.sendall(b"a")
                except OSError:
                    continue

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        assert asked(world, "/healthz") == (200, b"ok")
        began = time.monotonic()
        for connection in slow:
            try:
                assert connection.recv(10) == b""
            except ConnectionResetError:
                continue
        assert time.monotonic() - began < 8.0
    finally:
        ended.set()
        dripping.join()
        for connection in slow:
            connection.close()
