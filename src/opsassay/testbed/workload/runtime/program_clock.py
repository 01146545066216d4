"""The wall clock of a program, set wrong by libfaketime, which its loader preloads and which reads a file of its root.

The library is there from the start to the end of the program, so that neither tells whether there is a fault. Clocks that
measure time (CLOCK_MONOTONIC), timers and times of files stay right.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path

import psutil

CONTROL = "etc/faketimerc"
REREAD_S = 1
ENVIRONMENT = {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "FAKETIME_CACHE_DURATION": f"{REREAD_S}", "NO_FAKE_STAT": "1"}
GO = b"\xff Go buildinf:"
"""What every program of Go has in it. Go asks the kernel for the time, and not a library."""


class ProgramClock:
    """The clock of one program as it was last read: *offset_ns* away from that of this process.

    A Date header is worth more than the ends of spans, which arrive some time after; both tell it to about a second.
    """

    def __init__(self) -> None:
        self.offset_ns = 0
        self._answers_tell = False

    def read_header(self, date: str | None) -> None:
        """Read the clock off the Date header of an answer that has just come; None: it has none."""
        with contextlib.suppress(TypeError, ValueError):
            stated_s = parsedate_to_datetime(date or "").timestamp() + 0.5  # a header has whole seconds
            self.offset_ns, self._answers_tell = int(stated_s * 1e9) - time.time_ns(), True

    def read_span(self, end_ns: int) -> None:
        """Read the clock off the end in UTC ns of the latest span that has just come."""
        if not self._answers_tell and end_ns:
            self.offset_ns = end_ns - time.time_ns()


def set_clock(processes: Sequence[psutil.Process], offset_ms: float) -> None:
    """Let the program of *processes* read a clock that is *offset_ms* wrong, from REREAD_S later on."""
    for process in processes[:1]:  # all have one root
        control = Path(f"/proc/{process.pid}/root/{CONTROL}")
        written = control.with_suffix(".new")
        written.write_text(f"{offset_ms / 1e3:+.3f}\n", encoding="utf-8")
        written.rename(control)


def why_out_of_reach(processes: Sequence[psutil.Process], library: str) -> str:
    """Return why *library* does not set the clock of the program of *processes*, '' when it does for one of them."""
    reached = False
    for process in processes:
        with contextlib.suppress(OSError, ValueError):  # it has just ended
            if library in Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8"):
                reached = True
                if not _is_go(Path(f"/proc/{process.pid}/exe")):
                    return ""
    return "it is a program of Go, which asks the kernel" if reached else "it is linked statically"


def _is_go(program: Path) -> bool:
    """Return whether the executable file *program* was made by Go."""
    with program.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(GO) >= 0
