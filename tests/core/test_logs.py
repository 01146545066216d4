"""What a process without a person writes: lines that programs read, words on a terminal, nothing where nobody asked."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys

import pytest

from opsassay.core import logs
from opsassay.testbed.workload.processes import log_tail


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def untouched():
    """Leave the loggers of this process as they are."""
    handlers, levels = logging.root.handlers[:], (logging.root.level, logging.getLogger(logs.ROOT).level)
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(levels[0])
    logging.getLogger(logs.ROOT).setLevel(levels[1])


@pytest.fixture
def written(monkeypatch):
    """Return a function that configures this process and returns what it has written by then."""

    def configured(stream=None, level=None):
        stream = stream or io.StringIO()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("OPSASSAY_SYSTEM", "/state/mine")
        monkeypatch.setenv("OPSASSAY_LOG", level) if level else monkeypatch.delenv("OPSASSAY_LOG", raising=False)
        logs.configure("front-0")
        return stream.getvalue

    return configured


def failed(log, event):
    try:
        raise ValueError("no such thing")
    except ValueError as error:
        log.exception(event, error, replica="front-0")  # noqa: TRY401 - ours takes it


def test_a_line_says_when_where_and_what_and_holds_a_traceback_in_a_field(written):
    text = written()
    log = logs.Log("opsassay.testbed.somewhere")
    log.info("replica died", replica="front-0", status=-9, level="field of a taken name")
    failed(log, "a task failed")
    first, second = map(json.loads, text().splitlines())
    time = first.pop("time")
    assert (time[4], time[10], time[-1], len(time)) == ("-", "T", "Z", 24)
    assert first == {
        "level": "info", "logger": "opsassay.testbed.somewhere", "process": "front-0", "system": "mine",
        "event": "replica died", "replica": "front-0", "status": -9,
    }  # fmt: skip
    assert second["level"] == "error"
    assert second["error"].startswith("Traceback (most recent call last)")
    assert second["error"].endswith("ValueError: no such thing")


def test_on_a_terminal_it_is_words(written):
    text = written(Terminal())
    logs.Log("opsassay.x").warning("request refused", status=413)
    assert text()[12:] == " warning front-0: request refused (status=413)\n"


@pytest.mark.parametrize(
    ("level", "events"),
    [
        (None, ["i", "w"]),
        ("debug", ["d", "i", "w"]),
        ("ERROR", []),
        ("loud", ["OPSASSAY_LOG names no level", "i", "w"]),
    ],
)
def test_a_variable_sets_the_least_level_and_one_that_is_none_is_said(written, level, events):
    text = written(level=level)
    log = logs.Log("opsassay.x")
    log.debug("d")
    log.info("i")
    log.warning("w")
    assert [json.loads(line)["event"] for line in text().splitlines()] == events


def test_of_other_libraries_warnings_are_written_and_nothing_less(written):
    text = written()
    logging.getLogger("asyncio").info("chatter")
    logging.getLogger("asyncio").warning("slow callback")
    assert [json.loads(line)["event"] for line in text().splitlines()] == ["slow callback"]


def test_a_library_says_nothing_in_a_process_that_nobody_configured():
    code = "from opsassay.core.logs import Log; Log('opsassay.x').error('loud')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stderr == b""


def test_the_tail_of_a_log_that_a_reason_holds_is_words_with_the_traceback(written, tmp_path):
    text = written()
    failed(logs.Log("opsassay.x"), "failed")
    path = tmp_path / "front-0.log"
    path.write_text("FATAL: no room\n" + text())
    lines = log_tail(path).splitlines()
    assert lines[:3] == ["FATAL: no room", "failed (replica=front-0)", "Traceback (most recent call last):"]
    assert lines[-1] == "ValueError: no such thing"
    assert log_tail(path, 1) == "ValueError: no such thing"


def test_a_log_of_its_own_is_capped_and_the_part_before_is_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(logs, "FILE_BYTES", 2000)
    logs.configure("observer", "shop", str(tmp_path / "timeline.log"))
    log = logs.Log("opsassay.testbed.somewhere")
    for number in range(100):
        log.info("tick missed", tick=number)
    logging.root.handlers[0].close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["timeline.log", "timeline.log.1"]
    assert all(0 < path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    lines = [line for path in sorted(tmp_path.iterdir(), reverse=True) for line in path.read_text().splitlines()]
    ticks = [json.loads(line)["tick"] for line in lines]
    assert ticks == list(range(ticks[0], 100))
