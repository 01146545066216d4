"""A code fault shows in what is logged, however the lines are wrapped and whatever varies in them."""

from __future__ import annotations

import json
import random

import polars as pl
import pytest

from annotation.cascade import fault, frames, incident
from annotation.systems import deep
from opsassay.annotation.verdict.annotate import annotate
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.datapack import Datapack


def _runtime(line: str) -> str:
    return json.dumps({"log": line + "\n", "stream": "stdout", "time": "2026-01-01T00:00:00Z"})


def _logger(line: str) -> str:
    return json.dumps({"severity": "info", "pid": 7, "name": "payment-server", "message": line, "v": 1})


WRAPPED = {
    "as it is": str,
    "by a runtime": _runtime,
    "by a logger": _logger,
    "by a logger whose message comes first": lambda line: json.dumps({"message": line, "severity": "info"}),
    "by a logger and a runtime": lambda line: _runtime(_logger(line)),
    "by a logger, a runtime and a shipper": lambda line: json.dumps({"msg": _runtime(_logger(line))}),
}


def _lines(tables, *, breaks: bool, wrap=str):
    """Return logs: payment says that it starts and that it is done, which *breaks* off in the abnormal window."""
    rnd = random.Random(5)
    for period in ("normal", "abnormal"):
        own = (pl.col("service_name") == "payment") & (pl.col("attr.span_kind") == "Server")
        rows = []
        for time, trace, span in tables[period, "traces"].filter(own).select("time", "trace_id", "span_id").rows():
            item = "".join(rnd.choices("ABCDEFGH", k=5)) + str(rnd.randrange(10)) + "Z"
            said = [f'Charge card {item} of "{rnd.choice("abc")}{rnd.randrange(99)}" starts', "Charged it"]
            head = (time, trace, span, "INFO", "payment")
            said = said[:1] if breaks and period == "abnormal" else said
            rows += [(*head, wrap(f"TraceID: {trace} SpanID: {span} {line}")) for line in said]
        yield (
            period,
            pl.DataFrame(rows, ["time", "trace_id", "span_id", "level", "service_name", "message"], orient="row"),
        )


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("way", WRAPPED)
@pytest.mark.parametrize("breaks", [True, False])
def test_a_broken_habit_shows_through_every_wrapping(tmp_path, way, breaks):
    tables = frames(deep())
    tables |= {(period, "logs"): logs for period, logs in _lines(tables, breaks=breaks, wrap=WRAPPED[way])}
    write_datapack(tmp_path / "pack", tables, incident(), {})
    found = annotate(Datapack.open(tmp_path / "pack"), [fault("JVMException", "payment")])
    assert found.faults[0].shown is breaks
    assert ("'Charge card" in found.reason) is breaks


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("lacking", ["normal", "abnormal", None])
@pytest.mark.parametrize("modality", ["logs", "metrics"])
def test_a_modality_of_one_window_alone_is_told(tmp_path, modality, lacking):
    tables = frames(deep())
    tables |= {(period, "logs"): logs for period, logs in _lines(tables, breaks=False)}
    tables.pop((lacking, modality), None)
    write_datapack(tmp_path / "pack", tables, incident(), {})
    notes = annotate(Datapack.open(tmp_path / "pack"), [fault("CPUStress", "payment")]).notes
    other = {"normal": "abnormal", "abnormal": "normal"}.get(lacking)
    expected = [f"There are {modality} of the {other} window alone: nothing can be compared in them."]
    assert [note for note in notes if "alone" in note] == (expected if lacking else [])
