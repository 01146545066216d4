"""HTTP as it is spoken in the wild: what is unusual reaches the other side unharmed, or is refused by name."""

from __future__ import annotations

import asyncio
import json
import socket
import threading

import pytest

from opsassay.solvers.proxy.trace import trace_of
from solvers.proxy.recording import ASK, CHAT, STREAM, body_of, ended
from solvers.proxy.upstreams import answering, chunked, delta, plain, receive, send, upstream


def raw(base, request: bytes) -> socket.socket:
    """Return a socket on which the bytes of *request* were sent as they are."""
    host, port = base.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=20)
    connection.sendall(request)
    return connection


def head(recorded, line="POST /v1/chat/completions HTTP/1.1", *fields) -> bytes:
    lines = [line, "Host: x", f"Authorization: Bearer {recorded.token}", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def test_a_chunked_upload_with_extensions_and_trailers_arrives_whole(proxied):
    pieces = [ASK[:7], ASK[7:20], ASK[20:]]
    body = b"".join(f"{len(p):X};note=1\r\n".encode() + p + b"\r\n" for p in pieces) + b"0\r\nX-Sum: 1\r\n\r\n"
    with upstream(answering(plain(CHAT))) as (base, seen):
        recorded = proxied(base)
        receive(
            raw(
                recorded.url,
                head(recorded, "POST /v1/chat/completions HTTP/1.1", "Transfer-Encoding: chunked", "Trailer: X-Sum")
                + body,
            ),
            CHAT,
        )
        assert seen[0].body == ASK
        (exchange,) = ended(recorded)
        assert exchange.request_body == ASK


def test_a_client_that_waits_to_be_told_to_go_on_is_told(proxied):
    with upstream(answering(plain(CHAT))) as (base, seen):
        recorded = proxied(base)
        connection = raw(
            recorded.url,
            head(recorded, "POST /v1/chat/completions HTTP/1.1", "Expect: 100-continue", f"Content-Length: {len(ASK)}"),
        )
        assert receive(connection, b"100 Continue\r\n\r\n", keep=True) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(ASK)
        assert receive(connection, CHAT) == plain(CHAT)
        assert seen[0].header("expect") is None


def test_a_client_of_http_1_0_gets_the_stream_without_chunks_and_then_the_end(proxied):
    with upstream(answering(STREAM)) as (base, _):
        recorded = proxied(base)
        seen = receive(
            raw(recorded.url, head(recorded, "POST /v1/chat/completions HTTP/1.0", f"Content-Length: {len(ASK)}") + ASK)
        )
        assert seen.startswith(b"HTTP/1.0 200 OK\r\n")
        assert b"transfer-encoding" not in seen.lower()
        assert seen.split(b"\r\n\r\n", 1)[1] == body_of(STREAM)
        assert ended(recorded)[0].answer().text == "hello"


def test_trailers_of_an_answer_are_dropped_and_its_body_is_whole(proxied):
    answer = STREAM[: -len(b"\r\n")] + b"X-Checksum: abc\r\n\r\n"
    with upstream(answering(answer)) as (base, _):
        recorded = proxied(base)
        seen = receive(send(recorded.url, recorded.token, ASK), b"0\r\n\r\n")
        assert body_of(seen) == body_of(STREAM)
        assert ended(recorded)[0].outcome == "complete"


@pytest.mark.parametrize("extra", ["", "Content-Encoding: gzip\r\n"])
def test_head_is_answered_with_the_headers_of_the_upstream_alone(proxied, extra):
    answer = plain(b"x" * 77, extra=extra).split(b"\r\n\r\n")[0] + b"\r\n\r\n"
    with upstream(answering(answer)) as (base, seen):
        recorded = proxied(base)
        connection = send(recorded.url, recorded.token, b"", "/v1/models", "HEAD")
        assert receive(connection, len(answer), keep=True) == answer
        connection.sendall(head(recorded, "HEAD /v1/models HTTP/1.1"))  # the connection can be used again
        assert receive(connection, len(answer)) == answer
        assert [request.method for request in seen] == ["HEAD", "HEAD"]


def test_an_answer_that_ends_with_its_connection_is_whole(proxied):
    async def handler(_, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + CHAT)
        await writer.drain()
        writer.close()

    with upstream(handler) as (base, _):
        recorded = proxied(base)
        assert body_of(receive(send(recorded.url, recorded.token, ASK), b"0\r\n\r\n")) == CHAT
        assert ended(recorded)[0].answer().text == "hello"


@pytest.mark.parametrize(
    ("line", "fields", "status", "message"),
    [
        (
            "GET /v1/realtime HTTP/1.1",
            ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"],
            501,
            b"WebSocket",
        ),
        ("GET http://api.example.org/v1/models HTTP/1.1", [], 400, b"base URL"),
        ("CONNECT api.example.org:443 HTTP/1.1", [], 400, b"base URL"),
        ("OPTIONS * HTTP/1.1", [], 400, b"base URL"),
    ],
)
def test_what_cannot_be_relayed_is_refused_by_name(proxied, line, fields, status, message):
    with upstream(answering(plain(CHAT))) as (base, seen):
        recorded = proxied(base)
        answer = receive(raw(recorded.url, head(recorded, line, *fields)), b"}}")
        assert answer.startswith(f"HTTP/1.1 {status}".encode())
        assert message in answer
        assert seen == []
        assert [e.outcome for e in ended(recorded)] == ["refused"]


def test_long_headers_pass_and_longer_ones_are_refused(proxied):
    with upstream(answering(plain(CHAT))) as (base, seen):
        recorded = proxied(base)
        receive(send(recorded.url, recorded.token, ASK, headers=(f"X-Long: {'x' * 60_000}",)), CHAT)
        assert seen[0].header("x-long") == "x" * 60_000
        refused = receive(send(recorded.url, recorded.token, ASK, headers=(f"X-Long: {'x' * 80_000}",)), b"\r\n\r\n")
        assert b" 400 " in refused.split(b"\r\n")[0]
        assert len(seen) == 1
        receive(send(recorded.url, recorded.token, ASK), CHAT)  # it goes on for others
        assert len(seen) == 2


def test_bytes_in_headers_that_are_no_utf_8_are_lost_and_nothing_else_is(proxied):
    answer = plain(CHAT, extra="X-Name: @\r\n").replace(b"@", b"Bj\xf6rn")
    with upstream(answering(answer)) as (base, seen):
        recorded = proxied(base)
        line = "POST /v1/chat/completions HTTP/1.1"
        request = head(recorded, line, f"Content-Length: {len(ASK)}", "X-Own: @").replace(b"@", b"J\xf8rgen")
        assert receive(raw(recorded.url, request + ASK), CHAT) == answer.replace(b"\xf6", b"")
        assert (seen[0].header("x-own"), seen[0].body) == ("Jrgen", ASK)
        (exchange,) = ended(recorded)
        assert exchange.outcome == "complete"
        assert dict(exchange.headers)["X-Name"].encode("utf-8", "surrogateescape") == b"Bj\xf6rn"  # as it came


def test_a_path_that_is_no_ascii_is_refused(proxied):
    with upstream(answering(plain(b"{}"))) as (base, seen):
        recorded = proxied(base)
        refused = receive(raw(recorded.url, head(recorded, "GET /v1/@ HTTP/1.1").replace(b"@", b"\xf8")), b"\r\n\r\n")
        assert b" 400 " in refused.split(b"\r\n")[0]
        assert seen == []


def test_pipelined_requests_are_answered_in_their_order(proxied):
    async def handler(request, writer):
        if b"slow" in request.body:
            await asyncio.sleep(0.2)
        writer.write(plain(request.body))

    with upstream(handler) as (base, _):
        recorded = proxied(base)
        bodies = [b'{"a":"slow"}', b'{"b":1}', b'{"c":2}']
        requests = b"".join(head(recorded, "POST /v1/other HTTP/1.1", f"Content-Length: {len(b)}") + b for b in bodies)
        assert receive(raw(recorded.url, requests), bodies[-1]) == b"".join(plain(b) for b in bodies)
        assert [e.request_body for e in ended(recorded, 3)] == bodies


def test_a_client_that_closes_its_sending_side_counts_as_gone(proxied):
    ended_ = threading.Event()

    async def handler(_, writer):
        try:
            while True:
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
                )
                while True:
                    writer.write(b"5\r\n:\n\n\n\n\r\n")
                    await writer.drain()
                    await asyncio.sleep(0.02)
        finally:
            ended_.set()

    with upstream(handler) as (base, _):
        recorded = proxied(base)
        connection = send(recorded.url, recorded.token, ASK)
        receive(connection, b":\n", keep=True)
        connection.shutdown(socket.SHUT_WR)
        assert ended_.wait(5)
        assert ended(recorded)[0].outcome == "client_gone"
        connection.close()


