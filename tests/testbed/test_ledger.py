"""What the reader of the ledger makes of callers that gave up."""

from __future__ import annotations

import json

from assay.testbed.ledger import read_ledger


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
