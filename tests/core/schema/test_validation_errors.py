"""What is wrong with a value, in the words of files."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

import opsassay.core.schema
from opsassay.core.schema.base import Noun, Written
from opsassay.core.schema.validation_errors import described, problem, reason
from opsassay.evals.runner.queue import JobsAtWork
from opsassay.scoring.verifiers.judgement import Judgement
from opsassay.telemetry.otlp.counts import ReceiverStats, SessionStats


def _models(base):
    """Return all models of core.schema that derive from *base*."""
    for module in pkgutil.iter_modules(opsassay.core.schema.__path__):
        importlib.import_module(f"opsassay.core.schema.{module.name}")
    found = [one for child in base.__subclasses__() for one in (child, *_models(child))]
    return [one for one in found if one.__module__.startswith("opsassay.core.schema.") and one.model_fields]


class Cat(Written):
    kind: Literal["cat"]


class Dog(Written):
    kind: Literal["dog"]


class File(Written):
    names: tuple[str, ...] = ()
    count: int = Field(default=1, ge=1, lt=9)
    share: float = 0.5
    on: bool = True
    pattern: str = Field(default="a", pattern="^a", min_length=1)
    one_of: Literal["a", "b"] = "a"
    inner: Cat | None = None
    several: Annotated[tuple[int, ...], Field(min_length=1)] = (1,)
    pet: Annotated[Cat | Dog, Field(discriminator="kind")] = Cat(kind="cat")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"names": "payments"}, "names: expected a list, found 'payments'"),
        ({"names": [None]}, "names.0: expected text, found nothing"),
        ({"names": ["a", 7]}, "names.1: expected text, found 7"),
        ({"count": "x"}, "count: expected a whole number, found 'x'"),
        ({"count": 1.5}, "count: expected a whole number, found 1.5"),
        ({"count": 0}, "count: expected at least 1"),
        ({"count": 9}, "count: expected a number less than 9"),
        ({"share": float("nan")}, "share: expected a finite number, found nan"),
        ({"share": 1e308}, "share is 1e+308, beyond 1e+20; write a smaller number"),
        ({"several": [1, 10**30]}, "several is 100000000000, beyond 1e+20; write a smaller number"),
        ({"share": []}, "share: expected a number, found a list"),
        ({"share": "x" * 99}, "share: expected a number, found a long text"),
        ({"on": {}}, "on: expected true or false, found a mapping"),
        ({"pattern": "b"}, "pattern: expected text that matches '^a'"),
        ({"pattern": ""}, "pattern: expected text of at least 1 character"),
        ({"one_of": "c"}, "one_of: expected 'a' or 'b'"),
        ({"inner": []}, "inner: expected a mapping, found a list"),
        ({"inner": {}}, "inner.kind: this key is required"),
        ({"several": []}, "several: expected at least 1 item, found 0"),
        ({"pet": {}}, "pet: the key 'kind' is required"),
        ({"pet": {"kind": "cow"}}, "pet: 'kind' is 'cow'; expected one of 'cat', 'dog'"),
        ({"else": 1}, "else: there is no such key"),
    ],
)
def test_no_word_of_python_or_pydantic_is_in_it(given, said):
    with pytest.raises(ValidationError) as raised:
        File.model_validate(given)
    assert problem(raised.value) == said


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda: {}["key"], "'key' is missing"),
        (lambda: None.get("x"), "a value is of another type"),
        (lambda: list(5), "a value is of another type"),
        (lambda: int("x"), "expected a whole number, found 'x'"),
        (lambda: float("x"), "expected a number, found 'x'"),
        (lambda: int(float("inf")), "a number is too large"),
    ],
)
def test_neither_is_in_what_reading_raised(act, said):
    with pytest.raises(Exception) as raised:  # noqa: PT011 - each raises another one
        act()
    assert reason(raised.value) == said


def test_values_are_called_as_who_wrote_them_calls_them():
    assert [described(one) for one in (None, True, [1], {}, 10**50)] == [
        "nothing", "true", "a list", "a mapping", "a long number"
    ]  # fmt: skip


TIMES = {
    f"{model.__name__}.{name}": (model, name)
    for model in (*_models(Noun), *_models(Written), Judgement, JobsAtWork, ReceiverStats, SessionStats)
    for name, field in model.model_fields.items()
    if name.endswith("_ns") and "int" in str(field.annotation)
}


@pytest.mark.parametrize(("model", "name"), TIMES.values(), ids=TIMES)
def test_a_time_of_a_file_fits_into_64_bits(model, name):
    """A time of 10^40 ns is refused where the file is read, since no date can be made of it."""
    with pytest.raises(ValidationError) as raised:
        model.model_validate({name: 10**40})
    assert [one["type"] for one in raised.value.errors() if one["loc"] == (name,)] == ["less_than"]
