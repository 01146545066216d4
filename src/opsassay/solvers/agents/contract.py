"""The contract of an agent's answer: in words, as a JSON schema, and as the parser of answers.

All three are made from the same models, so that they agree.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from importlib.resources import files
from typing import Any, get_args

from pydantic import ValidationError

from opsassay.core.errors import UserError, nearest
from opsassay.core.schema.diagnosis import Diagnosis, Evidence, Expectation, PropagationClaim, RootCauseClaim
from opsassay.core.schema.faults import OBSERVATION, FaultKind
from opsassay.core.schema.validation_errors import problem
from opsassay.core.untrusted import read_json

MAX_BYTES = 4 * 2**20
MAX_ROOTS, MAX_EDGES, MAX_EVIDENCE, MAX_SQL = 50, 500, 10, 20_000
"""Most root causes, edges, evidence per claim and characters of an SQL; an answer that has more is invalid."""

_KEYS = ("root_causes", "propagation")


class AnswerError(UserError):
    """A text is no answer by the contract; the message says where and what to write instead."""


@dataclass(frozen=True)
class Answer:
    """A valid answer; *complaints* name minor problems, such as unknown services, which do not prevent grading."""

    diagnosis: Diagnosis
    complaints: tuple[str, ...] = ()


def contract() -> str:
    """Return the text for prompts that describes the JSON answer: its shape, fault kinds and limits."""
    kinds = "\n".join(f"- {kind.value}: {OBSERVATION[kind]}" for kind in FaultKind)
    return (
        files(__package__)
        .joinpath("contract.txt")
        .read_text(encoding="utf-8")
        .format(
            shape=json.dumps(_answer_example(), indent=1),
            kinds=kinds,
            modalities=_join_allowed_values(Evidence, "kind"),
            changes=_join_allowed_values(Expectation, "change"),
            levels=_join_allowed_values(RootCauseClaim, "level"),
            roots=MAX_ROOTS,
            edges=MAX_EDGES,
            evidence=MAX_EVIDENCE,
            sql=MAX_SQL,
        )
    )


def answer_schema() -> dict[str, Any]:
    """Return the JSON schema that an agent's answer must meet: ``root_causes`` and ``propagation``."""
    whole = Diagnosis.model_json_schema(by_alias=True)
    definitions = whole["$defs"]
    for model, required in (
        (RootCauseClaim, ["service", "fault_kind", "evidence"]),
        (PropagationClaim, ["from", "to", "evidence"]),
    ):
        part = definitions[model.__name__]
        part["required"] = required
        part["properties"]["evidence"] |= {"minItems": 1, "maxItems": MAX_EVIDENCE}
    definitions["RootCauseClaim"]["properties"]["fault_kind"] = {"$ref": "#/$defs/FaultKind"}
    requested = {key: whole["properties"][key] for key in _KEYS}
    requested["root_causes"]["maxItems"], requested["propagation"]["maxItems"] = MAX_ROOTS, MAX_EDGES
    used = {name: definitions[name] for name in definitions if name != "RankedService"}
    return {"type": "object", "properties": requested, "required": list(_KEYS), "$defs": used}


def read_answer(text: str | bytes, services: Collection[str]) -> Answer:
    """Return the answer in the agent's *text*; *services* are the names of the incident's services.

    Prose around the JSON object and cycles add notes, unknown services complaints. Raises AnswerError for any other error.
    """
    payload, prose = object_in(text)
    _require_shape(payload)
    try:
        diagnosis = Diagnosis.model_validate({key: payload[key] for key in ("ranking", *_KEYS) if key in payload})
    except (ValidationError, RecursionError) as error:
        raise AnswerError(_describe_first_problem(error)) from error
    complaints = tuple(unknown_services(diagnosis, services))
    notes = (
        *(("there was prose around the JSON; it was passed over",) if prose else ()),
        *complaints,
        *_note_cycles(diagnosis),
    )
    return Answer(diagnosis.model_copy(update={"notes": notes}), complaints)


def read_diagnosis(payload: object, services: Collection[str]) -> Answer:
    """Return the answer in *payload*, decoded JSON of a tool call; checked against *services* as `read_answer` does."""
    return read_answer(json.dumps(payload, default=str), services)


def object_in(text: str | bytes) -> tuple[dict[str, Any], bool]:
    """Return (the JSON object in *text*, whether prose surrounds it); raises AnswerError for none or several."""
    if len(text) > MAX_BYTES:
        raise AnswerError(f"the answer is larger than {MAX_BYTES} bytes; give one JSON object by the contract")
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    text = text.strip().removeprefix("\ufeff")
    if not text:
        raise AnswerError("the answer is empty; give one JSON object by the contract")
    try:
        payload = read_json(text)
    except ValueError as error:
        found = list(_find_answer_objects(text))
        if len(found) != 1:
            several = f"it holds {len(found)} answers" if found else str(error)
            raise AnswerError(
                f"the answer is no JSON: {several}; give exactly one JSON object and nothing else"
            ) from error
        return found[0], True
    if not isinstance(payload, dict):
        raise AnswerError(
            f"the answer is {_describe_kind(payload)} instead of a JSON object with {' and '.join(_KEYS)}"
        )
    return payload, False


