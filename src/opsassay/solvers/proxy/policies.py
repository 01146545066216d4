"""The decision on a request: forward it (record), answer it from a record (replay), or edit it (intervene)."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from pydantic import Field, model_validator

from opsassay.core.schema.base import Written
from opsassay.solvers.proxy.apis import api_of
from opsassay.solvers.proxy.exchanges import Exchange, json_object, request_hash
from opsassay.solvers.proxy.matching import SIMILAR, RequestMatch, Volatile, compare_requests


@dataclass(frozen=True)
class Forward:
    """Send *body* upstream; *differences* says how the request differs from the recorded one that it stands for."""

    body: bytes
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Serve:
    """Answer with a recorded exchange; *differences* says how the request differs from the recorded one."""

    exchange: Exchange
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refuse:
    """Answer with an error *status* that client libraries do not retry, and *message*."""

    status: Literal[410, 422]
    message: str


Decision = Forward | Serve | Refuse


class Policy(Protocol):
    """Decides on the requests of one session, in the order in which they arrive."""

    def decide(self, method: str, path: str, body: bytes) -> Decision:
        """Return the decision on a request to the LLM API: forward *body*, serve a recorded answer, or refuse."""
        ...


class Record:
    """Forwards every request unchanged."""

    def decide(self, method: str, path: str, body: bytes) -> Decision:
        """Return the decision to forward *body* unchanged, whatever the request."""
        del method, path
        return Forward(body)


class Replay:
    """Answers from *recorded* exchanges only.

    By hash, equal requests get their recorded answers in the recorded order, each once. By position, the n-th request
    of the session gets the n-th recorded answer, whatever it asks.
    """

    def __init__(self, recorded: Sequence[Exchange], by: Literal["hash", "position"] = "hash") -> None:
        self._by, self._recorded, self._position = by, [e for e in recorded if e.status is not None], 0
        self._waiting: dict[str, list[Exchange]] = defaultdict(list)
        for exchange in reversed(self._recorded):
            self._waiting[request_hash(exchange.method, exchange.path, exchange.request_body)].append(exchange)

    def decide(self, method: str, path: str, body: bytes) -> Decision:
        """Return the decision to serve the recorded answer to this request; to refuse (422) one that has none left."""
        self._position += 1
        if self._by == "position":
            if self._position > len(self._recorded):
                return Refuse(422, f"The record has {len(self._recorded)} answers; this is request {self._position}.")
            return Serve(self._recorded[self._position - 1])
        waiting = self._waiting.get(request_hash(method, path, body))
        if not waiting:
            reason = "was asked more often than it was recorded" if waiting is not None else "is not in the record"
            return Refuse(
                422, f"Request {self._position} of this session, {method} {path}, {reason}; nothing is invented."
            )
        return Serve(waiting.pop())


class ReplayAlike:
    """Answers a request from *recorded* exchanges if one is equal or similar apart from *volatile* parts.

    An equal request comes first, else the most similar of the same or a near position, of similarity *similar* or more,
    with its differences named. Each answer is used once.
    """

    def __init__(self, recorded: Sequence[Exchange], volatile: Volatile, similar: float = SIMILAR) -> None:
        self._recorded = [exchange for exchange in recorded if exchange.status is not None]
        self._hashes = [request_hash(e.method, e.path, e.request_body) for e in self._recorded]
        self._waiting = dict.fromkeys(range(len(self._recorded)))
        self._volatile, self._similar, self._position = volatile, similar, -1

    def decide(self, method: str, path: str, body: bytes) -> Decision:
        """Return the decision to serve the recorded answer to this or a similar request; else to refuse it (422)."""
        self._position += 1
        asked = request_hash(method, path, body)
        equal = next((n for n in self._waiting if self._hashes[n] == asked), None)
        if equal is not None:
            del self._waiting[equal]
            return Serve(self._recorded[equal])
        number, match = self._find_nearest(method, path, body)
        if number is None or match is None or match.similarity < self._similar:
            return Refuse(422, self._explain_refusal(method, path, number, match))
        del self._waiting[number]
        return Serve(self._recorded[number], _number_differences(number, match.differences))

    def differences(self, position: int, body: bytes) -> tuple[str, ...]:
        """Return how *body* differs from recorded request number *position* (from 0), a line each; () without it."""
        if position >= len(self._recorded):
            return ()
        return _number_differences(
            position, compare_requests(self._recorded[position].request_body, body, self._volatile).differences
        )

    def _find_nearest(self, method: str, path: str, body: bytes) -> tuple[int | None, RequestMatch | None]:
        """Return (number, comparison) of the most similar unused request near the next one; (None, None) without."""
        near = [n for n in self._waiting if abs(n - self._position) <= _NEAR and self._has_same_place(n, method, path)]
        matches = {n: compare_requests(self._recorded[n].request_body, body, self._volatile) for n in near}
        best = max(near, key=lambda n: (matches[n].similarity, -abs(n - self._position)), default=None)
        return best, None if best is None else matches[best]

    def _has_same_place(self, number: int, method: str, path: str) -> bool:
        """Whether recorded request *number* (from 0) has this method and path."""
        return (self._recorded[number].method, self._recorded[number].path) == (method, path)

    def _explain_refusal(self, method: str, path: str, number: int | None, match: RequestMatch | None) -> str:
        """Return the message of a refusal; *match* says how the nearest recorded request, *number* (from 0), differs."""
        asked = f"Request {self._position + 1} of this session, {method} {path}, is not in the record"
        if number is None or match is None:
            return f"{asked}, and nothing near it was left to answer; nothing is invented."
        worst = "; ".join(match.differences[:3])
        return (
            f"{asked}; nearest is request {number + 1}, {match.similarity:.0%} alike where it is least so: {worst}. "
            "Declare as volatile what changes by itself; nothing is invented."
        )


_NEAR = 8
"""Most positions between a request and the recorded one that answers it: agents may call at the same time."""


def _number_differences(number: int, differences: Sequence[str]) -> tuple[str, ...]:
    """Return each difference with "request N" before it, N counted from 1; *number* from 0."""
    return tuple(f"request {number + 1}, {difference}" for difference in differences)


@dataclass
class Continue:
    """Answers the first *steps* LLM calls from *recorded*, as `ReplayAlike` does; forwards all others unchanged."""

    recorded: Sequence[Exchange]
    steps: int
    volatile: Volatile = field(default_factory=Volatile)
    similar: float = SIMILAR
    _step: int = 0

    def __post_init__(self) -> None:
        calls = [exchange for exchange in self.recorded if exchange.api]
        self._before = ReplayAlike(calls, self.volatile, self.similar)

    def decide(self, method: str, path: str, body: bytes) -> Decision:
        """Decide the first `steps` LLM requests by the replay policy; forward all later and other requests."""
        if api_of(method, path) is None:
            return Forward(body)
        self._step += 1
        return self._before.decide(method, path, body) if self._step <= self.steps else Forward(body)


class StepIntervention(Written):
    """An edit of the input of one LLM call: texts replaced, or a message added at its end."""

    step: int = Field(ge=1, description="the LLM call to edit, counted from 1")
    replace: dict[str, str] = Field(default_factory=dict, description="text to replace in every message")
    add: str | None = Field(default=None, description="a message to add at the end of the input")
    role: Literal["user", "system"] = Field(default="user", description="who says the added message")
    then: Literal["live", "replay"] = Field(default="live", description="how the steps after it are answered")
    observe: int | None = Field(
        default=None, ge=0, description="steps to allow after the edited one; all when left out"
    )

    @model_validator(mode="after")
    def _require_edit(self) -> StepIntervention:
        """Raise ValueError when neither `replace` nor `add` is given."""
        if not self.replace and self.add is None:
            raise ValueError("an intervention needs `replace` or `add`: it would change nothing")
        return self


@dataclass
class Intervene:
    """Answers the LLM calls before the edited one from *recorded*, forwards the edited one, then does as `then` says.

    Requests that are no LLM calls are forwarded. A call before the edited one that is not in the record, *volatile* parts
    aside, is refused: the edit would apply to another step than intended.
    """

    recorded: Sequence[Exchange]
    intervention: StepIntervention
    volatile: Volatile = field(default_factory=Volatile)
    similar: float = SIMILAR
    _step: int = 0
    _before: ReplayAlike = field(init=False)

    def __post_init__(self) -> None:
        calls = [exchange for exchange in self.recorded if exchange.api]
        self._before = ReplayAlike(calls, self.volatile, self.similar)

    def decide(self, method: str, path: str, body: bytes) -> Decision:
        """Replay the steps before the intervention, edit its request, then replay, forward or end (410)."""
        api = api_of(method, path)
        if api is None:
            return Forward(body)
        self._step += 1
        intervention = self.intervention
        if self._step < intervention.step:
            return self._before.decide(method, path, body)
        if self._step == intervention.step:
            return self._edit_request(method, path, body)
        if intervention.observe is not None and self._step > intervention.step + intervention.observe:
            return Refuse(
                410, f"The {intervention.observe} steps after the intervention have been observed; the run ends here."
            )
        return self._before.decide(method, path, body) if intervention.then == "replay" else Forward(body)

    def _edit_request(self, method: str, path: str, body: bytes) -> Decision:
        """Return the decision to forward the edited body; to refuse (422) when nothing can be edited or changes."""
        api, asked = api_of(method, path), json_object(body)
        if api is None or asked is None:
            return Refuse(422, f"Step {self._step} holds no JSON request that could be edited.")
        edited = api.edit_text(asked, self._replace_texts)
        if self.intervention.add is not None:
            edited = api.add_message(edited, self.intervention.role, self.intervention.add)
        if edited == asked:
            return Refuse(422, f"The intervention changes nothing in step {self._step}: none of its texts is there.")
        differences = self._before.differences(self._step - 1, body)
        return Forward(json.dumps(edited, ensure_ascii=False).encode(), differences)

    def _replace_texts(self, text: str) -> str:
        """Return *text* with all text replacements of the intervention applied."""
        for old, new in self.intervention.replace.items():
            text = text.replace(old, new)
        return text
