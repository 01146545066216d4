"""Whatever an agent can cause is a failed attempt of that agent: kept, counted, and never made again instead."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsassay.core.errors import LeftByAgentError
from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.run import RunStatus, Solver
from opsassay.core.schema.task import Arm
from opsassay.core.untrusted import MAX_JSON_DEPTH, read_json, safe_text, storable
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.diagnosis.workers.answers import diagnosed, how_it_died, read_worker_answer
from opsassay.evals.runner.ranking import aborted_cells, counted_runs, retried_cells
from opsassay.evals.runner.run import AttemptOutcome, RunSpec, attempt
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run
from opsassay.solvers.agents.contract import AnswerError, read_answer
from opsassay.solvers.sandbox import signal_name
from opsassay.solvers.sandbox.collect import copy_out
from telemetry.packs import make_pack

from .draws import drawn

CLASS = "3 failures of agents are theirs"


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> RunSpec:
    item = IncidentItem.from_datapack(make_pack(tmp_path_factory.mktemp("pack") / "p"))
    return RunSpec(item.task, Solver(name="agent"), "hash", Arm(), 0)


RIGHT = Diagnosis(root_causes=(RootCauseClaim(service="cart"),))
OUTCOMES = {
    "a lone surrogate in an answer": lambda: AttemptOutcome(RunStatus.DONE, None, Diagnosis(notes=("a\ud800b",))),
    "a lone surrogate in an error": lambda: AttemptOutcome(RunStatus.FAILED, "said \udcff"),
    "a name of a file that is no text": lambda: AttemptOutcome(RunStatus.DONE, None, RIGHT, notes=("not collected: \udcff",)),
    "what it spent is no mapping": lambda: AttemptOutcome(RunStatus.DONE, None, RIGHT, spent=["a"]),
    "what it spent is text": lambda: AttemptOutcome(RunStatus.DONE, None, RIGHT, spent={"tokens": "many"}),
    "limits that are numbers": lambda: AttemptOutcome(RunStatus.DONE, None, RIGHT, limits_hit=(1, 2)),
    "a score that is not finite": lambda: AttemptOutcome(
        RunStatus.DONE, None, Diagnosis.model_validate({"ranking": [{"service": "a", "score": float("nan")}]})
    ),
    "an error without an end": lambda: AttemptOutcome(RunStatus.FAILED, "x" * 10**7),
}  # fmt: skip
RAISED = (
    UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"), ValueError("no"), RecursionError("deep"),
    OverflowError("large"), KeyError("missing"), TypeError("no text"), IndexError("none"), AttributeError("none"),
)  # fmt: skip


@pytest.mark.parametrize("what", OUTCOMES)
def test_what_it_leaves_ends_its_attempt_and_not_the_runner(tmp_path: Path, cell: RunSpec, what: str) -> None:
    store = RunStore(tmp_path)
    folder = attempt(store, cell, lambda *_: OUTCOMES[what](), limits={})
    run = read_run(folder)
    assert run.status in {RunStatus.DONE, RunStatus.FAILED}
    read_diagnosis(folder)
    assert (
        attempt(store, cell, lambda *_: AttemptOutcome(RunStatus.DONE, None, RIGHT), limits={}) == folder
    )  # never again
    assert [one.status for one in counted_runs([run])] == [run.status]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_what_reading_it_raises_is_its_failure(tmp_path: Path, cell: RunSpec, error: Exception) -> None:
    from opsassay.evals.runner.run import reading_what_was_left

    def solve(*_):
        with reading_what_was_left():
            raise error

    run = read_run(attempt(RunStore(tmp_path / "a"), cell, solve, limits={}))
    assert (run.status, "cannot be read" in str(run.error)) == (RunStatus.FAILED, True)
    done = attempt(RunStore(tmp_path / "b"), cell, lambda *_: AttemptOutcome(RunStatus.DONE, None, RIGHT), limits={})
    assert read_run(done).status == RunStatus.DONE


def test_what_is_ours_is_aborted_shown_and_counted(tmp_path: Path, cell: RunSpec) -> None:
    store = RunStore(tmp_path)

    def broken(*_):
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk"):
        attempt(store, cell, broken, limits={})
    runs = [read_run(folder) for folder in store.runs()]
    assert aborted_cells(runs, lambda run: run.solver.name) == {"agent": 1}
    assert retried_cells(runs, lambda run: run.solver.name) == {}
    attempt(store, cell, lambda *_: AttemptOutcome(RunStatus.DONE, None, RIGHT), limits={})
    runs = [read_run(folder) for folder in store.runs()]
    assert aborted_cells(runs, lambda run: run.solver.name) == {}
    assert retried_cells(runs, lambda run: run.solver.name) == {"agent": 1}


@pytest.mark.parametrize("number", [*range(1, 65)])
def test_every_signal_has_a_name(number: int) -> None:
    known = {s.value for s in signal.Signals}
    assert signal_name(number) == (signal.Signals(number).name if number in known else f"signal {number}")
    assert signal_name(number) in how_it_died(-number)


@pytest.mark.parametrize("name", [b"\xff", b"\xed\xa0\x80", b"a\nb", b"\x1b[2J", b"-rf", "\u202e".encode(), b"a" * 255])
def test_names_of_files_are_kept_as_text(tmp_path: Path, cell: RunSpec, name: bytes) -> None:
    work, kept = tmp_path / "work", tmp_path / "kept"
    work.mkdir()
    kept.mkdir()
    os.symlink(b"/etc/passwd", os.path.join(os.fsencode(work), name))
    (work / "plain").write_text("x")
    descriptor = os.open(work, os.O_RDONLY)
    left = copy_out(descriptor, kept, 1000)
    os.close(descriptor)
    assert len(left) == 1
    folder = attempt(
        RunStore(tmp_path / "s"),
        cell,
        lambda *_: AttemptOutcome(RunStatus.DONE, None, RIGHT, notes=tuple(left)),
        limits={},
    )
    assert read_run(folder).status == RunStatus.DONE
    assert (kept / "plain").read_text() == "x"


ANSWERS = {
    "a lone surrogate": '{"root_causes": [], "propagation": [], "notes": ["\\ud800"], "ranking": [{"service": "\\udfff", "score": 1}]}',
    "an infinite number": '{"root_causes": [], "propagation": [], "ranking": [{"service": "a", "score": 1e999}]}',
    "a number of many digits": '{"root_causes": [], "propagation": [], "ranking": [{"service": "a", "score": ' + "9" * 5000 + "}]}",
    "no number": '{"root_causes": [], "propagation": [], "ranking": [{"service": "a", "score": NaN}]}',
    "depth": '{"root_causes": ' + "[" * 100000 + "]" * 100000 + ', "propagation": []}',
    "depth of objects": '{"a":' * 50000 + "1" + "}" * 50000,
    "depth that is not closed": "[" * 10**6,
    "bytes that are no text": b'{"root_causes": [], "propagation": [], "notes": ["\xff\xfe"]}',
    "another encoding": '{"root_causes": [], "propagation": []}'.encode("utf-16"),
    "zeros": b"\0" * 1000,
}  # fmt: skip


@pytest.mark.parametrize("what", ANSWERS)
def test_an_answer_is_read_or_refused_in_one_sentence(tmp_path: Path, what: str) -> None:
    try:
        answer = read_answer(ANSWERS[what], ["cart"])
        Diagnosis.model_validate_json(answer.diagnosis.pretty_json().encode())
    except AnswerError as error:
        said = str(error)
    else:
        said = ""
    assert "\n" not in said
    content = ANSWERS[what].encode() if isinstance(ANSWERS[what], str) else ANSWERS[what]
    (tmp_path / "answer.json").write_bytes(b'{"diagnosis": ' + content + b"}")
    diagnosis, error = diagnosed(read_worker_answer(tmp_path / "answer.json"))
    assert (diagnosis is None) == (error is not None)
    assert read_answer('{"root_causes": [], "propagation": []}', []).diagnosis == Diagnosis()


_texts = st.text(st.characters(codec=None, categories=("L", "N", "C", "P", "Z", "S")), max_size=30)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_texts, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@drawn
@given(value=_json)
def test_any_answer_can_be_kept(value) -> None:
    for text in (
        json.dumps(value),
        json.dumps({"root_causes": [], "propagation": [], "notes": value, "ranking": value}),
    ):
        try:
            answer = read_answer(text, ["cart"]).diagnosis
        except AnswerError:
            continue
        assert Diagnosis.model_validate_json(answer.pretty_json().encode()) == answer


@drawn
@given(output=st.binary(max_size=200))
def test_any_output_can_be_kept(output: bytes) -> None:
    for text in (output, output.decode("utf-8", "surrogateescape"), output.decode("latin-1")):
        try:
            said = str(read_answer(text, ["cart"]).diagnosis)
        except AnswerError as error:
            said = str(error)
        str(storable(said)).encode()
    safe_text(output.decode("utf-8", "surrogateescape")).encode()


@drawn
@given(text=_texts)
def test_any_text_is_shown_and_stored(text: str) -> None:
    assert not any(ord(sign) < 32 and sign not in "\t\n" for sign in safe_text(text))
    assert safe_text(safe_text(text)) == safe_text(text)
    assert json.loads(json.dumps(storable(text), ensure_ascii=False).encode()) == storable(text)
    if text.isprintable() and text.isascii():
        assert safe_text(text) == storable(text) == text  # the control: what is plain stays as it is


def test_the_depth_that_is_read_is_read() -> None:
    read_json("[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH)
    read_json(json.dumps("[" * 1000))
    with pytest.raises(ValueError, match="too deeply"):
        read_json("[" * (MAX_JSON_DEPTH + 1) + "]" * (MAX_JSON_DEPTH + 1))
    with pytest.raises(LeftByAgentError):
        raise LeftByAgentError("it is an error of the tree")
