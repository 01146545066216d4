"""Everything that a recording session accepts, sent on to a receiver of somebody else's while it is recorded.

A request goes on byte for byte as it came. What the other receiver does not take now is sent again; what it refuses is
counted and left out. The recording does not wait for it.

Requests of OTLP/HTTP sent to a receiver of somebody else's.
"""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from opsassay.core.errors import OperationError, OpsAssayError, UserError
from opsassay.core.logs import Log
from opsassay.core.schema.background import Background
from opsassay.telemetry.otlp.counts import SIGNALS
from opsassay.telemetry.otlp.spool import Kind, frames_in, spool_path

HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
"""``name=value,name=value``: headers of every request, of authorization for instance."""
PUSH_TIMEOUT_S = 20.0


def post(url: str, signal: str, body: bytes, *, gzipped: bool = False) -> None:
    """Send *body*, an export request of *signal*, to the OTLP/HTTP receiver at *url*; *gzipped*: it is compressed.

    Raises UserError for a refusal and for an invalid URL, OperationError when the receiver does not answer.
    """
    place = f"{require_url(url)}/v1/{signal}"
    headers = {"Content-Type": "application/x-protobuf", **_headers_from_environment()}
    if gzipped:
        headers["Content-Encoding"] = "gzip"
    try:
        request = urllib.request.Request(place, body, headers)  # noqa: S310 - whose user names it
        with urllib.request.urlopen(request, timeout=PUSH_TIMEOUT_S):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        if error.code in {429, 502, 503, 504}:
            raise OperationError(f"{place} is too busy to take telemetry ({error.code}); try again later.") from error
        raise UserError(
            f"{place} answered {error.code}: {error.reason}; check the URL and {HEADERS_VARIABLE}."
        ) from error
    except OSError as error:
        raise OperationError(
            f"No receiver takes telemetry at {place} ({error}); start the receiver or check the URL."
        ) from error


def require_url(url: str) -> str:
    """Return *url* without its last slash; raises UserError unless it is the URL of an OTLP/HTTP receiver."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise UserError(f"{url} is no URL of an OTLP/HTTP receiver; give one such as http://localhost:4318.")
    return url.rstrip("/")


def _headers_from_environment() -> dict[str, str]:
    """Return the HTTP headers in the environment variable for OTLP headers, "name=value,..." with %-escapes."""
    pairs = (pair.partition("=") for pair in os.environ.get(HEADERS_VARIABLE, "").split(",") if "=" in pair)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


TICK_S = 0.5
LAST_S = 10.0
"""How long is gone on for after the end of the session."""
_log = Log(__name__)


class SpoolSender:
    """Sends the requests in the spool in *folder* to the receiver at *url*, each once.

    A spool that was seen is held open: what is in it is sent also when its folder is gone. To be closed at the end.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self._folder, self._url = folder, require_url(url)
        self._files: dict[str, BinaryIO] = {}
        self._offsets = dict.fromkeys(SIGNALS, 0)
        self.sent = self.refused = 0
        """Requests that the receiver has taken, and those that it refused."""
        self.problem: OpsAssayError | None = None
        """Why the last request was not taken; None when it was."""

    def send(self) -> bool:
        """Send all unsent requests in the spool; return False, with the reason in `problem`, when that failed."""
        try:
            for signal in SIGNALS:
                self._send_signal(signal)
        except OpsAssayError as error:
            self.note(error)
            return False
        return True

    def note(self, error: OpsAssayError) -> None:
        """Store *error* as `problem`, the reason why sending fails, and log the first one."""
        if self.problem is None:
            _log.warning("telemetry is not sent on for now", reason=str(error))
        self.problem = error

    def notes(self) -> tuple[str, ...]:
        """Return a sentence on refused requests and one on unsent ones, as far as there are any."""
        found = [f"{self._url} refused {self.refused} requests: {self.problem}"] if self.refused else []
        if isinstance(self.problem, OperationError):
            found.append(f"not all of the telemetry was sent on: {self.problem}")
        return tuple(found)

    def close(self) -> None:
        """Close the open files of the spool."""
        for stream in self._files.values():
            stream.close()

    def _send_signal(self, signal: str) -> None:
        """Send the unsent requests of *signal*; refused ones are counted and skipped. Raises OperationError."""
        if (stream := self._open_spool(signal)) is None:
            return
        for end, frame in frames_in(stream, self._offsets[signal]):
            if frame.kind != Kind.OPENED:
                try:
                    post(self._url, signal, frame.payload, gzipped=frame.kind == Kind.GZIP)
                    self.sent, self.problem = self.sent + 1, None if not self.refused else self.problem
                except UserError as error:
                    self.refused, self.problem = self.refused + 1, error
            self._offsets[signal] = end

    def _open_spool(self, signal: str) -> BinaryIO | None:
        """Return the open spool file of *signal*, None while it does not exist."""
        if signal not in self._files:
            try:
                self._files[signal] = spool_path(self._folder, signal).open("rb")
            except FileNotFoundError:
                return None
        return self._files[signal]


class Forwarder(Background):
    """A thread that sends the requests in the spool in *folder* to the receiver at *url* while the block runs.

    *refresh* has what was recorded until now put into the folder, where a session is recorded elsewhere.
    Raises UserError for what is no URL.
    """

    def __init__(self, folder: Path, url: str, refresh: Callable[[], None] = lambda: None) -> None:
        super().__init__("otlp-forwarding")
        self._refresh, self.sender = refresh, SpoolSender(folder, url)

    def work(self) -> None:
        """Send new requests until the ``with`` block ends, then the rest for at most `LAST_S` seconds."""
        while not self.ended:
            try:
                self._refresh()
                self.sender.send()
            except OpsAssayError as error:
                self.sender.note(error)
            self.pause(TICK_S)
        deadline = time.monotonic() + LAST_S
        while not self.sender.send() and time.monotonic() < deadline:
            time.sleep(TICK_S)
        self.sender.close()
