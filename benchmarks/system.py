"""How fast a system starts, what recording costs it, and how long the command line and the demo take.

Rounds alternate between the two sides of a comparison, the median is what to quote. Run: ``python benchmarks/system.py
[--startup] [--demo]``; with ``--startup`` only the command line is timed, with ``--demo`` the whole demo too (two and a
half minutes).
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
import psutil

from opsassay.testbed.apps import load_system
from opsassay.testbed.core.state import marked_processes
from opsassay.testbed.substrates.local.substrate import LocalSubstrate, LocalSystem

STARTS, ROUNDS, ROUND_S, CLIENTS = 4, 5, 6.0, 16


def seconds(command: list[str]) -> float:
    """Return the wall time of one run of *command*."""
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def start_once(index: int) -> tuple[float, float, float]:
    """Return seconds to ready, seconds to gone, and the unique memory of all processes in MB."""
    substrate, name = LocalSubstrate(), f"bench-{index}"
    began = time.perf_counter()
    running = substrate.deploy(load_system("shop"), name, owned=True)
    ready = time.perf_counter() - began
    memory = sum(p.memory_full_info().uss for p in marked_processes(running.state)) / 1e6
    began = time.perf_counter()
    substrate.remove(name)
    return ready, time.perf_counter() - began, memory


async def throughput(url: str) -> float:
    """Return requests per second of CLIENTS closed loops over ROUND_S seconds."""
    done, until = 0, time.monotonic() + ROUND_S

    async def loop(session: aiohttp.ClientSession) -> None:
        nonlocal done
        while time.monotonic() < until:
            async with session.get(f"{url}/product") as response:
                await response.read()
                done += response.status == 200

    async with aiohttp.ClientSession() as session:
        await asyncio.gather(*(loop(session) for _ in range(CLIENTS)))
    return done / ROUND_S


def recording_cost(running: LocalSystem, folder: Path) -> tuple[list[float], list[float], int]:
    """Return throughput without and with an open recording, round by round, and what the receiver refused."""
    url = running.status().endpoints["frontend"][0]
    receiver = running.receiver
    without: list[float] = []
    recorded: list[float] = []
    for index in range(ROUNDS):
        for recording in (False, True) if index % 2 else (True, False):
            if recording:
                receiver.open_session(folder / str(index), str(index))
            rate = asyncio.run(throughput(url))
            if recording:
                receiver.close_session(str(index))
            (recorded if recording else without).append(rate)
    refused = sum(counts.rejected_items for counts in receiver.stats().signals.values())
    return without, recorded, refused


def startup() -> None:
    """Print the medians of `--help` and of `annotate` on a small public pack, each as a process of its own."""
    program = [sys.executable, "-m", "opsassay"]
    data = Path(os.environ.get("OPSASSAY_DATA", Path(__file__).parents[2] / "shared" / "data"))
    pack = next(iter(sorted((data / "nezha-datapacks").glob("*/"))))
    with tempfile.TemporaryDirectory() as folder:
        seconds([*program, "incident", "import", "rcabench", str(pack), "-o", folder])
        times = [
            (seconds([*program, "--help"]), seconds([*program, "incident", "annotate", folder, "--again"]))
            for _ in range(11)
        ]
    helps, annotates = zip(*times, strict=True)
    print(
        f"opsassay --help                            {statistics.median(helps) * 1e3:6.0f} ms (median of {len(helps)})"
    )
    print(
        f"opsassay incident annotate on a small pack  {statistics.median(annotates) * 1e3:6.0f} ms "
        f"(median of {len(annotates)})"
    )


def main() -> None:
    """Measure and print."""
    print(f"{os.cpu_count()} cores, load average {psutil.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}")
    startup()
    if "--startup" in sys.argv:
        return
    starts = [start_once(index) for index in range(STARTS)][1:]
    ready, gone, memory = (statistics.median(column) for column in zip(*starts, strict=True))
    print(
        f"shop from deploy to all ready    {ready:6.2f} s (median of {len(starts)}); gone in {gone:.2f} s; {memory:.0f} MB"
    )
    with tempfile.TemporaryDirectory() as folder:
        substrate = LocalSubstrate()
        running = substrate.deploy(load_system("shop"), "bench-record", owned=True, rate_rps=1)
        try:
            without, recorded, refused = recording_cost(running, Path(folder))
        finally:
            substrate.remove("bench-record")
    ratios = sorted(b / a for a, b in zip(without, recorded, strict=True))
    print(f"throughput without recording     {statistics.median(without):6.1f} requests/s closed loop")
    print(f"throughput while recording       {statistics.median(recorded):6.1f} requests/s, {refused} items refused")
    print(f"recording over not recording     {statistics.median(ratios):6.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})")
    if "--demo" in sys.argv:
        with tempfile.TemporaryDirectory() as folder:
            took = seconds([sys.executable, "-m", "opsassay", "demo", "-o", folder])
            print(f"opsassay demo                    {took:6.0f} s")


if __name__ == "__main__":
    main()
