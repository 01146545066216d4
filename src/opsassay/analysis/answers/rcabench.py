"""Answers of rcabench and aegis: an AgentRCAOutput as a file, or rows and ``result.json`` with it as their response.

After OpenRCA 2.0, 15 of 25 fault kinds were renamed there; both names are read. Sources of the names: the enumeration
and the aliases in github.com/OperationsPAI/aegis, rcabench-platform, v3/sdk/evaluation/fault_kind.py; of the columns:
v3/sdk/llm_eval/db/eval_datapoint.py there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from opsassay.analysis.answers.external_answers import (
    AnswerForm,
    Cases,
    Document,
    ExternalAnswer,
    Reading,
    merge_notes,
    require_list,
    require_text,
)
from opsassay.core.errors import UserError, nearest
from opsassay.core.schema.diagnosis import Diagnosis, Evidence, PropagationClaim, RootCauseClaim
from opsassay.core.schema.faults import FaultKind
from opsassay.core.schema.run import RunStatus
from opsassay.core.schema.validation_errors import described
from opsassay.evals.runner.run import AttemptOutcome
from opsassay.solvers.agents.contract import MAX_EDGES, MAX_EVIDENCE, MAX_ROOTS, object_in, unknown_services
from opsassay.solvers.proxy.reading import first_of

RENAMED: Mapping[str, FaultKind] = MappingProxyType(
    {
        "network_bandwidth_throttled": FaultKind.NETWORK_BANDWIDTH_LIMIT,
        "http_response_body_corrupted": FaultKind.HTTP_PAYLOAD_MODIFIED,
        "http_wrong_status_code": FaultKind.HTTP_RESPONSE_STATUS_MODIFIED,
        "container_cpu_saturated": FaultKind.CPU_STRESS,
        "process_cpu_saturated": FaultKind.JVM_THREAD_CPU_STRESS,
        "container_memory_saturated": FaultKind.MEM_STRESS,
        "jvm_heap_exhausted": FaultKind.JVM_HEAP_STRESS,
        "jvm_gc_thrashing": FaultKind.JVM_GC_PRESSURE,
        "application_exception": FaultKind.JVM_METHOD_EXCEPTION,
        "database_call_failed": FaultKind.JVM_JDBC_EXCEPTION,
        "application_method_slow": FaultKind.JVM_METHOD_LATENCY,
        "database_call_slow": FaultKind.JVM_JDBC_LATENCY,
        "wrong_return_value": FaultKind.JVM_METHOD_MUTATED,
        "dns_lookup_failed": FaultKind.DNS_RESOLUTION_FAILED,
        "dns_returned_wrong_address": FaultKind.DNS_RESOLUTION_WRONG,
    }
)
"""aegis's current names of fault kinds -> fault kinds."""

UNKNOWN = "unknown"
"""aegis's name of an unknown kind."""

_RESPONSE = ("response", "agent_output", "agent_response", "final_output", "prediction", "answer", "output")
_CASE = ("source", "case", "case_name", "case_id", "datapack", "datapack_name", "incident", "incident_id", "name", "id")
_AGENT, _MODEL = ("agent_type", "agent", "agent_name", "algorithm", "solver"), ("model_name", "model")
_GRADES = frozenset({"eval_metrics", "exact_match", "path_reachability", "parse_error", "exp_id"})
_BESIDE = frozenset({"injection.json", "causal_graph.json", "env.json", "incident.json", "truth.json", "config.json"})
_SPENT = {"time_cost": "seconds", "input_tokens": "input_tokens", "output_tokens": "output_tokens"}
_NOT_KEPT = ("direction", "direction_src", "direction_dst", "method", "confidence")


def _is_answer(row: Any) -> bool:
    """Whether *row* is an answer of rcabench: root causes, text or object with them, or a graded response."""
    if not isinstance(row, dict) or "entities" in row:
        return False
    graded = bool(_GRADES & row.keys()) and bool(set(_CASE) & row.keys())
    return "root_causes" in row or _find_answer(row) is not None or (graded and bool(set(_RESPONSE) & row.keys()))


