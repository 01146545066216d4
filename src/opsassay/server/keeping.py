"""Keeps processes of the server running: one that ends is restarted; after too many restarts the server ends."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from opsassay.core.errors import StartError

LOOK_S = 0.3
MOST_STARTS, WITHIN_S = 5, 60.0
"""A process that is restarted more often than this within `WITHIN_S` seconds is given up."""
Start = Callable[[], "subprocess.Popen[bytes]"]


@dataclass
class Restarter:
    """Restarts processes; *say* is called with a message when one ends, *give_up* when restarts do not help."""

    say: Callable[[str], None]
    give_up: Callable[[], None] = lambda: None
    has_given_up: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def keeping(self, name: str, start: Start, end: Callable[[subprocess.Popen[bytes]], None]) -> Iterator[None]:
        """Run a process, called *name*, in the block: *start* starts it, again when it ends; *end* stops it at last."""
        running, leaving = [start()], threading.Event()

        def keep() -> None:
            """Start the process again whenever it has ended, until the block ends; runs in a thread."""
            starts: list[float] = []
            while not leaving.wait(LOOK_S):
                if (code := running[-1].poll()) is None:
                    continue
                how = f"was ended by signal {-code}" if code < 0 else f"has ended ({code})"
                starts = [at for at in starts if at > time.monotonic() - WITHIN_S] + [time.monotonic()]
                try:
                    if len(starts) > MOST_STARTS:
                        raise StartError(f"it was started {MOST_STARTS} times in {WITHIN_S:.0f} s")
                    running.append(start())
                    self.say(f"opsassay: {name} {how}; it is started again")
                except (StartError, OSError) as error:
                    self.say(f"opsassay: {name} {how}, and is not started again: {error}; the server ends")
                    self.has_given_up.set()
                    self.give_up()
                    return

        thread = threading.Thread(target=keep, name=f"restarter of {name}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            leaving.set()
            thread.join()
            end(running[-1])