def test_a_client_that_hangs_up_in_mid_upload_leaves_no_call(proxied):
    with upstream(answering(plain(CHAT))) as (base, seen):
        recorded = proxied(base)
        connection = raw(
            recorded.url, head(recorded, "POST /v1/chat/completions HTTP/1.1", "Content-Length: 1000") + ASK
        )
        connection.close()
        receive(send(recorded.url, recorded.token, ASK), CHAT)
        assert [e.outcome for e in ended(recorded)] == ["complete"]
        assert len(seen) == 1


def test_events_with_crlf_comments_several_lines_and_split_characters_are_read(proxied):
    first = '{"choices":[{"index":0,\ndata: "delta":{"content":"Pécs – "}}]}'
    stream = f"\ufeff: hello\r\n\r\nevent: x\r\nid: 1\r\ndata: {first}\r\n\r\n".replace(
        "\ndata: ", "\r\ndata: "
    ).encode()
    stream += b"retry: 3\r\r" + delta("日本").replace(b"\\u65e5\\u672c", "日本".encode()) + b"data: [DONE]\n\n"
    parts = [stream[i : i + 1] for i in range(len(stream))]
    with upstream(answering(chunked(parts))) as (base, _):
        recorded = proxied(base)
        assert body_of(receive(send(recorded.url, recorded.token, ASK), b"0\r\n\r\n")) == stream
        (exchange,) = ended(recorded)
        assert exchange.answer_body == stream
        assert exchange.answer().text == "Pécs – 日本"
        assert "Pécs – 日本" in recorded.text()  # the message put together stands beside the pieces


