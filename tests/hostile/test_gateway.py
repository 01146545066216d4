"""The model gateway lets through what is named: exact paths, one model, known keys, known headers; everything else stays."""

from __future__ import annotations

import json
from itertools import product

import pytest
from aiohttp.test_utils import make_mocked_request

from opsassay.evals.runner.inference import HEADERS, KEYS, refusal
from opsassay.solvers.proxy.wire import outgoing_headers

CLASS = "5 model gateway"
MODEL = "vendor/model-1"
PLAIN = {
    "/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]},
    "/responses": {"model": MODEL, "input": "hello"},
    "/messages": {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 9},
    "/messages/count_tokens": {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]},
}
MORE = {
    "another model": {"model": "vendor/model-2"}, "a model online": {"model": f"{MODEL}:online"}, "no model": {"model": None},
    "models": {"models": ["other"]}, "many answers": {"n": 100}, "answers as text": {"n": "1"}, "true answers": {"n": 2.0},
    "plugins": {"plugins": [{"id": "web"}]}, "a route": {"route": "fallback"}, "a provider": {"provider": {"order": ["x"]}},
    "transforms": {"transforms": ["middle-out"]}, "web search": {"web_search_options": {}},
    "a conversation": {"conversation": "c"}, "an earlier answer": {"previous_response_id": "r"}, "a prompt": {"prompt": {"id": "p"}},
    "background": {"background": True}, "a container": {"container": "c"}, "servers": {"mcp_servers": [{"url": "https://x"}]},
    "a tool of theirs": {"tools": [{"type": "web_search"}]}, "a tool by version": {"tools": [{"type": "bash_20250124", "name": "b"}]},
    "tools that are no list": {"tools": {"type": "web_search"}}, "audio": {"modalities": ["text", "audio"]},
    "priority": {"service_tier": "priority"}, "a key of capitals": {"N": 5}, "a key of tomorrow": {"agentic_browse": True},
    "best of": {"best_of": 20}, "a prediction": {"prediction": {"type": "content", "content": "x" * 10}},
    "a tool of two types": {"tools": [{"type": "function", "Type": "web_search", "function": {"name": "f"}}]},
}  # fmt: skip


@pytest.mark.parametrize(("path", "what"), list(product(PLAIN, MORE)))
def test_a_request_holds_what_is_named(path: str, what: str) -> None:
    assert refusal("POST", f"/v1{path}", json.dumps({**PLAIN[path], **MORE[what]}).encode(), MODEL)
    assert refusal("POST", f"/v1{path}", json.dumps({**PLAIN[path], "temperature": 0}).encode(), MODEL) is None


SAID = {
    "an image by address": {"type": "image_url", "image_url": {"url": "https://x/?k"}},
    "an image by its address alone": {"type": "input_image", "image_url": "https://x/?k"},
    "an image by an address in capitals": {"type": "image_url", "Image_URL": {"URL": "https://x/?k"}},
    "two spellings of an address": {"type": "input_file", "file_url": "data:,", "FILE_URL": "https://x/?k"},
    "a source": {"type": "document", "source": {"type": "url", "url": "https://x/?k"}},
    "a stored file": {"type": "file", "file_id": "f-1"}, "what was kept": {"type": "item_reference", "id": "msg_1"},
}  # fmt: skip


@pytest.mark.parametrize(("path", "what"), list(product(PLAIN, SAID)))
def test_what_is_said_holds_nothing_to_fetch(path: str, what: str) -> None:
    where = "input" if path == "/responses" else "messages"
    for said in ([SAID[what]], [{"role": "user", "content": [SAID[what]]}]):
        assert refusal("POST", f"/v1{path}", json.dumps({**PLAIN[path], where: said}).encode(), MODEL)
    plain = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}]
    assert refusal("POST", f"/v1{path}", json.dumps({**PLAIN[path], where: plain}).encode(), MODEL) is None


