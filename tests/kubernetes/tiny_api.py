"""A tiny API server: answers from a script over real HTTP, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import yaml

Script = Callable[[str, str, dict], tuple]
"""(method, path, query) -> (status, body), a watch has a list of events, bytes are plain text; None hangs up."""


class TinyApi:
    """Serves *script* at ``url``; ``asked`` holds (method, path, query, headers, body) of every request."""

    def __init__(self, script: Script) -> None:
        self.asked = []
        tiny = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def answer(self):
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                tiny.asked.append((self.command, parts.path, query, dict(self.headers), json.loads(body or b"null")))
                outcome = script(self.command, parts.path, query)
                if outcome is None:
                    return
                status, content = outcome
                self.send_response(status)
                plain = isinstance(content, bytes)
                self.send_header("Content-Type", "text/plain" if plain else "application/json")
                self.end_headers()
                for part in content if isinstance(content, list) else [content]:
                    self.wfile.write(part if plain else json.dumps(part).encode() + b"\n")
                    self.wfile.flush()

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - the names that the base class calls

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def write_kubeconfig(path: Path, url: str, token: str = "abc") -> Path:
    """Write a kubeconfig whose one context, ``here``, leads to *url*."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "tiny", "cluster": {"server": url}}],
        "users": [{"name": "tester", "user": {"token": token}}],
        "contexts": [{"name": "here", "context": {"cluster": "tiny", "user": "tester"}}],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def served(tiny: TinyApi) -> Iterator[TinyApi]:
    """Serve while the block runs."""
    thread = threading.Thread(target=tiny.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield tiny
    finally:
        tiny.server.shutdown()
        tiny.server.server_close()
        thread.join()


@contextmanager
def tiny_api(script: Script, folder: Path) -> Iterator[tuple[TinyApi, Path]]:
    """Serve *script*; yield the server and a kubeconfig that leads to it."""
    with served(TinyApi(script)) as tiny:
        yield tiny, write_kubeconfig(folder / "kubeconfig.yaml", tiny.url)
