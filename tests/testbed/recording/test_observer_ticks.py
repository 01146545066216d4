"""What the observer writes of a system that answers strangely; what it observes is made, the observer is real."""

from __future__ import annotations

import asyncio
import threading

import pytest

from opsassay.core.errors import LostError
from opsassay.testbed.core.probes import ProbeAnswer
from opsassay.testbed.core.status import SystemStatus
from opsassay.testbed.recording.observer import Observer, read_timeline
from opsassay.testbed.substrates.local.probes import LocalProbes

WHOLE = {
    "stores": {}, "load": {},
    "entities": [["front-0", "front", True, "host-a", "v1", "pod/0"], ["back-0", "back", True, "host-a", "v1", "pod/0"]],
}  # fmt: skip
NOTHING = {"stores": {}, "load": {}, "entities": []}


class Receiver:
    def stats(self):
        return None


class Answering:
    """A system that gives one answer after the other, and the last for ever."""

    receiver = Receiver()

    def __init__(self, *answers):
        self.answers, self.read_last, self.settled = list(answers), 0, threading.Event()

    def status(self):
        sites = {"front": []}
        return SystemStatus(name="a", phase="ready", endpoints=sites, backends=sites, probe_paths={"front": "/"})

    def command(self, _op):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.read_last += len(self.answers) == 1
        if self.read_last == SETTLED:
            self.settled.set()
        if isinstance(answer, Exception):
            raise answer
        return answer


SETTLED = 8
"""How often the last answer is read before the observer is stopped."""


def observed(folder, *answers):
    async def watch():
        system = Answering(*answers)
        observer = Observer(LocalProbes(system), folder / "timeline.jsonl", 0.02, None)
        running = asyncio.create_task(observer.run())
        assert await asyncio.to_thread(system.settled.wait, 60)
        observer.stop()
        await running

    asyncio.run(watch())
    ticks = read_timeline(folder / "timeline.jsonl").ticks
    return ticks, [next((o.value for o in tick.observations if o.depth == "D1"), None) for tick in ticks]


def test_an_operator_who_scales_everything_away_does_not_take_the_recorder_with_it(tmp_path):
    ticks, ready = observed(tmp_path, WHOLE, WHOLE, NOTHING)
    read = [value for value in ready if value is not None]
    assert read == sorted(read, reverse=True)  # how many ticks saw it whole depends on the machine
    assert set(read) == {1.0, 0.0}
    assert next(tick.gone for tick in ticks if tick.gone) == ("back-0", "front-0")
    last = {o.depth: o for o in ticks[-1].observations}
    assert (last["D2"].value, last["D2"].failing) == (0.0, ("front",))
    assert last["D3"].value == 0.0  # nowhere to send the last probe


def test_a_supervisor_that_does_not_answer_for_a_while_is_no_healthy_one(tmp_path):
    ticks, ready = observed(tmp_path, WHOLE, LostError("gone"), WHOLE)
    silent = next(tick for tick in ticks if any("supervisor" in o.failing for o in tick.observations))
    assert {o.depth: o.value for o in silent.observations} == pytest.approx({"D1": None, "D2": None, "D4": 0.5})
    assert ready[-1] == 1.0


class Starting(LocalProbes):
    """Requests that are answered from the third one on."""

    asked = 0

    async def request(self, _service):
        self.asked += 1
        return ProbeAnswer(200 if self.asked > 2 else None, 0.001)


def test_what_has_not_answered_yet_is_probed_with_every_tick(tmp_path):
    async def watch():
        system = Answering(WHOLE)
        observer = Observer(Starting(system), tmp_path / "timeline.jsonl", 0.02, 3600.0)
        running = asyncio.create_task(observer.run())
        assert await asyncio.to_thread(system.settled.wait, 60)
        observer.stop()
        await running

    asyncio.run(watch())
    sent = [probe.reachable for tick in read_timeline(tmp_path / "timeline.jsonl").ticks for probe in tick.probes]
    assert sent == [False, False, True, True]  # two while it started, the first answer, the last one at the end


def test_after_a_last_look_nothing_is_written_until_it_goes_on(tmp_path, capsys):
    """Whoever asked for the look decides by it whether the record ends there."""
    counts = []

    def ticks():
        return len(read_timeline(tmp_path / "timeline.jsonl").ticks)

    async def watch():
        observer = Observer(LocalProbes(Answering(WHOLE)), tmp_path / "timeline.jsonl", 0.02, None)
        running = asyncio.create_task(observer.run())
        for _ in range(2):
            await asyncio.sleep(0.2)
            observer.asked.set()  # to look
            while capsys.readouterr().out != "looked\n":  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)
            looked = ticks()
            await asyncio.sleep(0.2)
            counts.append((looked, ticks()))
            if len(counts) == 1:
                observer.asked.set()  # to go on
        observer.stop()
        await running

    asyncio.run(watch())
    (first, held), (second, held_again) = counts
    assert (first, second) == (held, held_again)
    assert first < second == ticks(), "stopped after a look, it takes no other one"
    found = read_timeline(tmp_path / "timeline.jsonl").ticks
    assert [bool(tick.probes) for tick in found].count(True) == 2
    assert [tick.index for tick in found] == list(range(second)), "what it waited for was no tick that it missed"
