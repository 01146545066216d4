"""What a sealed agent may ask of a model's provider, and what would lead out of the seal through it."""

from __future__ import annotations

import json

import pytest

from opsassay.evals.runner.inference import refusal

FUNCTION = {
    "type": "function",
    "function": {"name": "query", "parameters": {"properties": {"url": {"type": "string"}}}},
}
SAID = [{"role": "user", "content": "see http://127.0.0.1/ in the logs"}]


def generated(**body):
    called = {"functionCall": {"name": "fetch", "args": {"url": "http://127.0.0.1/"}}}
    return json.dumps({"contents": [{"role": "user", "parts": [{"text": "see"}, called]}], **body}).encode()


def asked(**body):
    return json.dumps({"model": "m", **body}).encode()


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/chat/completions", asked(messages=SAID, tools=[FUNCTION], stream=True)),
        ("POST", "/chat/completions", asked(messages=SAID)),
        ("POST", "/v1/responses?beta=true", asked(input="x", tools=[{"type": "function", "name": "q"}], store=True)),
        ("POST", "/v1/messages", asked(messages=SAID, tools=[{"name": "query", "input_schema": {}}])),
        ("POST", "/v1/messages/count_tokens", asked(messages=SAID)),
        ("POST", "/v1/chat/completions", asked(messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}])),
        ("GET", "/v1/models", b""),
        ("POST", "/v1/messages?beta=true", asked(messages=SAID, output_config={"effort": "high"})),
        ("POST", "/v1/responses", asked(input="x", client_metadata={"session": "1"}, tools=[
            {"type": "namespace", "name": "mcp", "tools": [{"type": "function", "name": "q"}]}])),
        ("POST", "/v1beta/models/m:streamGenerateContent?alt=sse", generated(tools=[{"functionDeclarations": [FUNCTION]}])),
        ("POST", "/v1beta/models/m:generateContent", generated(generationConfig={"candidateCount": 1, "topK": 3})),
        ("POST", "/v1beta/models/m:countTokens", generated()),
    ],
)  # fmt: skip
def test_plain_inference_passes(method, path, body):
    assert refusal(method, path, body) is None


@pytest.mark.parametrize(
    ("method", "path", "body", "says"),
    [
        ("POST", "/v1/files", b"", "is no inference"),
        ("GET", "/v1/files/file-1/content", b"", "is no inference"),
        ("GET", "/v1/responses/resp_1", b"", "is no inference"),
        ("DELETE", "/v1/models/m", b"", "is no inference"),
        ("POST", "/v1/responses/../files", b"", "is no inference"),
        ("POST", "/v1/batches", asked(), "is no inference"),
        ("PUT", "/v1/chat/completions", asked(messages=SAID), "is no inference"),
        ("POST", "/v1/responses", asked(input="x", previous_response_id="resp_1"), "previous_response_id"),
        ("POST", "/v1/responses", asked(input="x", conversation="conv_1"), "conversation"),
        ("POST", "/v1/responses", asked(input="x", tools=[{"type": "web_search"}]), "'web_search' is carried out"),
        ("POST", "/v1/responses", asked(input="x", tools=[{"type": "code_interpreter"}]), "carried out by the provider"),
        ("POST", "/v1/messages", asked(messages=SAID, tools=[{"type": "bash_20250124", "name": "bash"}]), "carried out"),
        ("POST", "/v1/responses", asked(input="x", tools=[{"type": "namespace", "tools": [{"type": "web_search"}]}]),
         "'web_search' is carried out"),
        ("POST", "/v1/responses", asked(input="x", tools=[{"type": "namespace", "tools": [{"type": "namespace", "tools": [
            {"type": "mcp"}]}]}]), "'mcp' is carried out"),
        ("POST", "/v1/responses", asked(input="x", tools=[{"type": "namespace"}]), "carried out"),
        ("POST", "/v1/messages", asked(messages=SAID, mcp_servers=[{"url": "https://out"}]), "mcp_servers"),
        ("POST", "/v1/chat/completions", asked(messages=SAID, web_search_options={}), "web_search_options"),
        ("POST", "/v1/chat/completions", asked(messages=[{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "https://out.example/?leak"}}]}]), "would fetch 'https://out"),
        ("POST", "/v1/responses", asked(input=[{"content": [{"type": "input_file", "file_id": "file-1"}]}]), "file-1"),
        ("POST", "/v1beta/models/m:generateContent?key=k", generated(), "alt=sse"),
        ("POST", "/v1beta/models/../files:generateContent", generated(), "no other"),
        ("POST", "/v1beta/models/m:embedContent", generated(), "is no inference"),
        ("GET", "/v1beta/models/m:generateContent", b"", "is no inference"),
        ("POST", "/v1beta/cachedContents", generated(), "is no inference"),
        ("POST", "/v1beta/models/m:generateContent", generated(cachedContent="cachedContents/1"), "cachedContent"),
        ("POST", "/v1beta/models/m:generateContent", generated(tools=[{"googleSearch": {}}]), "'googleSearch' is carried"),
        ("POST", "/v1beta/models/m:generateContent", generated(tools=[{"functionDeclarations": [], "codeExecution": {}}]),
         "'codeExecution' is carried"),
        ("POST", "/v1beta/models/m:generateContent", generated(tools=["x"]), "a list of objects"),
        ("POST", "/v1beta/models/m:generateContent", generated(generationConfig={"candidateCount": 8}), "candidateCount"),
        ("POST", "/v1beta/models/m:generateContent", generated(contents=[{"parts": [{"functionResponse": {"parts": [
            {"fileData": {"fileUri": "https://out"}}]}}]}]), "would fetch 'https://out"),
        ("POST", "/v1/chat/completions", b"not json", "no JSON"),
        ("POST", "/v1/chat/completions", b"[1]", "no JSON object"),
    ],
)  # fmt: skip
def test_what_leads_out_is_refused_with_the_reason(method, path, body, says):
    assert says in (refusal(method, path, body) or "")
