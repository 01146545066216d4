"""Leaderboards are computed before anybody looks: at the start, and again after something has happened."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace

from opsassay.server.site import prepare_boards


class Boards:
    """Notes which leaderboards are computed, in the place of a cache with a database."""

    def __init__(self):
        self.prepared = []

    def prepare(self, task_set):
        self.prepared.append(task_set)


def test_leaderboards_are_computed_at_the_start_and_after_an_event_and_not_in_between(tmp_path):
    (tmp_path / "task_sets").mkdir()
    for name in ("bill", "outage"):
        (tmp_path / "task_sets" / f"{name}.yaml").write_text("domain: finops\npart: {tasks: [insight]}\n")
    boards, news = Boards(), SimpleNamespace(last=0)

    async def watch():
        work, counts = asyncio.create_task(prepare_boards(tmp_path, boards, news, 0.01)), []
        for last in (0, 0, 7, 7):
            news.last = last
            await asyncio.sleep(0.3)
            counts.append(len(boards.prepared))
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
        return counts

    assert asyncio.run(watch()) == [2, 2, 4, 4]
    assert sorted(set(boards.prepared)) == ["bill", "outage"]
