"""Record a command in a terminal as an asciicast, version 2, of so many seconds: ``make_cast.py OUT.cast -- COMMAND``."""

from __future__ import annotations

import argparse
import codecs
import fcntl
import json
import os
import pty
import re
import struct
import sys
import termios
import time
from pathlib import Path

COLUMNS, LINES = 110, 40
END_S = 3.0
"""How long the end is shown."""
_ERASING = re.compile(r"\r?\x1b\[2K(?:\x1b\[1A\x1b\[2K)*")
_ONE_COLOUR = re.compile(r"(\x1b\[38;5;\d+m)[^\x1b]+\x1b\[0m(?:\1[^\x1b]+\x1b\[0m)+")


def record(command: list[str]) -> list[tuple[float, str]]:
    """Run *command* in a terminal of its own; return what it wrote, with the seconds since its start."""
    child, terminal = pty.fork()
    if child == 0:
        os.execvpe(command[0], command, {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)})  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    began, events, decoder = time.monotonic(), list[tuple[float, str]](), codecs.getincrementaldecoder("utf-8")()
    while True:
        try:
            content = os.read(terminal, 65536)
        except OSError:  # the terminal of a program that has ended
            break
        if not content:
            break
        events.append((time.monotonic() - began, decoder.decode(content)))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code:
        sys.exit(f"{' '.join(command)} ended with {code}; nothing is written.")
    return events


def thinned(events: list[tuple[float, str]], apart_s: float) -> list[tuple[float, str]]:
    """Return *events* without drawings of progress that are shown for less than *apart_s* seconds.

    A drawing erases the lines of the one before, so one can be left out when it has as many lines as the next erases.
    """
    kept, last = list[tuple[float, str]](), -apart_s
    for (at, text), (_, following) in zip(events, [*events[1:], (0.0, "")], strict=True):
        erased, erases = _ERASING.match(text), _ERASING.match(following)
        again = erased and erases and erased[0] == erases[0] and text.count("\n") == erased[0].count("1A")
        if again and at - last < apart_s:
            continue
        kept.append((at, _ONE_COLOUR.sub(lambda run: run[1] + re.sub(r"\x1b\[[0-9;]*m", "", run[0]) + "\x1b[0m", text)))
        last = at if erased else last
    return kept


def cast(events: list[tuple[float, str]], said: str, seconds: float) -> str:
    """Return *events* as an asciicast of *seconds* seconds that begins with the typed command *said*."""
    head = {"version": 2, "width": COLUMNS, "height": LINES, "title": said}
    pace = (seconds - 1 - END_S) / events[-1][0]
    shown = thinned([(1 + at * pace, text) for at, text in events], 0.2)
    lines = [[0.2, "o", f"$ {said}\r\n"], *([round(at, 3), "o", text] for at, text in shown), [seconds, "o", ""]]
    return "\n".join(json.dumps(one, ensure_ascii=False) for one in (head, *lines)) + "\n"


def main() -> None:
    """Read the command line, run the command and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("command", nargs="+")
    parser.add_argument("--as", dest="said", default="", help="what is typed in the film; the command when left out")
    parser.add_argument("--seconds", type=float, default=20.0)
    chosen = parser.parse_args()
    events = record(chosen.command)
    chosen.out.write_text(cast(events, chosen.said or " ".join(chosen.command), chosen.seconds), encoding="utf-8")


if __name__ == "__main__":
    main()
