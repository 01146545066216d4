"""What the recording proxy adds to a call beside mitmproxy and LiteLLM's proxy, in one run; streams held; memory.

One upstream, an aiohttp server that answers chat completions, and one client over kept connections. Rounds alternate
between direct and each proxy, so that what else the machine does falls on all alike. mitmproxy runs in reverse mode with
a flow file, LiteLLM with its defaults, each in an environment of its own below ~/.cache/opsassay-bench, made once by::

    python3 -m venv ~/.cache/opsassay-bench/mitmproxy && ~/.cache/opsassay-bench/mitmproxy/bin/pip install mitmproxy
    python3 -m venv ~/.cache/opsassay-bench/litellm && ~/.cache/opsassay-bench/litellm/bin/pip install 'litellm[proxy]'

Run: ``python benchmarks/proxy.py [--calls N] [--streams N] [--memory REQUESTS]``; a peer that is not there is left out, and
said to be.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
from aiohttp import web

PEERS = Path.home() / ".cache" / "opsassay-bench"
ASKED = json.dumps({"model": "gpt-4o", "messages": [{"role": "user", "content": "x" * 2000}]}).encode()
ANSWER = json.dumps(
    {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "y" * 1000}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 500, "completion_tokens": 250, "total_tokens": 750},
    }
).encode()  # fmt: skip
ROUNDS = 10
MASTER_KEY = f"sk-{'0123456789abcdef' * 4}"
"""What LiteLLM's proxy demands to start; mitmproxy passes it on."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--calls", type=int, default=1000)
    options.add_argument("--streams", type=int, default=1000)
    options.add_argument("--memory", type=int, default=100_000)
    chosen = options.parse_args()
    with upstream() as base, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        entrances = {"direct": (base, "x")}
        url, token, process = stack.enter_context(opsassay_proxy(base, Path(folder, "opsassay")))
        entrances["opsassay"] = (url, token)
        for name, start in (("mitmproxy", mitmproxy), ("litellm", litellm)):
            if (PEERS / name).is_dir():
                entrances[name] = (stack.enter_context(start(base, Path(folder))), MASTER_KEY)
            else:
                print(f"{name}: not installed in {PEERS / name}, left out")
        asyncio.run(compare(entrances, chosen.calls))
        asyncio.run(hold_streams(entrances["opsassay"], chosen.streams, Path(folder, "opsassay")))
        asyncio.run(watch_memory(entrances["opsassay"], chosen.memory, process))


async def compare(entrances: dict[str, tuple[str, str]], calls: int) -> None:
    """Print p50 and p99 of every door and what it adds to the direct call."""
    taken: dict[str, list[float]] = {name: [] for name in entrances}
    async with aiohttp.ClientSession() as client:
        for door in entrances.values():
            for _ in range(50):
                await call(client, *door)
        for _ in range(ROUNDS):
            for name, door in entrances.items():
                taken[name] += [await call(client, *door) for _ in range(calls // ROUNDS)]
    direct = statistics.median(taken["direct"])
    for name, times in taken.items():
        p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
        told = f"p50 {p50 * 1e3:.3f} ms, added {(p50 - direct) * 1e3:.3f} ms, p99 {p99 * 1e3:.2f} ms, n = {len(times)}"
        print(f"{name:>10}: {told}", flush=True)


async def call(client: aiohttp.ClientSession, base: str, token: str) -> float:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    begun = time.perf_counter()
    async with client.post(f"{base}/v1/chat/completions", data=ASKED, headers=headers) as answer:
        body = await answer.read()
    taken = time.perf_counter() - begun
    assert answer.status == 200, body[:300]
    return taken


async def hold_streams(door: tuple[str, str], count: int, folder: Path) -> None:
    """Open *count* streams at once, and compare every byte with what was sent and what was recorded."""
    base, token = door
    asked = json.dumps({"model": "gpt-4o", "stream": True, "messages": []}).encode()
    headers = {"Authorization": f"Bearer {token}"}

    async def one(client: aiohttp.ClientSession) -> bytes:
        async with client.post(f"{base}/v1/chat/completions", data=asked, headers=headers) as answer:
            return await answer.read()

    begun = time.perf_counter()
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(300)
    ) as client:
        got = await asyncio.gather(*(one(client) for _ in range(count)))
    whole = sum(body == b"".join(stream_events()) for body in got)
    from opsassay.solvers.proxy.exchanges import read_session

    await asyncio.sleep(0.5)
    recorded = [e for e in read_session(folder / "sessions" / "bench") if e.is_stream]
    same = sum(e.answer_body == b"".join(stream_events()) and e.outcome == "complete" for e in recorded)
    took = time.perf_counter() - begun
    print(f"{count} concurrent streams in {took:.1f} s: {whole} whole at the client, {same} whole in the record")


async def watch_memory(door: tuple[str, str], requests: int, process: psutil.Process) -> None:
    """Print the proxy's resident memory along *requests* requests, 32 at a time."""
    readings = []
    left = iter(range(requests))
    async with aiohttp.ClientSession() as client:

        async def work() -> None:
            for number in left:
                await call(client, *door)
                if number % max(1, requests // 10) == 0:
                    readings.append(process.memory_info().rss / 1e6)

        begun = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(32)))
    rate = requests / (time.perf_counter() - begun)
    print(f"{requests} requests at {rate:,.0f}/s; resident MB: {', '.join(f'{mb:.0f}' for mb in readings)}")


