"""Everything that a recording session accepts, sent on to a receiver of somebody else's while it is recorded.

A request goes on byte for byte as it came. What the other receiver does not take now is sent again; what it refuses is
counted and left out. The recording does not wait for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from opsassay.errors import OperationError, OpsAssayError, UserError
from opsassay.logs import Log
from opsassay.telemetry.otlp.counts import SIGNALS
from opsassay.telemetry.otlp.pushing import post, require_url
from opsassay.telemetry.otlp.spool import Kind, frames_after, spool_path

TICK_S = 0.5
LAST_S = 10.0
"""How long is gone on for after the end of the session."""
_log = Log(__name__)


class Forwarder:
    """A thread that sends the requests in the spool in *folder* to the receiver at *url* while the block runs.

    *refresh* has what was recorded until now put into the folder, where a session is recorded elsewhere.
    """

    def __init__(self, folder: Path, url: str, refresh: Callable[[], None] = lambda: None) -> None:
        self._folder, self._url, self._refresh = folder, require_url(url), refresh
        self._offsets = dict.fromkeys(SIGNALS, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="otlp-forwarding", daemon=True)
        self.sent = self.refused = 0
        """Requests that the receiver has taken, and those that it refused."""
        self.problem: OpsAssayError | None = None
        """Why the last request was not taken; None when it was."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def notes(self) -> tuple[str, ...]:
        """Return in sentences what the receiver does not have."""
        found = [f"{self._url} refused {self.refused} requests: {self.problem}"] if self.refused else []
        if isinstance(self.problem, OperationError):
            found.append(f"not all of the telemetry was sent on: {self.problem}")
        return tuple(found)

    def _work(self) -> None:
        while not self._ended.is_set():
            self._send()
            self._ended.wait(TICK_S)
        deadline = time.monotonic() + LAST_S
        while not self._send() and time.monotonic() < deadline:
            time.sleep(TICK_S)

    def _send(self) -> bool:
        """Send what is new; return whether there is nothing left."""
        try:
            if not self._ended.is_set():
                self._refresh()
            for signal in SIGNALS:
                self._send_signal(signal)
        except OpsAssayError as error:
            if self.problem is None:
                _log.warning("telemetry is not sent on for now", reason=str(error))
            self.problem = error
            return False
        return True

    def _send_signal(self, signal: str) -> None:
        path = spool_path(self._folder, signal)
        if not path.exists():
            return
        for end, frame in frames_after(path, self._offsets[signal]):
            if frame.kind != Kind.OPENED:
                try:
                    post(self._url, signal, frame.payload, gzipped=frame.kind == Kind.GZIP)
                    self.sent, self.problem = self.sent + 1, None if not self.refused else self.problem
                except UserError as error:
                    self.refused, self.problem = self.refused + 1, error
            self._offsets[signal] = end
