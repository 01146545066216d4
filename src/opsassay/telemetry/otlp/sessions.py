"""Recording sessions: an accepted request is written to the spool of every open session before it is acknowledged."""

from __future__ import annotations

import asyncio
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from opsassay.core.errors import OperationError, UserError
from opsassay.telemetry.otlp.counts import SIGNALS, ReceiverStats, SessionStats, tallies
from opsassay.telemetry.otlp.spool import Kind, SpoolFile, frame_header, spool_path

MAX_PENDING_BYTES = 64 * 1024 * 1024


class OverloadError(OperationError):
    """The disk refuses or cannot keep up: the client should send again later."""


class SpoolSession:
    """One recording into one folder; its files are touched by the writer thread only, its tallies by the loop only.

    Raises OperationError when nothing can be written there.
    """

    def __init__(self, name: str, directory: Path) -> None:
        self.name, self.directory, self.opened_ns = name, directory, time.time_ns()
        self.tallies = tallies()
        self._files: dict[str, SpoolFile] = {}
        try:
            directory.mkdir(parents=True, exist_ok=True)
            for signal in SIGNALS:
                self._files[signal] = SpoolFile(spool_path(directory, signal))
                self._files[signal].append(frame_header(self.opened_ns, Kind.OPENED, b""), b"")
        except OSError as error:
            for file in self._files.values():
                file.close()
            raise OperationError(f"Cannot record into {directory}: {error.strerror}; choose another folder.") from error

    def append(self, signal: str, header: bytes, payload: bytes) -> OSError | None:
        """Write one frame, *header* and *payload*, to the file of *signal*; return its OSError, None if it went well."""
        try:
            self._files[signal].append(header, payload)
        except OSError as error:
            return error
        return None

    def close_files(self) -> None:
        """Flush all files to the disk and close them; raises OperationError when the disk refuses."""
        failed = None
        for file in self._files.values():
            try:
                file.close()
            except OSError as error:
                failed = error
        if failed:
            raise OperationError(f"The disk under {self.directory} refused a flush: {failed.strerror}; record again.")

    def stats(self, closed_ns: int | None = None) -> SessionStats:
        """Return the counts so far; *closed_ns* is the end of the session in ns of UTC, None while it is open."""
        return SessionStats(
            name=self.name,
            directory=str(self.directory),
            opened_ns=self.opened_ns,
            closed_ns=closed_ns,
            signals={signal: tally.counts() for signal, tally in self.tallies.items()},
        )


class SessionRecorder:
    """The open sessions and the one thread that writes for them; all methods are called from the event loop.

    At most *max_pending_bytes* wait for the disk; what comes on top is refused and counted.
    """

    def __init__(self, max_pending_bytes: int = MAX_PENDING_BYTES) -> None:
        self.tallies = tallies()
        self._sessions: dict[str, SpoolSession] = {}
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._pending_bytes, self._max_pending_bytes = 0, max_pending_bytes
        self._started_ns = time.time_ns()

    async def record(self, signal: str, kind: Kind, payload: bytes, items: int) -> None:
        """Write *payload*, a request of *items* spans or such, to each open session; OverloadError if one cannot."""
        sessions = list(self._sessions.values())
        if not sessions:
            self.tallies[signal].pass_by(items)
            return
        if self._pending_bytes + len(payload) > self._max_pending_bytes:
            for session in sessions:
                session.tallies[signal].reject(items)
            self.tallies[signal].reject(items)
            raise OverloadError(f"{self._pending_bytes} bytes already wait for the disk; send again later.")
        self._pending_bytes += len(payload)
        try:
            loop = asyncio.get_running_loop()
            failures = await loop.run_in_executor(self._writer, _append_to_all, sessions, signal, kind, payload)
        finally:
            self._pending_bytes -= len(payload)
        self._count_request(sessions, failures, signal, items, len(payload))

    def _count_request(
        self, sessions: list[SpoolSession], failures: list[OSError | None], signal: str, items: int, size_bytes: int
    ) -> None:
        """Count a request as written or rejected in each session; *failures* are their write errors, None without one.

        Raises OverloadError when a session could not write.
        """
        for session, failure in zip(sessions, failures, strict=True):
            if failure:
                session.tallies[signal].reject(items)
            else:
                session.tallies[signal].keep(items, size_bytes)
        if not any(failures):
            self.tallies[signal].keep(items, size_bytes)
            return
        self.tallies[signal].reject(items)
        session, failure = next(pair for pair in zip(sessions, failures, strict=True) if pair[1])
        assert failure is not None
        raise OverloadError(f"Cannot write to {session.directory}: {failure.strerror}; free space and send again.")

    def open_session(self, name: str, directory: Path) -> None:
        """Start to record into *directory*; raises UserError when the name or the folder is in use.

        It runs in the loop on purpose: two opens of one name cannot overlap, and it is three small files.
        """
        if name in self._sessions:
            raise UserError(f"A session {name!r} is already open; close it or choose another name.")
        directory = directory.resolve()
        for session in self._sessions.values():
            if session.directory == directory:
                raise UserError(f"Session {session.name!r} already records into {directory}; choose another folder.")
        self._sessions[name] = SpoolSession(name, directory)

    async def close_session(self, name: str) -> SessionStats:
        """Stop session *name*, flush it and return its counts; raises UserError if unknown, OperationError of the disk."""
        session = self._sessions.pop(name, None)
        if session is None:
            raise UserError(f"There is no open session {name!r}; open: {', '.join(self._sessions) or 'none'}.")
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._writer, int)  # a barrier: writes accepted before this moment are done after it
        await asyncio.to_thread(session.close_files)  # apart from the writer, since a flush can take seconds
        return session.stats(time.time_ns())

    async def close(self) -> None:
        """Close every session and end the writer; raises OperationError when the disk refused one of them."""
        failures = []
        for name in list(self._sessions):
            try:
                await self.close_session(name)
            except OperationError as error:
                failures.append(str(error))
        self._writer.shutdown()
        if failures:
            raise OperationError(" ".join(failures))

    def stats(self) -> ReceiverStats:
        """Return the counts of the receiver and of its open sessions."""
        return ReceiverStats(
            pid=os.getpid(),
            started_ns=self._started_ns,
            cpu_s=time.process_time(),
            pending_bytes=self._pending_bytes,
            signals={signal: tally.counts() for signal, tally in self.tallies.items()},
            sessions={name: session.stats() for name, session in self._sessions.items()},
        )


def _append_to_all(sessions: list[SpoolSession], signal: str, kind: Kind, payload: bytes) -> list[OSError | None]:
    """Write *payload*, of *kind*, as a frame of *signal* to all *sessions*; return the error or None of each."""
    header = frame_header(time.time_ns(), kind, payload)
    return [session.append(signal, header, payload) for session in sessions]
