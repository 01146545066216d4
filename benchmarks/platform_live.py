"""Many sessions of the live page at once: does each hear every event? The server is held to one core. Prints what it took.

python benchmarks/platform_live.py --sessions 1000 --events 50
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from server.conftest import Running  # type: ignore[import-not-found]

OPEN_AT_ONCE, PATIENCE_S = 50, 120.0


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--sessions", type=int, default=1000)
    words.add_argument("--events", type=int, default=50)
    given = words.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        running = Running(Path(folder) / "state", "--workers", "0")
        try:
            os.sched_setaffinity(running.process.pid, {0})
            asyncio.run(measure(running, given.sessions, given.events))
        finally:
            running.end()


async def measure(running: Running, sessions: int, events: int) -> None:
    begun = running.client().ask("GET", "/api/health")["events"]
    server, heard = psutil.Process(running.process.pid), [Counter[int]() for _ in range(sessions)]
    opening, ready = asyncio.Semaphore(OPEN_AT_ONCE), asyncio.Semaphore(0)
    following = [asyncio.create_task(follow(running.url, begun, one, opening, ready)) for one in heard]
    for _ in range(sessions):
        await ready.acquire()
    began, used = time.monotonic(), sum(server.cpu_times()[:2])
    for number in range(events):
        form = {"name": f"user {number}", "role": "owner"}
        await asyncio.to_thread(running.client().ask, "POST", "/api/users", form)
    expected = set(range(begun + 1, begun + events + 1))
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_S):
            while any(one.keys() != expected for one in heard):  # noqa: ASYNC110 - a thousand readers, looked at now and then
                await asyncio.sleep(0.2)
    took, used = time.monotonic() - began, sum(server.cpu_times()[:2]) - used
    missed = sum(len(expected - one.keys()) for one in heard)
    doubled = sum(count - 1 for one in heard for count in one.values())
    for task in following:
        task.cancel()
    await asyncio.gather(*following, return_exceptions=True)
    print(
        f"{sessions} sessions, {events} events: {missed} dropped, {doubled} heard twice; {took:.1f} s, of which the server "
        f"used {used:.1f} s of one core; {server.memory_info().rss / 2**20:.0f} MiB; load {os.getloadavg()[0]:.1f}"
    )


async def follow(
    url: str, after: int, heard: Counter[int], opening: asyncio.Semaphore, ready: asyncio.Semaphore
) -> None:
    address = urlsplit(url)
    async with opening:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        request = f"GET /api/live HTTP/1.1\r\nHost: {address.netloc}\r\nLast-Event-ID: {after}\r\n\r\n"
        writer.write(request.encode())
        await reader.readuntil(b"\r\n\r\n")
    ready.release()
    try:
        while line := await reader.readline():
            if line.startswith(b"id: "):
                heard[int(line[4:])] += 1
    finally:
        writer.close()


if __name__ == "__main__":
    main()
