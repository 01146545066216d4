"""The model of an external agent: a proxy that keeps the API key, enforces limits and records every call."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from opsassay.core.errors import OpsAssayError
from opsassay.core.logs import Log
from opsassay.core.schema.background import Background
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.trajectory import Trace
from opsassay.evals.runner.inference import HEADERS, refusal
from opsassay.solvers.agents.limits import Meter
from opsassay.solvers.agents.models.endpoint import base_url_set
from opsassay.solvers.agents.models.scripted import running_upstream
from opsassay.solvers.proxy.exchanges import Exchange, SessionTail, read_session
from opsassay.solvers.proxy.policies import Decision, Policy, Record, Refuse, Replay
from opsassay.solvers.proxy.running import running_proxy
from opsassay.solvers.proxy.server import ProxySettings
from opsassay.solvers.proxy.tokens import issue_token
from opsassay.solvers.proxy.trace import trace_of

_log = Log(__name__)
_SESSION = "run"
LOOK_S = 1.0


@dataclass(frozen=True)
class Gateway:
    """The proxy to the model: at *url* here, and behind the Unix socket *path*; *suffix* ends its base URL."""

    url: str
    suffix: str
    token: str
    path: Path
    session: Path

    def environment(self, base: str, model: str) -> dict[str, str]:
        """Return variables with which clients of OpenAI, Anthropic and Gemini use the URL *base* and *model*."""
        return {
            "OPENAI_BASE_URL": base + self.suffix,
            "OPENAI_API_KEY": self.token,
            "ANTHROPIC_BASE_URL": base,
            "ANTHROPIC_API_KEY": self.token,
            "GOOGLE_GEMINI_BASE_URL": base,
            "GEMINI_API_KEY": self.token,
            "OPENAI_MODEL": model,
        }

    def book(self, meter: Meter) -> None:
        """Replace the tokens counted in *meter* by those of all recorded calls, including unfinished ones."""
        with suppress(OpsAssayError, OSError):
            exchanges = read_session(self.session)
            meter.usage.clear()
            for exchange in exchanges:
                meter.count(_tokens_of_call(exchange))

    def trace(self) -> Trace | None:
        """Return the recorded calls as a trace, None when there is no readable step."""
        try:
            trace = trace_of(read_session(self.session), _SESSION)
        except OpsAssayError:
            return None
        return trace if trace.steps else None


@contextmanager
def gateway(model: str, folder: Path, meter: Meter) -> Iterator[Gateway]:
    """Run a proxy to *model* in the with block; its record and Unix socket are in *folder*, limits in *meter*."""
    kind, _, rest = model.partition(":")
    base, suffix = base_url_set().rstrip("/"), "/v1"
    record = folder / "model"
    with ExitStack() as stack:
        if kind == "scripted":
            base = stack.enter_context(running_upstream(model))
        elif kind == "replayed":
            base = "http://127.0.0.1:9"
        elif base.endswith("/v1"):
            base = base.removesuffix("/v1")
        else:
            suffix = ""
        session = record / "sessions" / _SESSION
        recorded = read_session(Path(rest)) if kind == "replayed" else None

        def policy() -> Policy:
            """Return a session's policy: record or replay, within the meter's limits, for the run's model alone."""
            pinned = model if kind not in {"scripted", "replayed"} else None
            return _Capped(Record() if recorded is None else Replay(recorded), meter, session, pinned)

        token = issue_token(record, _SESSION)
        path, key = folder / "model.sock", os.environ.get("OPENAI_API_KEY")
        settings = ProxySettings(
            upstream=base, directory=record, key=key, policy=policy, socket=path, passed_on=HEADERS
        )
        url = stack.enter_context(running_proxy(settings))
        yield Gateway(url, suffix, token, path, session)


class ConversationTrace(Background):
    """A thread that appends each step of the conversation of *gate* to the trace file *path* once the next call ended.

    A step is complete then: its tool results are in the next request. At the end of the run the whole trace is written
    anew.
    """

    def __init__(self, gate: Gateway, path: Path) -> None:
        super().__init__("conversation")
        self._tail, self._path = SessionTail(gate.session), path
        self._exchanges: list[Exchange] = []
        self._written = 0

    def work(self) -> None:
        """Append new steps to the trace file every `LOOK_S` seconds; errors are ignored, and tried again."""
        while self.pause(LOOK_S):
            with suppress(OpsAssayError, OSError):
                self._write_new_steps()

    def _write_new_steps(self) -> None:
        """Append the steps of finished calls to the trace file, except the last, which may still change."""
        if not (fresh := list(self._tail.ended())):
            return
        self._exchanges += fresh
        for step in trace_of(self._exchanges, _SESSION).steps[self._written : -1]:
            append_line(self._path, step)
            self._written += 1


class _Capped:
    """A proxy policy that refuses requests beyond the limits, other than inference, or for another model than *model*."""

    def __init__(self, inner: Policy, meter: Meter, session: Path, model: str | None) -> None:
        self._inner, self._meter, self._tail, self._model = inner, meter, SessionTail(session), model

    def decide(self, method: str, path: str, body: bytes) -> Decision:
        """Return whether the request is forwarded, refused or answered, by limits, allowed API and model."""
        if reason := refusal(method, path, body, self._model):
            _log.warning("request refused", method=method, path=path, reason=reason)
            return Refuse(422, f"Refused: {reason}.")
        if method == "POST":
            for exchange in self._tail.ended():
                self._meter.count(_tokens_of_call(exchange))
            if limit := self._meter.exhausted():
                _log.warning("limit reached", limit=limit)
                return Refuse(422, f"The limit of {limit} of this run is reached; answer with what you have.")
            self._meter.model_calls += 1
        return self._inner.decide(method, path, body)


def _tokens_of_call(exchange: Exchange) -> dict[str, int]:
    """Return input_tokens and output_tokens of a call; characters / 4 where not reported; {} for a failed call."""
    asked, answer = exchange.asked(), exchange.answer()
    if asked is None or answer is None or (answer.error and not answer.usage):
        return {}
    estimated = {
        "input_tokens": sum(len(text) for _, text in asked.messages) // 4 + 1,
        "output_tokens": len(answer.text) // 4 + 1,
    }
    return estimated | answer.usage
