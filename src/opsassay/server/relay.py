"""The program that runs in place of a self-hosted agent: it passes the prompt to the platform and tool calls to the tools.

``python relay.py PROMPT SOCKET``, started by a worker; it imports the standard library only. The worker provides entry id
and token in an open file in memory, named `NOTE`, since workers may share every folder and each be process 1.
"""

import json
import os
import socket
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

NOTE = "opsassay-relay"
WAIT_S = 20
TRIES = 60
SILENT_S = 300.0
"""Seconds without a message from a started agent after which its run ends."""


def main(arguments: list[str]) -> int:
    """Carry MCP messages between platform and tools until the agent ends; *arguments* are prompt file and socket."""
    prompt, tools = arguments
    entry = _entry_of(os.getppid())
    _ask_platform(entry, "POST", "open", {"prompt": Path(prompt).read_text()})
    server = socket.socket(socket.AF_UNIX)
    server.connect(tools)
    stream = server.makefile("rw", encoding="utf-8", newline="\n")
    heard = time.monotonic()
    while time.monotonic() - heard < SILENT_S:
        given = _ask_platform(entry, "GET", f"next?wait={WAIT_S}", None)
        if given.get("finished"):
            return 0 if given.get("status") == "Finished" else 1
        if "message" in given:
            stream.write(json.dumps(given["message"]) + "\n")
            stream.flush()
            answer = _read_answer(stream, given["message"].get("id"))
            _ask_platform(entry, "POST", "answer", {"id": given["id"], "message": answer})
            heard = time.monotonic()
    raise SystemExit(f"the agent said nothing for {SILENT_S:g} s")


def _entry_of(worker: int) -> dict[str, str]:
    """Return server, entry id and token that the worker process *worker* (pid) provides in an open file."""
    for file in Path(f"/proc/{worker}/fd").iterdir():
        with suppress(OSError):  # closed in the meantime
            if str(file.readlink()).startswith(f"/memfd:{NOTE} "):
                entry: dict[str, str] = json.loads(file.read_text())
                return entry
    raise SystemExit("the worker holds no entry ready")


def _read_answer(stream: Any, request_id: Any) -> Any:
    """Return the response to *request_id* from the tools' *stream*; None when *request_id* is None."""
    if request_id is None:
        return None
    while line := stream.readline():
        answer = json.loads(line)
        if answer.get("id") == request_id and "method" not in answer:
            return answer
    raise SystemExit("the tools ended")


def _ask_platform(entry: dict[str, str], method: str, path: str, body: dict[str, Any] | None) -> Any:
    """Send a request about *entry* to the platform and return its response, retried while the server restarts."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {entry['token']}", "Content-Type": "application/json"}
    request = urllib.request.Request(
        f"{entry['server']}/api/relay/{entry['entry']}/{path}", data, headers, method=method
    )
    for _ in range(TRIES):
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S + 30) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise SystemExit(f"{path}: {error.read().decode()[:300]}") from error
        except OSError:
            pass
        time.sleep(1)
    raise SystemExit("the platform does not answer")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