def _find_answer_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield each outermost JSON object in *text* that has the key ``root_causes``."""
    decoder, at = json.JSONDecoder(), text.find("{")
    tries = 0
    while at >= 0 and tries < 1000:
        tries += 1
        try:
            value, end = decoder.raw_decode(text, at)
            if isinstance(value, dict) and "root_causes" in value:
                yield read_json(text[at:end])
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        at = text.find("{", end)


def _require_shape(payload: dict[str, Any]) -> None:
    """Raise AnswerError unless both lists are present and not too long, and each of their entries is complete."""
    for key, most in zip(_KEYS, (MAX_ROOTS, MAX_EDGES), strict=True):
        value = payload.get(key)
        if not isinstance(value, list):
            missing = "is missing" if key not in payload else f"is {_describe_kind(value)}"
            raise AnswerError(f"{key} {missing}; give a list, [] when there is none")
        if len(value) > most:
            raise AnswerError(f"{key} has {len(value)} entries; at most {most} are read, give those that matter")
        for index, entry in enumerate(value):
            _require_entry(f"{key}.{index}", key, entry)


def _require_entry(at: str, key: str, entry: object) -> None:
    """Raise AnswerError if *entry*, at path *at* ("root_causes.0") of the list *key*, lacks SQL or a known fault kind."""
    if not isinstance(entry, dict):
        raise AnswerError(f"{at} is {_describe_kind(entry)} instead of an object")
    evidence = entry.get("evidence")
    if not isinstance(evidence, list) or not evidence:
        raise AnswerError(f"{at}.evidence is missing; every claim needs at least one SQL that supports it")
    if len(evidence) > MAX_EVIDENCE:
        raise AnswerError(f"{at}.evidence has {len(evidence)} entries; at most {MAX_EVIDENCE} are run")
    for number, one in enumerate(evidence):
        sql = one.get("sql") if isinstance(one, dict) else None
        if not isinstance(sql, str) or not sql.strip():
            raise AnswerError(f"{at}.evidence.{number}.sql is missing; write the SELECT itself")
        if len(sql) > MAX_SQL:
            raise AnswerError(f"{at}.evidence.{number}.sql has {len(sql)} characters; at most {MAX_SQL} are run")
    if key != "root_causes":
        return
    kind, kinds = entry.get("fault_kind"), [kind.value for kind in FaultKind]
    if kind not in kinds:
        near = nearest(kind, kinds) if isinstance(kind, str) else None
        hint = f"did you mean {near!r}?" if near else f"known: {', '.join(kinds)}"
        raise AnswerError(f"{at}.fault_kind: {kind!r} is no fault kind; {hint}")


def _describe_first_problem(error: Exception) -> str:
    """Return the first problem of a validation *error* as text, and how many more there are."""
    if not isinstance(error, ValidationError):
        return "the answer is nested too deeply"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{problem(error)}{more}"


def unknown_services(diagnosis: Diagnosis, services: Collection[str]) -> Iterator[str]:
    """Yield a note for each service that *diagnosis* names and *services* lacks, with the nearest name."""
    known = {_fold_name(name) for name in services}
    named = [claim.service for claim in diagnosis.root_causes]
    named += [end for edge in diagnosis.propagation for end in (edge.source, edge.target)]
    for name in dict.fromkeys(named):
        if _fold_name(name) not in known:
            near = nearest(name, services)
            hint = f"; did you mean {near!r}?" if near else ""
            yield f"there is no service {name[:80]!r} in the data{hint}"


def _fold_name(name: str) -> str:
    """Return *name* in lower case, without hyphens, underscores and a leading "ts", to compare names."""
    return name.lower().replace("-", "").replace("_", "").removeprefix("ts")


def _note_cycles(diagnosis: Diagnosis) -> Iterator[str]:
    """Yield one note naming the services of a cycle in the claimed propagation; nothing without a cycle."""
    causes: dict[str, set[str]] = {}
    for edge in diagnosis.propagation:
        causes.setdefault(edge.target, set()).add(edge.source)
    try:
        TopologicalSorter(causes).prepare()
    except CycleError as error:
        yield f"the propagation goes round in a circle: {' -> '.join(error.args[1])}"


def _describe_kind(value: object) -> str:
    """Return the JSON type of *value* in words ("a list", "an object")."""
    names = {
        list: "a list",
        dict: "an object",
        str: "a text",
        int: "a number",
        float: "a number",
        bool: "a truth value",
    }
    return names.get(type(value), "null")


def _join_allowed_values(model: Any, field: str) -> str:
    """Return the allowed values of the Literal *field* of *model* as "a | b | c"."""
    return " | ".join(get_args(model.model_fields[field].annotation))


def _answer_example() -> dict[str, Any]:
    """Return an example of an answer, with every key of the models."""
    said = {
        "kind": _join_allowed_values(Evidence, "kind"),
        "sql": "SELECT ...",
        "claim": "what its rows show, at most 20 words",
    }
    evidence = [{name: said[name] for name in Evidence.model_fields if name in said}]
    root = {"service": "name as in the data", "fault_kind": "one of the list below", "evidence": evidence}
    edge = {"from": "cause", "to": "effect", "evidence": evidence}
    assert root.keys() <= RootCauseClaim.model_fields.keys()
    assert edge.keys() == {field.alias or name for name, field in PropagationClaim.model_fields.items()}
    return dict(zip(_KEYS, ([root], [edge]), strict=True))