def _find_answer(row: Mapping[str, Any]) -> Any:
    """Return the first field of *row* that holds root causes, an object or text; None without one."""
    held = (row.get(key) for key in _RESPONSE)
    return next(
        (
            v
            for v in held
            if (isinstance(v, dict) and "root_causes" in v) or (isinstance(v, str) and "root_causes" in v)
        ),
        None,
    )


def _list_readings(document: Document, cases: Cases) -> Iterator[Reading]:
    """Yield for each row of the file a function that returns its answer."""
    for place, read in document.rows():
        yield partial(_read_answer, place, read, document, cases)


def _read_answer(place: str, read: Callable[[], Any], document: Document, cases: Cases) -> list[ExternalAnswer]:
    """Return the one answer of the row that *read* returns; an unreadable response is a failed run."""
    row = read()
    if not isinstance(row, dict):
        raise UserError(f"{place} is no object; expected root_causes and propagation, or a row with a response.")
    said = [row[key] for key in _CASE if isinstance(row.get(key), str)]
    case = cases.find_named(*said, document.path.stem, *document.folders)
    solver, notes = cases.find_solver(document, _read_model(row, _AGENT), _read_model(row, _MODEL))
    services = case.datapack.candidates()
    if "root_causes" in row:
        return [ExternalAnswer(place, case, solver, _finished_outcome(*convert_answer(row, services, place), notes))]
    given = next((value for value in (_find_answer(row), first_of(row, _RESPONSE)) if value is not None), None)
    spent = {ours: float(row[key]) for key, ours in _SPENT.items() if _is_amount(row.get(key))}
    if given is None and not set(_RESPONSE) & row.keys():
        raise UserError(f"{place} has neither root_causes nor a response ({', '.join(_RESPONSE)}).")
    try:
        text = given if isinstance(given, str) else "" if given is None else json.dumps(given)
        payload, prose = (given, False) if isinstance(given, dict) else object_in(text)
        diagnosis, found = convert_answer(payload, services, f"{place}: response")
    except UserError as error:
        reason = f"no answer by the contract: {error}"
        failed = AttemptOutcome(RunStatus.FAILED, reason, spent=spent, notes=(*notes, reason))
        return [ExternalAnswer(place, case, solver, failed)]
    found = (*(("there is prose around the answer, for which the public scorer gives 0",) if prose else ()), *found)
    return [ExternalAnswer(place, case, solver, _finished_outcome(diagnosis, found, notes, spent))]


def _read_model(row: Mapping[str, Any], keys: tuple[str, ...]) -> str | None:
    """Return the text of the first field of *row* among *keys* that is present, None if it is not text."""
    value = first_of(dict(row), keys)
    return value if isinstance(value, str) else None


