"""The events that an injection reports, as JSON: one event per line, distinguished by ``event``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict


class Origin(TypedDict):
    """The fault that an event is about, and its target service or host."""

    fault: str
    service: NotRequired[str]
    host: NotRequired[str]


class AppliedEvent(Origin):
    """A fault was applied."""

    event: Literal["applied"]


class EffectEvent(Origin):
    """The measure of a fault (its signature) was checked; the fields are those of `EffectCheck`."""

    event: Literal["effect"]
    signature: str
    before: float
    after: float
    threshold: float
    passed: bool
    seconds: float


class UndoneEvent(Origin):
    """A fault was undone."""

    event: Literal["undone"]


class DoneEvent(TypedDict):
    """The last event: *faults* (`Fault`), *roots* (`RootLabel`) and *effects* (`EffectCheck`), as their models dump."""

    event: Literal["done"]
    faults: list[dict[str, Any]]
    roots: list[dict[str, Any]]
    effects: list[dict[str, Any]]
    recovered: bool
    notes: list[str]


InjectionEvent = Annotated[AppliedEvent | EffectEvent | UndoneEvent | DoneEvent, Field(discriminator="event")]
_EVENTS: TypeAdapter[InjectionEvent] = TypeAdapter(InjectionEvent)


def as_event(fields: Mapping[str, Any]) -> InjectionEvent:
    """Return the injection event with *fields*, one JSON object; raises ValueError when it is not valid."""
    return _EVENTS.validate_python(fields)
