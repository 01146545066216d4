"""The proxy in front of upstreams that are well and unwell: what the client sees, what stands in the record."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from opsassay.core.errors import DatapackError, UserError
from opsassay.solvers.proxy.exchanges import SessionTail, read_session
from opsassay.solvers.proxy.running import running_proxy
from opsassay.solvers.proxy.server import ProxySettings
from opsassay.solvers.proxy.tokens import issue_token
from opsassay.solvers.proxy.trace import trace_of
from solvers.proxy.recording import ASK, CHAT, MESSAGE, REAL_KEY, STREAM, body_of, ended
from solvers.proxy.upstreams import answering, chunked, delta, event, plain, receive, send, upstream

ANTHROPIC_STREAM = chunked(
    [
        b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","content":[]}}\n\n',
        event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}}),
        b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    ]
)


@pytest.mark.parametrize(
    ("path", "response"),
    [
        ("/v1/chat/completions", plain(CHAT, extra="x-Odd: 1\r\nX-odd: 2\r\nDate: then\r\n")),
        ("/v1/chat/completions", STREAM),
        ("/v1/messages", plain(MESSAGE)),
        ("/v1/messages", ANTHROPIC_STREAM),
        ("/v1/chat/completions", plain(b"", status="204 No Content").replace(b"Content-Length: 0\r\n", b"")),
        (
            "/v1/messages",
            plain(b'{"error":{"message":"slow down"}}', status="429 Too Many Requests", extra="retry-after: 7\r\n"),
        ),
    ],
)
def test_every_byte_to_the_client_is_that_of_a_direct_connection(proxied, path, response):
    with upstream(answering(response)) as (base, _):
        recorded = proxied(base)
        direct = receive(send(base, "x", ASK, path), len(response))
        assert receive(send(recorded.url, recorded.token, ASK, path), len(response)) == direct == response
        (exchange,) = ended(recorded)
        assert exchange.outcome == "complete"
        assert exchange.request_body == ASK
        assert f"{exchange.status}" in response.decode().split("\r\n")[0]


def test_the_first_chunk_leaves_as_it_arrives_and_is_on_disk_before(proxied):
    go_on = threading.Event()

    async def handler(_, writer):
        writer.write(STREAM[: STREAM.index(b"\r\n\r\n") + 4])
        first = delta("he")
        writer.write(f"{len(first):x}\r\n".encode() + first + b"\r\n")
        await writer.drain()
        await asyncio.to_thread(go_on.wait, 10)
        writer.write(STREAM[STREAM.index(delta("he")) + len(first) + 2 :])

    with upstream(handler) as (base, _):
        recorded = proxied(base)
        connection = send(recorded.url, recorded.token, ASK)
        receive(connection, delta("he"), keep=True)  # it came although the stream stands still
        (half,) = recorded.exchanges()
        assert (half.outcome, half.answer_body) == ("cut", delta("he"))
        go_on.set()
        receive(connection, b"0\r\n\r\n")
        (exchange,) = ended(recorded)
        assert exchange.answer().text == "hello"
        times = [at for at, _ in exchange.chunks]
        assert times == sorted(times)
        assert len(times) >= 3
        assert '"event":"message"' in recorded.text()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/models?limit=2&after=a%2Fb", b""),
        ("DELETE", "/v1/files/f%20x", b""),
        ("PUT", "/any?x=", b"\x00\xff"),
        ("POST", "/v1/embeddings", b"[1]"),
    ],
)
def test_method_path_query_and_body_go_on_unchanged_and_the_token_becomes_the_key(proxied, method, path, body):
    with upstream(answering(plain(b"{}"))) as (base, seen):
        recorded = proxied(base)
        receive(
            send(recorded.url, recorded.token, body, path, method, headers=("X-Own: yes", "Accept-Encoding: gzip, br")),
            b"{}",
        )
        (request,) = seen
        assert (request.method, request.path, request.body) == (method, path, body)
        assert (request.header("authorization"), request.header("x-own")) == (f"Bearer {REAL_KEY}", "yes")
        assert request.header("accept-encoding") == "gzip"
        assert request.header("host") == base.removeprefix("http://")
        (exchange,) = ended(recorded)
        assert (exchange.method, exchange.path, exchange.request_body) == (method, path, body)


def test_sessions_are_told_apart_by_token_and_a_header_forges_nothing(proxied):
    with upstream(answering(plain(CHAT))) as (base, seen):
        recorded = proxied(base)
        other = issue_token(recorded.folder, "other")
        done = [
            threading.Thread(
                target=lambda t=t: receive(send(recorded.url, t, ASK, headers=("X-OpsAssay-Session: run",)), CHAT)
            )
            for t in (recorded.token, other) * 10
        ]
        [thread.start() for thread in done]
        [thread.join() for thread in done]
        assert (len(ended(recorded)), len(recorded.exchanges("other"))) == (10, 10)
        assert len({e.id for e in [*recorded.exchanges(), *recorded.exchanges("other")]}) == 20
        refused = receive(send(recorded.url, "opsassay-guessed", ASK), b"opsassay trace proxy token")
        assert refused.startswith(b"HTTP/1.1 401")
        assert len(seen) == 20  # the guess was not sent on


def test_keys_never_enter_the_record_not_even_in_two_halves(proxied):
    body = f'{{"error": {{"message": "Incorrect API key provided: {REAL_KEY}"}}}}'.encode()
    cut = body.index(REAL_KEY.encode()) + 9
    with upstream(answering(chunked([body[:cut], body[cut:]], "application/json"))) as (base, _):
        recorded = proxied(base)
        asked = json.dumps({"messages": [{"content": f"my key is {recorded.token}"}]}).encode()
        seen = receive(send(recorded.url, recorded.token, asked, "/v1/chat/completions?api_key=zzz&n=1"), b"0\r\n\r\n")
        assert REAL_KEY.encode()[:9] in seen  # the client gets it all
        (exchange,) = ended(recorded)
        assert exchange.answer_body == body.replace(REAL_KEY.encode(), b"[key]")
        for secret in (REAL_KEY, recorded.token, "zzz"):
            assert secret not in recorded.text()
        assert exchange.path.endswith("?api_key=[key]&n=1")
        assert not any(
            secret in p.read_text()
            for p in recorded.folder.rglob("*")
            if p.is_file()
            for secret in (REAL_KEY, recorded.token)
        )


def test_a_key_inside_a_compressed_answer_is_withheld_and_other_compressed_answers_are_read(proxied):
    clean, dirty = (gzip.compress(text) for text in (CHAT, f"bad key {REAL_KEY}".encode()))
    zipped = "Content-Encoding: gzip\r\n"

    async def handler(request, writer):
        writer.write(plain(dirty if b"dirty" in request.body else clean, extra=zipped))

    with upstream(handler) as (base, _):
        recorded = proxied(base)
        assert receive(send(recorded.url, recorded.token, ASK), clean).endswith(clean)
        assert receive(send(recorded.url, recorded.token, b'{"dirty":1}'), dirty).endswith(dirty)
        first, second = ended(recorded, 2)
        assert first.answer().text == "hello"
        assert second.answer_body == b"[key]"


@pytest.mark.parametrize("status", ["429 Too Many Requests", "500 Internal Server Error"])
def test_errors_of_the_upstream_are_passed_on_and_become_a_step_with_its_error(proxied, status):
    with upstream(answering(plain(b'{"error":{"message":"not now"}}', status))) as (base, _):
        recorded = proxied(base)
        assert status.encode() in receive(send(recorded.url, recorded.token, ASK), b"not now")
        (step,) = trace_of(ended(recorded), "run").steps
        assert step.error == f"HTTP {status[:3]}: not now"


def test_an_upstream_that_is_not_there_or_silent_is_told_in_the_form_of_the_api(proxied):
    async def silent(_, writer):
        await asyncio.sleep(5)

    recorded = proxied("http://127.0.0.1:9")
    answer = receive(send(recorded.url, recorded.token, ASK, "/v1/messages"), b"}}")
    assert answer.startswith(b"HTTP/1.1 502")
    assert json.loads(answer.split(b"\r\n\r\n")[1])["type"] == "error"
    assert ended(recorded)[0].outcome == "upstream_failed"


@pytest.mark.parametrize("begun", [b"", STREAM[:-40]])
def test_silence_of_the_upstream_ends_as_a_timeout(proxied, begun):
    async def handler(_, writer):
        writer.write(begun)
        await writer.drain()
        await asyncio.sleep(5)

    with upstream(handler) as (base, _):
        recorded = proxied(base, idle_s=0.2)
        answer = receive(send(recorded.url, recorded.token, ASK), None if begun else b"}}")
        assert body_of(answer) == body_of(begun) if begun else answer.startswith(b"HTTP/1.1 504")
        assert ended(recorded)[0].outcome == "timeout"


def test_half_a_stream_reaches_the_client_as_half_a_stream_and_is_read_as_far_as_it_went(proxied):
    half = STREAM[: STREAM.index(b"[DONE]")]

    async def handler(_, writer):
        writer.write(half)
        await writer.drain()
        writer.close()

    with upstream(handler) as (base, _):
        recorded = proxied(base)
        seen = receive(send(recorded.url, recorded.token, ASK))
        assert not seen.endswith(b"0\r\n\r\n")
        assert body_of(seen) == body_of(half)
        (exchange,) = ended(recorded)
        assert (exchange.outcome, exchange.answer().text) == ("upstream_failed", "hello")
        assert "early" in trace_of([exchange], "run").steps[0].error


def test_bytes_that_are_no_text_are_recorded_as_they_are(proxied):
    odd = bytes(range(256))
    with upstream(answering(chunked([odd, b"\xff\xfe", event({"choices": []})]))) as (base, _):
        recorded = proxied(base)
        receive(send(recorded.url, recorded.token, b"\xc3\x28" + odd), b"0\r\n\r\n")
        (exchange,) = ended(recorded)
        assert exchange.request_body == b"\xc3\x28" + odd
        assert exchange.answer_body == odd + b"\xff\xfe" + event({"choices": []})
        assert trace_of([exchange], "run").steps == ()


@pytest.mark.slow
def test_fifty_megabytes_each_way(proxied):
    big = b'{"x":"' + os.urandom(25 * 1024 * 1024).hex().encode() + b'"}'
    with upstream(answering(plain(big))) as (base, seen):
        recorded = proxied(base)
        answer = receive(send(recorded.url, recorded.token, big, "/v1/other"), big[-64:])
        assert answer.endswith(big)
        assert seen[0].body == big
        (exchange,) = ended(recorded)
        assert exchange.request_body == big == exchange.answer_body


def test_a_client_that_hangs_up_ends_the_call_upstream_and_is_recorded_with_what_it_got(proxied):
    gone = threading.Event()

    async def handler(_, writer):
        writer.write(STREAM[:-40])
        await writer.drain()
        try:
            while True:
                writer.write(b"5\r\n:\n\n\n\n\r\n")
                await writer.drain()
                await asyncio.sleep(0.02)
        finally:
            gone.set()

    with upstream(handler) as (base, _):
        recorded = proxied(base)
        connection = send(recorded.url, recorded.token, ASK)
        receive(connection, delta("he"), keep=True)
        connection.close()
        assert gone.wait(5)
        (exchange,) = ended(recorded)
        assert exchange.outcome == "client_gone"
        assert exchange.answer_body.startswith(delta("he"))


@pytest.mark.slow
def test_a_kill_in_mid_stream_loses_nothing_that_reached_the_client(tmp_path):
    async def handler(_, writer):
        writer.write(STREAM[: STREAM.index(b"\r\n\r\n") + 4])
        for number in range(10_000):
            piece = delta(f"{number} ")
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.001)

    command = [
        sys.executable,
        "-m",
        "opsassay",
        "trace",
        "proxy",
        "-o",
        str(tmp_path),
        "--session",
        "run",
        "--upstream",
    ]
    with upstream(handler) as (base, _):
        process = subprocess.Popen([*command, base], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        lines = [process.stdout.readline().split("=", 1)[1].strip() for _ in range(4)]
        connection = send(lines[2], lines[1], ASK)
        seen = receive(connection, b'"60 "', keep=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
        seen += receive(connection)
        process.stdout.close()
    got = [line for line in seen.split(b"\r\n") if line.startswith(b"data: ")]
    (exchange,) = read_session(tmp_path / "sessions" / "run")
    assert exchange.outcome == "cut"
    assert exchange.answer_body.startswith(b"".join(line + b"" for line in got[:60]))
    assert exchange.answer().text.startswith(" ".join(str(n) for n in range(61)))

    record = tmp_path / "sessions" / "run" / "record.jsonl"
    record.write_bytes(record.read_bytes() + b'{"event":"body","id":"torn')
    with upstream(answering(plain(CHAT))) as (base, _), running_proxy(ProxySettings(base, tmp_path)) as url:
        receive(send(url, issue_token(tmp_path, "run"), ASK), CHAT)
    assert [e.outcome for e in read_session(tmp_path / "sessions" / "run")] == ["cut", "complete"]


def test_what_cannot_be_recorded_is_not_sent_on(proxied):
    with upstream(answering(plain(CHAT))) as (base, seen):
        recorded = proxied(base)
        (recorded.folder / "sessions").write_text("in the way")
        answer = receive(send(recorded.url, recorded.token, ASK), b"}}")
        assert answer.startswith(b"HTTP/1.1 507")
        assert b"nothing was sent on" in answer
        assert seen == []


def test_a_second_proxy_on_the_same_folder_is_refused(proxied):
    recorded = proxied("http://127.0.0.1:9")
    with (
        pytest.raises(UserError, match="Another proxy records"),
        running_proxy(ProxySettings("http://x", recorded.folder)),
    ):
        pass


def test_a_clock_that_jumps_changes_neither_order_nor_durations(proxied):
    jumps = iter(range(1_000_000))
    hour = 3_600_000_000_000

    def wall_ns():
        return 1_700_000_000_000_000_000 - hour * (next(jumps) % 3)

    with upstream(answering(plain(CHAT))) as (base, _):
        recorded = proxied(base, wall_ns=wall_ns)
        for number in range(6):
            receive(send(recorded.url, recorded.token, ASK.replace(b"hi", str(number).encode())), CHAT)
        found = ended(recorded, 6)
        assert [json.loads(e.request_body)["messages"][0]["content"] for e in found] == list("012345")
        starts = [e.started_ns for e in found]
        assert starts == sorted(starts)
        assert all(0 <= e.ended_ns - e.started_ns < 5_000_000_000 for e in found)


@pytest.mark.slow
def test_hundreds_of_streams_at_once_lose_nothing(proxied):
    n = 300

    async def handler(request, writer):
        own = json.loads(request.body)["messages"][0]["content"]
        writer.write(STREAM[: STREAM.index(b"\r\n\r\n") + 4])
        for number in range(5):
            piece = delta(f"{own}.{number};")
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.05)
        writer.write(b"0\r\n\r\n")

    with upstream(handler) as (base, _):
        recorded = proxied(base)
        connections = {
            str(k): send(recorded.url, recorded.token, ASK.replace(b"hi", str(k).encode())) for k in range(n)
        }
        for own, connection in connections.items():
            assert delta(f"{own}.4;") in receive(connection, b"0\r\n\r\n")
        found = ended(recorded, n)
        told = {e.asked().messages[0][1]: e.answer().text for e in found}
        assert told == {own: "".join(f"{own}.{number};" for number in range(5)) for own in connections}


def test_a_record_that_grows_is_followed_and_every_exchange_is_read_once(proxied):
    with upstream(answering(plain(CHAT))) as (base, _):
        recorded = proxied(base)
        folder = recorded.folder / "sessions" / "run"
        tail = SessionTail(folder)
        assert list(tail.ended()) == []  # nothing has been asked yet
        receive(send(recorded.url, recorded.token, ASK), CHAT)
        ended(recorded)
        (first,) = tail.ended()
        assert list(tail.ended()) == []
        receive(send(recorded.url, recorded.token, ASK), CHAT)
        both = ended(recorded, 2)
        (second,) = tail.ended()
    assert [first, second] == both


def test_a_line_that_is_still_being_written_is_read_when_it_is_whole(proxied):
    with upstream(answering(plain(CHAT))) as (base, _):
        recorded = proxied(base)
        receive(send(recorded.url, recorded.token, ASK), CHAT)
        ended(recorded)
    source = recorded.folder / "sessions" / "run" / "record.jsonl"
    copy = recorded.folder / "copy"
    copy.mkdir()
    whole = source.read_bytes()
    (copy / "record.jsonl").write_bytes(whole[:-5])
    tail = SessionTail(copy)
    assert list(tail.ended()) == []
    with (copy / "record.jsonl").open("ab") as file:
        file.write(whole[-5:])
    assert len(list(tail.ended())) == 1
    (copy / "record.jsonl").write_bytes(b'{"event": "request"}\n')
    with pytest.raises(DatapackError, match="not in the form of a record"):
        list(SessionTail(copy).ended())


def test_the_same_proxy_answers_at_a_unix_socket(tmp_path):
    token, path = issue_token(tmp_path, "run"), tmp_path / "model.sock"
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    request = head.encode() + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(ASK) + ASK
    with (
        upstream(answering(plain(CHAT))) as (base, _),
        running_proxy(ProxySettings(upstream=base, directory=tmp_path, socket=path)),
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(str(path))
        client.sendall(request)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(CHAT)
