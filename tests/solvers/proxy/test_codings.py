"""Compressed bodies reach the client unchanged and are read; keys are in no file, wherever one can stand."""

from __future__ import annotations

import gzip
import zlib

import pytest

from opsassay.core.zstandard import zstd
from opsassay.solvers.proxy.trace import trace_of
from solvers.proxy.recording import ASK, CHAT, REAL_KEY, STREAM, body_of, ended
from solvers.proxy.upstreams import answering, chunked, delta, plain, receive, send, upstream


def raw_deflate(data):
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODINGS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
    "gzip, zstd": lambda data: zstd.compress(gzip.compress(data)),
    "identity": lambda data: data,
    "gzip in two members": lambda data: gzip.compress(data[:20]) + gzip.compress(data[20:]),
    "zstd in two frames": lambda data: zstd.compress(data[:20]) + zstd.compress(data[20:]),
    "raw deflate": raw_deflate,
}


def label(name):
    return {"gzip in two members": "GZip", "zstd in two frames": "zstd", "raw deflate": "deflate"}.get(name, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", CODINGS)
@pytest.mark.parametrize("streamed", [False, True])
def test_compressed_answers_reach_the_client_unchanged_and_are_read(proxied, name, streamed):
    text = body_of(STREAM) if streamed else CHAT
    packed = CODINGS[name](text)
    parts = [packed[i : i + 7] for i in range(0, len(packed), 7)]
    content = "text/event-stream" if streamed else "application/json"
    answer = chunked(parts, content).replace(b"X-Request-ID: r-1", f"Content-Encoding: {label(name)}".encode())
    with upstream(answering(answer)) as (base, _):
        recorded = proxied(base)
        assert body_of(receive(send(recorded.url, recorded.token, ASK), b"0\r\n\r\n")) == packed
        (exchange,) = ended(recorded)
        assert exchange.answer_body == packed
        assert exchange.answer().text == "hello"


@pytest.mark.parametrize("name", [*CODINGS, "br"])
def test_a_key_inside_a_compressed_answer_is_in_no_form_in_the_record(proxied, name):
    packed = CODINGS[name](f"bad key {REAL_KEY} {REAL_KEY}".encode()) if name != "br" else b"\x0b\x0b\x80hidden\x03"
    with upstream(answering(plain(packed, extra=f"Content-Encoding: {label(name)}\r\n"))) as (base, _):
        recorded = proxied(base)
        assert receive(send(recorded.url, recorded.token, ASK), packed).endswith(packed)
        (exchange,) = ended(recorded)
        assert packed[-12:] not in exchange.answer_body
        assert b"[key]" in exchange.answer_body or b"[withheld" in exchange.answer_body


def test_only_codings_that_the_record_can_be_read_in_are_asked_for(proxied):
    with upstream(answering(plain(b"{}"))) as (base, seen):
        recorded = proxied(base)
        for accepted in ("gzip, deflate, br;q=0.9, zstd", "br", "*", "gzip;q=0.5, *;q=0"):
            receive(
                send(recorded.url, recorded.token, b"", "/v1/models", "GET", headers=(f"Accept-Encoding: {accepted}",)),
                b"{}",
            )
        asked = [request.header("accept-encoding") for request in seen]
        assert asked == ["gzip, deflate, zstd", "identity", "gzip, deflate, zstd", "gzip;q=0.5, *;q=0"]


def test_a_compressed_request_goes_on_as_it_is_and_is_a_step(proxied):
    packed = gzip.compress(ASK)
    with upstream(answering(plain(CHAT))) as (base, seen):
        recorded = proxied(base)
        receive(send(recorded.url, recorded.token, packed, headers=("Content-Encoding: gzip",)), CHAT)
        assert (seen[0].body, seen[0].header("content-encoding")) == (packed, "gzip")
        (step,) = trace_of(ended(recorded), "run").steps
        assert step.input_context == "[user]\nhi"


TRANSPORTS = {
    "body": {"response": plain(f'{{"e":"{REAL_KEY}"}}'.encode())},
    "error body": {"response": plain(f'{{"error":{{"message":"{REAL_KEY}"}}}}'.encode(), "401 Unauthorized")},
    "stream": {"response": chunked([delta(REAL_KEY)])},
    "stream, split": {
        "response": chunked([f"data: {REAL_KEY}\n\n".encode()[i : i + 1] for i in range(len(REAL_KEY) + 8)])
    },
    "reason": {"response": plain(b"{}", f"400 Bad key {REAL_KEY}")},
    "header": {"response": plain(b"{}", extra=f"X-Echo: {REAL_KEY}\r\nLocation: /?k={REAL_KEY}\r\n")},
    "cookie": {"response": plain(b"{}", extra=f"Set-Cookie: k={REAL_KEY}\r\n")},
    "gzip": {"response": plain(gzip.compress(REAL_KEY.encode()), extra="Content-Encoding: gzip\r\n")},
    "escaped": {"response": plain(f'{{"e":"{REAL_KEY.replace("-", chr(92) + "u002d")}"}}'.encode())},
    "half": {"response": chunked([delta("x"), REAL_KEY.encode()])[:-9]},
    "bad framing": {"response": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + REAL_KEY.encode() + b"\r\n"},
    "bad status": {"response": f"HTTP/1.1 {REAL_KEY} OK\r\n\r\n".encode()},
    "query": {"response": plain(b"{}"), "path": f"/v1/chat/completions?key={REAL_KEY}&apikey=@&x=@&sig=%40@"},
    "path": {"response": plain(b"{}"), "path": "/v1/@/x"},
    "request header": {"response": plain(b"{}"), "headers": ("X-Debug: @", "Cookie: t=@", "X-Goog-Api-Key: @")},
    "request body": {"response": plain(b"{}"), "body": b'{"messages":[{"role":"user","content":"@"}]}'},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSPORTS)
def test_neither_key_nor_token_is_in_any_file_whatever_way_it_came(proxied, name, capfd):
    case = TRANSPORTS[name]
    with upstream(answering(case["response"])) as (base, _):
        recorded = proxied(base, idle_s=0.5)
        token = recorded.token
        body = case.get("body", ASK).replace(b"@", token.encode())
        path = case.get("path", "/v1/chat/completions").replace("@", token)
        headers = tuple(h.replace("@", token) for h in case.get("headers", ()))
        connection = send(recorded.url, token, body, path, headers=headers)
        connection.settimeout(3)
        try:
            receive(connection, len(case["response"]))
        except TimeoutError:
            connection.close()
        bodies = b"".join(e.request_body + e.answer_body for e in ended(recorded))
        stored = bodies + b"".join(p.read_bytes() for p in recorded.folder.rglob("*") if p.is_file())
        printed = "".join(capfd.readouterr()).encode()
        for secret in (REAL_KEY, token):
            for form in {secret, secret.replace("-", "\\u002d"), secret.replace("-", "%2D")}:
                assert form.encode() not in stored + printed
