"""How long the pages of `opsassay view` take over 10,000 runs: `python benchmarks/view.py [RUNS] [--export]`.

A store of graded runs is made by code, and the command serves it as a user would call it. Printed are the first look at the
store, the median and the slowest of several requests of each kind of page, how long after a run has begun and ended
the stream of events says so, and the memory of the server. The bars are 300 ms for the first page and 1 s for an event;
the exit code is 1 when one is missed. With --export: how long all pages take as files, how many, how large.
"""

from __future__ import annotations

import http.client
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from opsassay.core.schema.run import Metric, MetricStatus, Run, RunStatus, Solver
from opsassay.core.schema.trajectory import TraceStep
from opsassay.evals.runner.run import verdict_of
from opsassay.evals.runner.store import VERDICTS, RunStore, cell_hash
from opsassay.ui.browsing.catalogue import slug

RUNS, SOLVERS, REQUESTS, STEPS = 10_000, 20, 15, 10_000
HOME_BAR_S, EVENT_BAR_S = 0.3, 1.0


def main() -> int:
    """Measure the pages; 1 when a bar is missed."""
    numbers = [int(word) for word in sys.argv[1:] if word.isdigit()]
    runs = numbers[0] if numbers else RUNS
    if "--export" in sys.argv:
        return exported(runs)
    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder), runs)
        long = make_long(Path(folder))
        began = time.perf_counter()
        with served(Path(folder)) as server:
            print(f"{runs:,} runs: served {time.perf_counter() - began:.1f} s after the command was given")
            times = {name: measured(server, path) for name, path in (pages(server) | long).items()}
            [audit_s] = measured(server, "/audit/finops.html", 1)
            event_s = max(event_seconds(server, Path(folder), at) for at in range(5))
            memory_mb = psutil.Process(server.process.pid).memory_info().rss / 1e6
    for name, seconds in times.items():
        print(f"{name:<28} median {1000 * statistics.median(seconds):6.0f} ms, slowest {1000 * max(seconds):6.0f} ms")
    print(f"the audit, computed once per state of the store: {audit_s:.1f} s")
    print(f"an event came after {event_s:.2f} s at most; {memory_mb:.0f} MB")
    home = [statistics.median(times[name]) for name in times if name.startswith("home")]
    return 1 if max(home) > HOME_BAR_S or event_s > EVENT_BAR_S else 0


def exported(runs: int) -> int:
    """Print how long an export of *runs* takes, and what comes of it; return the exit code of the command."""
    with tempfile.TemporaryDirectory() as folder:
        store, out = Path(folder) / "store", Path(folder) / "pages"
        make(store, runs)
        began = time.perf_counter()
        words = [sys.executable, "-m", "opsassay", "view", str(store), "--export", str(out)]
        code = subprocess.run(words, check=False).returncode
        seconds = time.perf_counter() - began
        sizes = [path.stat().st_size for path in out.rglob("*") if path.is_file()]
    print(f"{runs:,} runs: {len(sizes):,} files of {sum(sizes) / 1e6:,.0f} MB in {seconds:.0f} s")
    return code


class Server:
    """The command as a process, with the key it printed."""

    def __init__(self, process: subprocess.Popen[str], port: int, key: str) -> None:
        self.process, self.port, self.key = process, port, key

    def answers(self) -> bool:
        """Return whether it listens by now."""
        try:
            return self.open("/events").status == 200
        except ConnectionRefusedError:
            return False

    def open(self, path: str) -> http.client.HTTPResponse:
        """Return the answer to a request of *path*."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        client.request("GET", path, headers={"Cookie": f"opsassay-{self.port}={self.key}"})
        return client.getresponse()


@contextmanager
def served(store: Path) -> Iterator[Server]:
    """Serve *store* while the block runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "opsassay", "view", str(store)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        found = None
        while found is None:
            found = re.search(r"http://127\.0\.0\.1:(\d+)/\?key=(\S+) ", process.stderr.readline())
        server = Server(process, int(found[1]), found[2])
        while not server.answers():
            time.sleep(0.02)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def pages(server: Server) -> dict[str, str]:
    """Return an address of each kind of page."""
    text = server.open("/").read().decode()

    def first(kind: str) -> str:
        found = re.search(rf'href="({kind}/[^"]+)"', text)
        assert found is not None
        return f"/{found[1]}"

    solver = first("solvers")
    compare = re.search(r'href="\.\./(compare/[^"]+)"', server.open(solver).read().decode())
    assert compare is not None
    return {
        "home": "/",
        "home, as JSON": "/index.json",
        "home, filtered": "/?solver=agent-3&status=done",
        "home, the last page": "/index~200.html",
        "run": first("runs"),
        "task": first("tasks"),
        "solver": solver,
        "board": first("boards"),
        "trials": first("trials"),
        "compare": f"/{compare[1]}",
    }


