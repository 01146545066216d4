"""A guard: a process that runs a command once its supervisor has ended, however that ended; `kill -9` included."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from opsassay.core.logs import Log
from opsassay.testbed.core.state import SystemState, note_undo, undo_outside

DOWN_S = 60.0
"""How long the command may take."""
_log = Log(__name__)


class UndoGuard:
    """Runs *undo_command* when this process ends or `close` is called; the command is recorded in *state*, too.

    It waits for the end of its input, which this process holds. A guard that is killed is replaced.
    """

    def __init__(self, state: SystemState, undo_command: Sequence[str]) -> None:
        self._state, self._undo_command = state, undo_command
        self._process: asyncio.subprocess.Process
        self._replacing: asyncio.Task[None]

    @property
    def pid(self) -> int:
        """The process id of the present guard."""
        return self._process.pid

    async def start(self) -> None:
        """Record the command, then start the guard."""
        note_undo(self._state, self._undo_command)
        self._process = await self._start_process()
        self._replacing = asyncio.create_task(self._replace_ended())

    async def _start_process(self) -> asyncio.subprocess.Process:
        """Start a process that runs the command when its input ends; return it."""
        return await asyncio.create_subprocess_exec(
            "sh", "-c", 'cat >/dev/null; exec "$@"', "guard", *self._undo_command,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
            cwd="/", start_new_session=True,
        )  # fmt: skip

    async def _replace_ended(self) -> None:
        """Start another guard whenever the present one ends, until this task is cancelled."""
        while True:
            status = await (ended := self._process).wait()
            _log.warning("the guard ended", status=status)
            self._process = await self._start_process()
            _end_input(ended)

    async def close(self) -> None:
        """Have the guard run the command and wait for it; run it here if that fails. Raises OperationError."""
        self._replacing.cancel()
        _end_input(self._process)
        try:
            undone = await asyncio.wait_for(self._process.wait(), DOWN_S) == 0
        except TimeoutError:
            undone = False
        if not undone:
            await asyncio.to_thread(undo_outside, self._state)


def _end_input(process: asyncio.subprocess.Process) -> None:
    """Close the input of *process*."""
    assert process.stdin is not None
    process.stdin.close()
