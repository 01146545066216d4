"""What the tests of the proxy send and get, and how they read the record back."""

from __future__ import annotations

import json
import time

from opsassay.solvers.proxy.exchanges import read_session
from solvers.proxy.upstreams import chunked, delta

ASK = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
CHAT = json.dumps({"id": "c", "choices": [{"message": {"role": "assistant", "content": "hello"}}]}).encode()
MESSAGE = json.dumps({"type": "message", "content": [{"type": "text", "text": "hello"}]}).encode()
REAL_KEY = "sk-real-0123456789"
STREAM = chunked([delta("he"), delta("l") + delta("lo"), b"data: [DONE]\n\n"])


class Recorded:
    """A running proxy with a token for the session "run"."""

    def __init__(self, url, folder, token):
        self.url, self.folder, self.token = url, folder, token

    def exchanges(self, session="run"):
        return read_session(self.folder / "sessions" / session)

    def text(self, session="run"):
        return (self.folder / "sessions" / session / "record.jsonl").read_text()


def ended(recorded, n=1):
    """Return the exchanges once *n* have ended: the record's last line is written as the client reads its last byte."""
    for _ in range(200):
        found = recorded.exchanges() if (recorded.folder / "sessions" / "run" / "record.jsonl").exists() else []
        if len(found) >= n and all(e.outcome != "cut" for e in found):
            return found
        time.sleep(0.01)
    raise AssertionError(recorded.text())


def body_of(chunked_answer):
    """Return the bytes in a chunked answer that may end anywhere."""
    rest, body = chunked_answer.split(b"\r\n\r\n", 1)[1], b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body
