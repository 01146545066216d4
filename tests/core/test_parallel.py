"""What becomes of work on several processes when the command is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from opsassay.core.parallel import map_processes

PROGRAM = """
import sys
from pathlib import Path
from core.test_parallel import begin_and_wait
from opsassay.core.parallel import map_processes
import signal
if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGINT):  # started in the background, a process ignores the second
        signal.signal(number, signal.default_int_handler)
    list(map_processes(begin_and_wait, [sys.argv[1] + "/" + name for name in "abcdef"], 2))
"""


def begin_and_wait(path):
    from pathlib import Path

    try:
        Path(path).write_text("begun")
        time.sleep(120)
    finally:
        time.sleep(0.5)
        Path(path).write_text("undone")


@pytest.mark.slow
@pytest.mark.parametrize("ended", [os.kill, os.killpg], ids=["asked to end", "interrupted in a terminal"])
def test_workers_undo_what_they_do_and_end_with_the_command(tmp_path, ended):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen(
        [sys.executable, str(program), str(tmp_path)],
        env={"PYTHONPATH": ":".join(sys.path)},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    files = [tmp_path / "a", tmp_path / "b"]
    deadline = time.monotonic() + 60
    while not all(file.exists() for file in files) and time.monotonic() < deadline:
        time.sleep(0.05)
    ended(process.pid, signal.SIGTERM if ended is os.kill else signal.SIGINT)
    process.wait(timeout=60)
    assert [file.read_text() for file in files] == ["undone", "undone"]
    assert not list(tmp_path.glob("[c-f]")), "what waited was begun after the end was called for"


def test_results_come_in_the_order_of_the_items():
    assert list(map_processes(abs, [-3, 1, -2], 2)) == [3, 1, 2]
