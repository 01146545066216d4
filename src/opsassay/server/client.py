"""A client of the platform for self-hosted agents; it needs the standard library only.

::

    platform = PlatformClient("http://127.0.0.1:8400", token)
    for entry in platform.entries(agent):
        with entry.working():
            entry.call("submit", {...})
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

POLL_S = 2.0
TIMEOUT_S = 180.0
TRIES = 30


class PlatformError(RuntimeError):
    """The platform refused a request with the HTTP *status*, 0 if it cannot be reached."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class PlatformClient:
    """A client of the platform at *server* with *token*; an unreachable platform is tried *tries* times."""

    def __init__(self, server: str, token: str, tries: int = TRIES) -> None:
        self.server, self._token, self._tries = server.rstrip("/"), token, tries

    def ask(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Any:
        """Send a request with *body* (bytes, or data as JSON) and return the JSON response; raises PlatformError."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {token or self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        for left in reversed(range(self._tries)):
            try:
                with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                said = error.read().decode(errors="replace")
                if error.code != 503 or not left:
                    raise PlatformError(error.code, _error_in(said)) from error
            except OSError as error:
                if not left:
                    raise PlatformError(0, f"{self.server} cannot be reached: {error}") from error
            time.sleep(1.0)
        raise AssertionError("the last try raises")

    def register(self, name: str, domains: list[str], **settings: str) -> str:
        """Register the agent *name* for *domains*, self-hosted unless *settings* say otherwise; return its id."""
        body = {"name": name, "kind": "self_hosted", "domains": domains, **settings}
        return str(self.ask("POST", "/api/agents", body)["id"])

    def request(self, agent: str, task_set: str) -> str:
        """Request a benchmark of *agent* on *task_set* and return its id."""
        return str(self.ask("POST", "/api/benchmarks", {"agent": agent, "task_set": task_set})["id"])

    def benchmark(self, benchmark: str) -> dict[str, Any]:
        """Return the benchmark with id *benchmark*, its cells and results."""
        found: dict[str, Any] = self.ask("GET", f"/api/benchmarks/{benchmark}")
        return found

    def entries(self, agent: str) -> Iterator[PlatformEntry]:
        """Yield each entry (task to work on) of *agent* once it is ready, until all have ended."""
        while entries := self.ask("GET", f"/api/agents/{agent}/manifest")["entries"]:
            ready = [one for one in entries if one["agent_status"] == "Ready"]
            if ready:
                yield PlatformEntry(self, ready[0])
            else:
                time.sleep(POLL_S)


class PlatformEntry:
    """One task that is ready for its agent: its prompt, and its tools."""

    def __init__(self, platform: PlatformClient, entry: Mapping[str, Any]) -> None:
        self._platform, self._calls = platform, 0
        self.id, self.task, self._token = str(entry["id"]), str(entry["task"]), str(entry["token"])
        self.prompt, self._mcp = str(entry["access"]["prompt"]), str(entry["access"]["mcp"])

    @contextmanager
    def working(self) -> Iterator[None]:
        """Report STARTED, run the block, then report FINISH, or ERROR when it raises."""
        self._report_status("STARTED")
        try:
            about = {"name": "opsassay-client", "version": "1"}
            self._call_method("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about})
            self._post_message({"jsonrpc": "2.0", "method": "notifications/initialized"})
            yield
        except BaseException as error:
            self._report_status("ERROR", f"{type(error).__name__}: {error}"[:2000])
            raise
        self._report_status("FINISH")

    def tools(self) -> list[dict[str, Any]]:
        """Return the descriptions of the entry's tools (MCP ``tools/list``)."""
        found: list[dict[str, Any]] = self._call_method("tools/list", {})["tools"]
        return found

    def call(self, tool: str, arguments: Mapping[str, Any]) -> str:
        """Call the entry's MCP *tool* with *arguments* and return the text of its result."""
        found = self._call_method("tools/call", {"name": tool, "arguments": dict(arguments)})
        return "\n".join(part.get("text", "") for part in found.get("content", ()))

    def _call_method(self, method: str, params: Mapping[str, Any]) -> Any:
        """Call the MCP *method* of the entry's tool server and return its result; raises PlatformError."""
        self._calls += 1
        answer = self._post_message({"jsonrpc": "2.0", "id": self._calls, "method": method, "params": params})
        if "error" in answer:
            raise PlatformError(200, str(answer["error"].get("message")))
        return answer["result"]

    def _post_message(self, message: Mapping[str, Any]) -> Any:
        """Send the JSON-RPC *message* to the entry's MCP endpoint and return the response."""
        return self._platform.ask("POST", self._mcp, message, token=self._token)

    def _report_status(self, status: str, message: str = "") -> None:
        """Report *status* (STARTED, FINISH or ERROR) of the agent on this entry, with a *message* that explains it."""
        body = {"status": status, "message": message}
        self._platform.ask("PUT", f"/api/entries/{self.id}/status", body, token=self._token)


def _error_in(body: str) -> str:
    """Return the error message in a response's JSON *body*, else the body itself."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return body[:300]
