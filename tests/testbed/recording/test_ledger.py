"""What the reader of the ledger makes of callers that gave up."""

from __future__ import annotations

import json
import time

import pytest

from live import state_folder
from opsassay.core.schema.incident import FaultPlan, Target
from opsassay.testbed.apps import load_system
from opsassay.testbed.recording.ledger import read_ledger
from opsassay.testbed.substrates.local.substrate import LocalSubstrate

CHAIN = """
system: chain
hosts: [host-a]
services:
  edge: {operations: {GET /: {steps: [{call: front GET /, timeout_s: 3}]}}}
  front: {operations: {GET /: {steps: [{call: middle GET /, timeout_s: 0.5}]}}}
  middle: {operations: {GET /: {steps: [{call: back GET /, timeout_s: 3}]}}}
  back: {operations: {GET /: {steps: [{wait_ms: 2}]}}}
load: {rate_rps: 20, timeout_s: 5, mix: [{request: edge GET /}]}
"""


def line(kind, service, callee=None, trace="t1", ns=5):
    where = {"service": service, "callee": callee, "trace_id": trace}
    return {"time_ns": 1, "process": f"{service}-0", "kind": kind, "ns": ns, **where}


def test_who_gave_up_on_one_that_a_fault_kept_busy_has_waited_for_it(tmp_path):
    lines = [
        line("wait", "search", "catalog"),
        line("gave_up", "frontend", "search"),  # search waited for the fault in this trace
        line("gave_up", "edge", "frontend"),  # and so did frontend, as is known now
        line("gave_up", "frontend", "ads"),  # nothing kept ads busy
        line("gave_up", "frontend", "search", trace="t2"),  # nor search in another trace
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    waits = {(row["service"], row["callee"], row["trace_id"]) for row in read_ledger(tmp_path, 0).to_dicts()}
    assert waits == {("search", "catalog", "t1"), ("frontend", "search", "t1"), ("edge", "frontend", "t1")}
    assert set(read_ledger(tmp_path, 0)["kind"]) == {"wait"}


def test_nobody_waits_without_a_fault(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps(line("gave_up", "frontend", "search")) + "\n")
    assert read_ledger(tmp_path, 0).is_empty()


@pytest.mark.live
def test_who_was_failed_by_one_that_gave_up_has_waited_for_it(tmp_path):
    (tmp_path / "chain.yaml").write_text(CHAIN)
    app, slow = load_system(str(tmp_path / "chain.yaml")), {"delay_ms": 1500}
    plan = FaultPlan(fault="JVMLatency", target=Target(service="back"), parameters=slow, duration_s=4)
    with state_folder(), LocalSubstrate().deployed(app, "chain", isolation="plain") as system:
        began = time.time_ns()
        assert list(system.inject(plan))[-1]["event"] == "done"
        waits = system.ledger(began).filter(kind="wait")
    failed = set(waits.filter("error").select("service", "callee").rows())
    assert {("front", "middle"), ("edge", "front")} <= failed  # front gave up, and answered edge at once
    assert ("middle", "back") in waits.select("service", "callee").rows()
