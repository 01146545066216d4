"""A command of the user's own, started and ended: it has a root, a process table and control groups of its own.

It ends with this process, whatever ended that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from opsassay.core.schema.program import Command, Program
from opsassay.testbed.core.state import MARKER
from opsassay.testbed.kernel.private_root import program_owner, program_words
from opsassay.testbed.workload.runtime.forks import die_with_parent, give_way_in_a_full_group

TERM_GRACE_S = 4.0
LINE_LIMIT = 1 << 20


class ConfinedProgram:
    """Runs *command* as *config* says: its ``resolver``, ``variables`` and ``program_groups``; keeps what it writes."""

    def __init__(self, config: dict[str, Any], command: Command) -> None:
        self.config, self.command = config, command
        self.process: asyncio.subprocess.Process | None = None
        self.stopping = False
        self._reading: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start the program in its own root, process table and control groups, and read its output."""
        pipes = [os.pipe() for _ in ("stdout", "stderr")]
        for _, written in pipes:
            os.fchown(written, program_owner(), -1)  # programs open /dev/stdout anew
        resolver = f"nameserver {self.config['resolver']}\\noptions timeout:2 attempts:2\\n"
        clock = self.command.clock if isinstance(self.command, Program) else None
        words = program_words(resolver, self.command.directory, self.command.folders, clock=clock)
        self.process = await asyncio.create_subprocess_exec(
            *words,
            *self.command.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipes[0][1],
            stderr=pipes[1][1],
            env=self.environment(),
            preexec_fn=partial(_become_program, self.config["program_groups"]),
        )
        for read, written in pipes:
            os.close(written)
            self._reading.append(asyncio.create_task(self.read_output(read)))

    def environment(self) -> dict[str, str]:
        """Return the program's environment: its variables, and the mark by which its processes are found."""
        marker = {key: value for key, value in os.environ.items() if key.startswith(MARKER)}
        return {"HOME": "/tmp", "LANG": "C.UTF-8", **marker, **self.config["variables"]}  # noqa: S108

    async def read_output(self, descriptor: int) -> None:
        """Pass each line from the pipe *descriptor* to `note`, until its end."""
        reader = asyncio.StreamReader(limit=LINE_LIMIT)
        protocol = asyncio.StreamReaderProtocol(reader)
        pipe = os.fdopen(descriptor, "rb", 0)  # the transport closes it
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        while True:
            try:
                line = await reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                self.note(end.partial)
                return
            except asyncio.LimitOverrunError as full:
                line = await reader.readexactly(full.consumed)
            self.note(line)

    def note(self, line: bytes) -> str:
        """Print *line* of output to the log of this process; return it as text, '' for a blank line."""
        if text := line.decode(errors="replace").rstrip():
            print(text, flush=True)
        return text

    async def wait_end(self) -> int:
        """Wait until the program has ended and return its exit status."""
        assert self.process is not None
        return await self.process.wait()

    def processes(self) -> list[psutil.Process]:
        """Return all processes of the program."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children(recursive=True)

    def stop(self) -> None:
        """Send SIGTERM to the program, and SIGKILL after TERM_GRACE_S; returns at once."""
        self.stopping = True
        asyncio.get_running_loop().call_later(TERM_GRACE_S, self.signal, signal.SIGKILL)
        self.signal(signal.SIGTERM)

    def signal(self, number: int) -> None:
        """Send signal *number* to the program's first process."""
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            assert self.process is not None
            for child in psutil.Process(self.process.pid).children():
                child.send_signal(number)


def _become_program(groups: list[str]) -> None:
    """Prepare the forked child: it dies with its parent, and enters the groups of the cgroup.procs files *groups*."""
    die_with_parent()
    give_way_in_a_full_group()
    for entrance in groups:
        Path(entrance).write_text(str(os.getpid()))