def _is_amount(value: Any) -> bool:
    """Whether *value* is a number of at least 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _finished_outcome(
    diagnosis: Diagnosis,
    conversion_notes: tuple[str, ...],
    notes: tuple[str, ...],
    spent: Mapping[str, float] | None = None,
) -> AttemptOutcome:
    """Return the outcome of a finished run with *diagnosis*, all notes, and the usage *spent* (amount by unit)."""
    return AttemptOutcome(RunStatus.DONE, diagnosis=diagnosis, spent=spent or {}, notes=(*notes, *conversion_notes))


def convert_answer(payload: Mapping[str, Any], services: list[str], location: str) -> tuple[Diagnosis, tuple[str, ...]]:
    """Return (the diagnosis in *payload*, an AgentRCAOutput; notes on inexact conversions); raises UserError."""
    notes: list[str] = []
    if "propagation" not in payload:
        notes.append("the answer has no propagation: it is read as none")
    given = require_list(
        payload.get("root_causes"), f"{location}: root_causes", "a list of {service, fault_kind, evidence}"
    )
    pairs = require_list(payload.get("propagation", []), f"{location}: propagation", "a list of {from, to, evidence}")
    for name, values, most in (("root_causes", given, MAX_ROOTS), ("propagation", pairs, MAX_EDGES)):
        if len(values) > most:
            raise UserError(f"{location}: {name} has {len(values)} entries; at most {most} are read.")
    roots = tuple(_read_root_cause(one, f"{location}: root_causes.{n}", notes) for n, one in enumerate(given))
    edges = tuple(_read_propagation(one, f"{location}: propagation.{n}", notes) for n, one in enumerate(pairs))
    diagnosis = Diagnosis(root_causes=roots, propagation=edges)
    notes += unknown_services(diagnosis, services)
    return diagnosis.model_copy(update={"notes": merge_notes(notes)}), merge_notes(notes)


def _read_root_cause(value: Any, location: str, notes: list[str]) -> RootCauseClaim:
    """Return *value* as a claimed root cause; *location* is for errors, parts left out go to *notes*."""
    claim = _require_object(value, location, "an object with service, fault_kind and evidence")
    service = require_text(claim.get("service"), f"{location}.service", "the name of a service")
    notes += [f"{name} is not graded and is left out" for name in _NOT_KEPT if claim.get(name) not in (None, "")]
    return RootCauseClaim(
        service=service,
        fault_kind=_read_fault_kind(claim, location, notes),
        evidence=_read_evidence(claim, location, notes),
    )


def _read_propagation(value: Any, location: str, notes: list[str]) -> PropagationClaim:
    """Return *value* as a claimed edge, its ends under any known keys; parts left out go to *notes*."""
    edge = _require_object(value, location, "an object with from, to and evidence")
    ends = {
        "from": require_text(first_of(edge, ("from", "from_", "source")), f"{location}.from", "the name of a service"),
        "to": require_text(first_of(edge, ("to", "target")), f"{location}.to", "the name of a service"),
    }
    return PropagationClaim.model_validate({**ends, "evidence": _read_evidence(edge, location, notes)})


def _require_object(value: Any, location: str, expected: str) -> dict[str, Any]:
    """Return *value* if it is a JSON object; raises UserError naming *location* and what is *expected*."""
    if not isinstance(value, dict):
        raise UserError(f"{location} is {described(value)}; expected {expected}.")
    return value


def _read_fault_kind(claim: Mapping[str, Any], location: str, notes: list[str]) -> FaultKind | None:
    """Return the claimed fault kind, None for "unknown"; a renamed one adds a note; UserError for other names."""
    said = require_text(claim.get("fault_kind"), f"{location}.fault_kind", "the name of a fault kind")
    name = said.lower().replace("-", "_").replace(" ", "_").rpartition(".")[2]
    if name == UNKNOWN:
        notes.append("a fault kind is 'unknown': the claim names its service alone")
        return None
    known = {kind.value: kind for kind in FaultKind} | dict(RENAMED)
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean {near!r}?" if near else f"known: {', '.join(known)}."
        raise UserError(f"{location}.fault_kind: there is no fault kind {said[:60]!r}; {hint}")
    if known[name].value != said:
        notes.append(f"the fault kind {said!r} is {known[name].value!r} here")
    return known[name]


def _read_evidence(claim: Mapping[str, Any], location: str, notes: list[str]) -> tuple[Evidence, ...]:
    """Return the SQL evidence of *claim*, at most `MAX_EVIDENCE`; parts left out go to *notes*."""
    given = claim.get("evidence")
    if not given:
        notes.append("a claim has no evidence, for which the public scorer refuses an answer")
        return ()
    found = []
    for one in require_list(given, f"{location}.evidence", "a list of {kind, sql, claim}")[:MAX_EVIDENCE]:
        entry = one if isinstance(one, dict) else {}
        kind, sql = str(entry.get("kind", "trace")).lower().rstrip("s"), entry.get("sql")
        if kind not in ("metric", "trace", "log") or not isinstance(sql, str) or not sql.strip():
            notes.append("a piece of evidence has no sql, or a kind other than metric, trace and log: it is left out")
            continue
        found.append(
            Evidence.model_validate(
                {"kind": kind, "sql": sql, "claim": str(first_of(entry, ("claim", "assertion")) or "")}
            )
        )
    if len(given) > MAX_EVIDENCE:
        notes.append(f"a claim has more than {MAX_EVIDENCE} pieces of evidence: the first are kept")
    return tuple(found)


def _may_be_answer_file(path: Path) -> bool:
    """Whether *path* is not one of the files that rcabench writes besides answers."""
    return path.name not in _BESIDE


FORM = AnswerForm(
    (".json", ".jsonl"), lambda document: document.has_row(_is_answer), _list_readings, _may_be_answer_file
)
