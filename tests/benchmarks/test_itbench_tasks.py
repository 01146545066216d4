"""The tables by which ITBench describes its tasks, of the tasks that ship."""

from __future__ import annotations

from benchmarks.papers.itbench_tasks import task_tables


def test_every_table_has_a_row_for_each_task():
    found = {table.number: table for table in task_tables()}
    assert {number: len(table.rows) for number, table in found.items()} == {22: 30, 23: 20, 26: 10, 27: 6, 28: 6, 29: 6}
    assert all(len(row) == len(table.columns) for table in found.values() for row in table.rows)