def measured(server: Server, path: str, requests: int = REQUESTS) -> list[float]:
    """Return the seconds that each of several requests of *path* took."""
    found = []
    for _ in range(requests):
        began = time.perf_counter()
        answer = server.open(path)
        assert answer.status == 200, path
        answer.read()
        found.append(time.perf_counter() - began)
    return found


def event_seconds(server: Server, store: Path, at: int) -> float:
    """Return how long after a run has begun, and after it has ended, the stream of events says so; the longer of both."""
    stream, heard = server.open("/events"), threading.Semaphore(0)

    def listen() -> None:
        while line := stream.readline():
            if line.startswith(b"data:"):
                heard.release()

    threading.Thread(target=listen, daemon=True).start()
    time.sleep(0.5)
    runs = RunStore(store)
    began = time.perf_counter()
    folder, run = runs.begin(one_run(f"event-{at}", 0))
    assert heard.acquire(timeout=20)
    first_s = time.perf_counter() - began
    began = time.perf_counter()
    runs.end(folder, run.model_copy(update={"status": RunStatus.DONE}))
    assert heard.acquire(timeout=20)
    return max(first_s, time.perf_counter() - began)


def make(store: Path, runs: int) -> None:
    """Write a store of graded *runs*: as `RunStore` does, but without waiting for the disk after each."""
    for at in range(runs):
        run = one_run(f"task-{at // SOLVERS:04}", at % SOLVERS)
        folder = store / "runs" / run.cell / "1"
        (folder / VERDICTS).mkdir(parents=True)
        done = run.model_copy(update={"status": RunStatus.DONE, "started_ns": 10**18 + at, "ended_ns": 2 * 10**18})
        (folder / "run.json").write_text(done.pretty_json(), encoding="utf-8")
        metric = Metric(value=float((at * 7919) % 100 < 30 + 3 * (at % SOLVERS)), status=MetricStatus.SCORED)
        (folder / VERDICTS / "default.json").write_text(verdict_of(done, {"passed": metric}).pretty_json(), "utf-8")


def make_long(store: Path) -> dict[str, str]:
    """Write a run of STEPS steps that failed into *store* and return the addresses of its first and its last page."""
    run = one_run("long", SOLVERS)
    folder = store / "runs" / run.cell / "1"
    (folder / VERDICTS).mkdir(parents=True)
    done = run.model_copy(update={"status": RunStatus.DONE, "started_ns": 10**18, "ended_ns": 2 * 10**18})
    (folder / "run.json").write_text(done.pretty_json(), encoding="utf-8")
    failed = {"passed": Metric(value=0.0, status=MetricStatus.SCORED)}
    (folder / VERDICTS / "default.json").write_text(verdict_of(done, failed).pretty_json(), "utf-8")
    steps = (
        TraceStep(step_id=n, agent_id="a", agent_name=f"agent {n % 3}", input_context="asked", output_content="said " * 20,
                  started_at=10**18 + n * 10**9, ended_at=10**18 + n * 10**9 + 10**8)
        for n in range(1, STEPS + 1)
    )  # fmt: skip
    (folder / "trace.jsonl").write_text("".join(f"{step.model_dump_json()}\n" for step in steps), encoding="utf-8")
    key = f"{slug(store.name)}.{run.cell}.1"
    name = f"run of {STEPS:,} steps"
    return {name: f"/runs/{key}.html", f"{name}, the last page": f"/runs/{key}~{STEPS // 50}.html"}


def one_run(task: str, solver: int) -> Run:
    """Return a run of *task* by an agent with a number."""
    who = Solver(name=f"agent-{solver}", kind="agent", configuration={"model": f"model-{solver}", "temperature": 0.2})
    cell = cell_hash(task, who.name, "default", 0)
    return Run(
        cell=cell, attempt=1, domain="finops", item=task, item_hash=task, system="focus", solver=who,
        solver_hash=who.name, isolation="sealed", versions={"opsassay": "0.1.0"}, spent={"model_calls": 12.0, "usd": 0.1},
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
