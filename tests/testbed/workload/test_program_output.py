"""What programs write, as log records: levels by every spelling, bodies and trace ids by every field."""

from __future__ import annotations

import json

import pytest

from opsassay.testbed.workload.runtime.program_output import read_line


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("listening on 8080", "INFO"),
        ("WARNING: disk is nearly full", "WARN"),
        ("2026-01-01 12:00:00,123 ERROR orders: no stock", "ERROR"),
        ("[emerg] 1#1: host not found", "INFO"),  # lower-case words are no levels: they stand in any sentence
        ("CRITICAL out of descriptors", "FATAL"),
        ("LOG:  database system is ready", "INFO"),
        ("Traceback (most recent call last):", "ERROR"),
        ("ValueError: no such product", "ERROR"),
        ("asyncpg.exceptions.PostgresError: gone", "ERROR"),
        ("panic: runtime error: index out of range", "ERROR"),
        ("Uncaught TypeError: x is undefined", "ERROR"),
        ("a line that tells, at its end, far behind where levels are written, of what became of it: an ERROR", "INFO"),
    ],
)
def test_a_line_has_the_level_that_it_names(line, level):
    read = read_line(line)
    assert (read.level, read.body) == (level, line)


@pytest.mark.parametrize(
    ("value", "level", "number"),
    [
        ("info", "INFO", 9), ("warning", "WARN", 13), ("Error", "ERROR", 17), ("fatal", "FATAL", 21), ("debug", "DEBUG", 5),
        (10, "TRACE", 1), (20, "DEBUG", 5), (30, "INFO", 9), (40, "WARN", 13), (50, "ERROR", 17), (60, "FATAL", 21),
        ("verbose", "INFO", 9), (True, "INFO", 9), (None, "INFO", 9),
    ],
)  # fmt: skip
@pytest.mark.parametrize("field", ["level", "severity", "levelname", "lvl"])
def test_json_lines_have_the_level_of_their_field(field, value, level, number):
    read = read_line(json.dumps({field: value, "msg": "it happened"}))
    assert (read.level, read.number, read.body) == (level, number, "it happened")


@pytest.mark.parametrize(
    "names", [("trace_id", "span_id"), ("traceID", "spanID"), ("otelTraceID", "otelSpanID"), ("traceId", "spanId")]
)
def test_json_lines_belong_to_their_span(names):
    read = read_line(
        json.dumps({"message": "it happened", names[0]: "0af7651916cd43dd8448eb211c80319c", names[1]: "b7ad6b71"})
    )
    assert (read.trace_id, read.span_id) == (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B71)


@pytest.mark.parametrize("line", ["{", "{}", '{"trace_id": "none"}', '["a"]', '{"level": [1]}'])
def test_what_is_no_record_is_a_line(line):
    read = read_line(line)
    assert (read.level, read.body, read.trace_id) == ("INFO", line, 0)