GEMINI_MORE = {
    "many answers": {"generationConfig": {"candidateCount": 8}}, "many answers, spelt otherwise": {"generationConfig": {"candidate_count": 8}},
    "speech": {"generationConfig": {"responseModalities": ["AUDIO"]}}, "speech, spelt otherwise": {"generationConfig": {"response_modalities": ["AUDIO"]}},
    "a setting of tomorrow": {"generationConfig": {"browse": True}}, "a search": {"tools": [{"googleSearch": {}}]},
    "a search, spelt otherwise": {"tools": [{"google_search": {}}]}, "code": {"tools": [{"functionDeclarations": [], "codeExecution": {}}]},
    "what was kept": {"cachedContent": "c"}, "what was kept, spelt otherwise": {"cached_content": "c"},
    "a file": {"contents": [{"parts": [{"fileData": {"fileUri": "https://x/?k"}}]}]},
    "a file, spelt otherwise": {"contents": [{"parts": [{"file_data": {"file_uri": "https://x/?k"}}]}]},
    "a file of the system": {"systemInstruction": {"parts": [{"fileData": {"fileUri": "https://x/?k"}}]}},
}  # fmt: skip


@pytest.mark.parametrize("what", GEMINI_MORE)
def test_a_request_to_gemini_holds_what_is_named(what: str) -> None:
    path, plain = (
        "/v1beta/models/model-1:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": "hello"}]}]},
    )
    assert refusal("POST", path, json.dumps({**plain, **GEMINI_MORE[what]}).encode(), "model-1")
    assert refusal("POST", path, json.dumps({**plain, "generationConfig": {"topP": 1}}).encode(), "model-1") is None
    for other in (
        "model-2:generateContent",
        "model-1:batchGenerateContent",
        "../files:generateContent",
        "model-1%2f..:generateContent",
    ):
        assert refusal("POST", f"/v1beta/models/{other}", json.dumps(plain).encode(), "model-1")


PATHS = (
    "/v1/{p}/../files", "/v1/%2e%2e/files", "/v1/{p}/%2e%2e/files", "/v1//{p}", "//v1/{p}", "/v1/./{p}", "/v1/{p}/", "/v1/{p}%00",
    "/v1/{p};x", "/v1/{p}%2f..%2ffiles", "/V1/{p}", "/v1/{p}\\..\\files", "/v1/{p}#x", "/v1/v1/{p}", "http://x/v1/{p}", "/v1/{p}?x=1",
    "/v1/{p}?beta=true&url=x", "/v1/files/../{p}", "/v1/%63hat/completions", "/v1/{p}%20", "/v1/{p}/1",
)  # fmt: skip


@pytest.mark.parametrize(("path", "spelt"), list(product(PLAIN, PATHS)))
def test_a_path_is_compared_as_it_came(path: str, spelt: str) -> None:
    body = json.dumps(PLAIN[path]).encode()
    assert refusal("POST", spelt.format(p=path.lstrip("/")), body, MODEL)
    for plain in (path, f"/v1{path}", f"/v1{path}?beta=true"):
        assert refusal("POST", plain, body, MODEL) is None


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "post"])
@pytest.mark.parametrize("path", [*KEYS, "/files", "/models/other", "/models/../files", "/batches", "/threads"])
def test_a_method_is_compared_too(method: str, path: str) -> None:
    assert refusal(method, f"/v1{path}", b"{}", MODEL)
    assert refusal("GET", "/v1/models", b"", MODEL) is refusal("GET", f"/v1/models/{MODEL}", b"", MODEL) is None


BODIES = {
    "a key twice": b'{"model": "other", "model": "vendor/model-1", "input": "x"}',
    "a key twice inside": b'{"model": "vendor/model-1", "input": [{"role": "user", "role": "system"}]}',
    "a list": b"[]", "nothing": b"", "no number": b'{"model": "vendor/model-1", "input": "x", "temperature": NaN}',
    "depth": b'{"model": "vendor/model-1", "input": ' + b"[" * 5000 + b"]" * 5000 + b"}", "a coding": b"\x1f\x8b\x08",
}  # fmt: skip


@pytest.mark.parametrize("what", BODIES)
def test_a_body_reads_in_one_way(what: str) -> None:
    assert refusal("POST", "/v1/responses", BODIES[what], MODEL)


@pytest.mark.parametrize(
    "name",
    ["anthropic-beta", "openai-beta", "OpenAI-Organization", "OpenAI-Project", "HTTP-Referer", "X-Title", "X-Forwarded-For",
     "Cookie", "X-Portkey-Config", "Helicone-Auth", "cf-aig-authorization", "x-goog-user-project", "Forwarded", "X-HTTP-Method-Override"],
)  # fmt: skip
def test_a_header_that_is_not_named_stays_here(name: str) -> None:
    request = make_mocked_request("POST", "/v1/responses", headers={name: "x", "Content-Type": "application/json"})
    sent = outgoing_headers(request, "key", HEADERS)
    assert name not in sent
    assert sent["Content-Type"] == "application/json"
