"""What a guard undoes: once its owner has ended or says so, also when the guard itself was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import psutil
import pytest

from opsassay.core.errors import OperationError
from opsassay.testbed.core import state as states
from opsassay.testbed.core.fleet import sleep_until
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.substrates.local.undo_guard import UndoGuard


async def killed(guard, times):
    """Kill *guard* so many times, each time once the next one is there."""
    for _ in range(times):
        os.kill(former := guard.pid, signal.SIGKILL)
        await sleep_until(lambda former=former: guard.pid != former, 10.0, 0.01)


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_closed_guard_has_undone_though_it_was_killed(tmp_path, times):
    async def live():
        guard = UndoGuard(SystemState("mine", tmp_path), ["touch", str(tmp_path / "undone")])
        await guard.start()
        await killed(guard, times)
        assert not (tmp_path / "undone").exists()
        await guard.close()

    asyncio.run(live())
    assert (tmp_path / "undone").exists()


def test_a_guard_that_is_killed_as_it_is_closed_leaves_nothing_undone(tmp_path):
    async def live():
        guard = UndoGuard(SystemState("mine", tmp_path), ["touch", str(tmp_path / "undone")])
        await guard.start()
        os.kill(guard.pid, signal.SIGKILL)
        await guard.close()

    asyncio.run(live())
    assert (tmp_path / "undone").exists()


def test_a_command_that_fails_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(states, "UNDO_AGAIN_AFTER_S", 0.0)

    async def live():
        guard = UndoGuard(SystemState("mine", tmp_path), ["ls", str(tmp_path / "missing")])
        await guard.start()
        with pytest.raises(OperationError, match="No such file"):
            await guard.close()

    asyncio.run(live())


OWNER = """
import asyncio, sys
from pathlib import Path
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.substrates.local.undo_guard import UndoGuard
from opsassay.testbed.core.fleet import sleep_until

async def live():
    guard = UndoGuard(SystemState("mine", Path(sys.argv[1])), ["touch", sys.argv[1] + "/undone"])
    await guard.start()
    while True:
        print(guard.pid, flush=True)
        await asyncio.sleep(0.01)

asyncio.run(live())
"""


def test_a_guard_that_replaced_a_killed_one_undoes_when_its_owner_is_killed(tmp_path):
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        os.kill(first := int(owner.stdout.readline()), signal.SIGKILL)
        while (second := int(owner.stdout.readline())) == first:
            pass
        guard = psutil.Process(second)
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    psutil.wait_procs([guard], timeout=30)
    assert (tmp_path / "undone").exists()
