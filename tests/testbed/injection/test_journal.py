"""The undo journal survives a kill in the middle of a line."""

from __future__ import annotations

from opsassay.testbed.injection.journal import Journal


def test_what_was_applied_and_not_undone_is_pending(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    assert journal.pending() == []
    journal.write("apply", "a", plan={"fault": "PodKill"})
    journal.write("apply", "b", plan={"fault": "CPUStress"})
    journal.write("undone", "a")
    assert [entry["plan"]["fault"] for entry in journal.pending()] == ["CPUStress"]


def test_a_torn_last_line_is_dropped(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    journal.write("apply", "a", plan={"fault": "PodKill"})
    with (tmp_path / "journal.jsonl").open("a") as file:
        file.write('{"event": "undo')
    assert [entry["injection"] for entry in journal.pending()] == ["a"]