@contextlib.contextmanager
def upstream() -> Iterator[str]:
    context = multiprocessing.get_context("spawn")
    parent, child = context.Pipe()
    process = context.Process(target=serve_upstream, args=(child,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{parent.recv()}"
    finally:
        process.terminate()


def serve_upstream(pipe: Any) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if b'"stream": true' not in body:
            return web.Response(body=ANSWER, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for event in stream_events():
            await response.write(event)
            await asyncio.sleep(0.2)
        await response.write_eof()
        return response

    async def serve() -> None:
        application = web.Application()
        application.router.add_post("/v1/chat/completions", answer)
        application.router.add_post("/chat/completions", answer)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, backlog=4096).start()
        pipe.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(serve())


def stream_events() -> list[bytes]:
    deltas = [json.dumps({"choices": [{"index": 0, "delta": {"content": f"word {n} "}}]}) for n in range(10)]
    return [f"data: {delta}\n\n".encode() for delta in (*deltas, "[DONE]")]


@contextlib.contextmanager
def opsassay_proxy(base: str, folder: Path) -> Iterator[tuple[str, str, psutil.Process]]:
    command = [
        sys.executable,
        "-m",
        "opsassay",
        "trace",
        "proxy",
        "--upstream",
        base,
        "-o",
        str(folder),
        "--session",
        "bench",
    ]
    environment = {**os.environ, "OPSASSAY_UPSTREAM_KEY": "sk-real-key-of-the-benchmark"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert process.stdout is not None
    lines = [process.stdout.readline().strip().split("=", 1)[1] for _ in range(4)]
    try:
        yield lines[2], lines[1], psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def mitmproxy(base: str, folder: Path) -> Iterator[str]:
    port = free_port()
    program = PEERS / "mitmproxy" / "bin" / "mitmdump"
    options = ["-q", "--mode", f"reverse:{base}", "--listen-port", str(port), "-w", str(folder / "flows")]
    with running([str(program), *options, "--set", f"confdir={folder}"], port, {}):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def litellm(base: str, folder: Path) -> Iterator[str]:
    port = free_port()
    model = {"model": "openai/gpt-4o", "api_base": f"{base}/v1", "api_key": "x"}
    (folder / "litellm.yaml").write_text(
        json.dumps({"model_list": [{"model_name": "gpt-4o", "litellm_params": model}]})
    )
    program = PEERS / "litellm" / "bin" / "litellm"
    own = {
        "LITELLM_MASTER_KEY": MASTER_KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "NO_PROXY": "*",
    }
    with running([str(program), "--config", str(folder / "litellm.yaml"), "--port", str(port)], port, own):
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def running(command: list[str], port: int, environment: dict[str, str]) -> Iterator[None]:
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=silent, stderr=silent, env={**os.environ, **environment})
    try:
        deadline = time.monotonic() + 180
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} did not start")
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