ODD_EVENTS = [
    {"choices": [{"index": None, "delta": {"content": "x"}}]},
    {"choices": [{"index": "a", "delta": "x"}]},
    {"choices": [{"delta": {"tool_calls": [{"index": -3}, {"index": None}, {"index": 10**9}]}}]},
    {"choices": {"a": 1}, "usage": 7, "error": "x"},
    {"type": "content_block_delta", "index": None, "delta": 3},
    {"type": "message_start", "message": [1]},
    {"type": "response.output_text.delta", "output_index": [], "delta": None},
    {
        "type": "response.completed",
        "response": {"output": [{"type": "message", "content": 3}], "usage": {"input_tokens": "many"}},
    },
]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("odd", ODD_EVENTS)
def test_an_answer_in_an_odd_shape_reaches_the_client_whole_and_is_a_step(proxied, path, odd):
    answer = chunked([f"data: {json.dumps(odd)}\n\n".encode()])
    with upstream(answering(answer)) as (base, _):
        recorded = proxied(base)
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}], "input": "hi"}).encode()
        assert receive(send(recorded.url, recorded.token, body, path), len(answer)) == answer
        (exchange,) = ended(recorded)
        assert exchange.outcome == "complete"
        assert len(trace_of([exchange], "run").steps) == 1


def test_two_agents_with_one_token_are_two_conversations_in_one_session(proxied):
    with upstream(answering(plain(CHAT))) as (base, _):
        recorded = proxied(base)
        bodies = [
            json.dumps(
                {"messages": [{"role": "system", "content": f"You are {who}."}, {"role": "user", "content": "go"}]}
            ).encode()
            for who in ("Ada", "Ben")
        ]
        threads = [
            threading.Thread(target=lambda b=b: receive(send(recorded.url, recorded.token, b), CHAT))
            for b in bodies * 10
        ]
        [t.start() for t in threads]
        [t.join() for t in threads]
        steps = trace_of(ended(recorded, 20), "run").steps
        assert sorted(s.agent_name for s in steps) == ["Ada"] * 10 + ["Ben"] * 10
        assert all(s.agent_name in s.input_context for s in steps)


@pytest.mark.parametrize(
    "given",
    ["", "Authorization: Bearer", "Authorization: Basic eDp5", "Authorization: Bearer \xf6", "x-api-key: sk-mine"],
)
def test_a_key_that_was_not_issued_is_refused_and_nothing_is_recorded(proxied, given):
    with upstream(answering(plain(CHAT))) as (base, seen):
        recorded = proxied(base)
        fields = f"{given}\r\n" if given else ""
        request = f"POST /v1/messages HTTP/1.1\r\nHost: x\r\n{fields}Content-Length: 2\r\n\r\n{{}}".encode("latin-1")
        answer = receive(raw(recorded.url, request), b"}}")
        assert answer.startswith(b"HTTP/1.1 401")
        assert json.loads(answer.split(b"\r\n\r\n")[1])["type"] == "error"
        assert b"sk-mine" not in answer
        assert seen == []
        assert not (recorded.folder / "sessions").exists()
