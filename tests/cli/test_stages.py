"""Progress on a terminal: a message stands on a line of its own, above the bars."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

SCRIPT = """
import time
from opsassay.cli.output import stages
with stages() as shown:
    shown.started("normal window", 5)
    time.sleep(0.6)
    shown.advanced("normal window", "the load was halved to [15] requests/s")
    time.sleep(0.3)
"""


def test_a_message_between_bars_has_a_line_of_its_own():
    terminal, inside = pty.openpty()
    running = subprocess.Popen([sys.executable, "-c", SCRIPT], stderr=inside, env={**os.environ, "TERM": "xterm"})
    os.close(inside)
    written = b""
    try:
        while part := os.read(terminal, 65536):
            written += part
    except OSError:
        pass  # a terminal ends so
    assert running.wait(60) == 0
    os.close(terminal)
    said = "opsassay: normal window: the load was halved to [15] requests/s"
    before, found, _ = written.decode().partition(said)
    assert found
    assert before.endswith(("\n", "\r", "\x1b[2K"))
