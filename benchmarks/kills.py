"""Kill -9 of random processes during injections, and what is left afterwards.

Each round starts a small system, in half of them by a warm process, records, injects a fault of a random type, kills one
process that is drawn from all that belong to the system, the injector and the warm process, runs `opsassay system
status`, and looks for processes, network namespaces, control groups, mounts and spans that were acknowledged and are not
in the spool. Run:
``python benchmarks/kills.py [ROUNDS] [SEED] [--programs]``; with the last, services are programs of a team's own.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from opsassay.core.errors import OpsAssayError
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.state import MARKER
from opsassay.testbed.kernel.namespaces import join
from opsassay.testbed.substrates.local.capabilities import probe
from opsassay.testbed.substrates.local.substrate import LocalSubstrate, LocalSystem
from opsassay.testbed.substrates.local.warm import warm_process

APP = """
system: victim
hosts: [host-a, host-b]
stores: {cache: {engine: valkey}}
services:
  front: {operations: {GET /: {steps: [{call: middle GET /, timeout_s: 1, retries: 1}]}}}
  middle: {replicas: 2, operations: {GET /: {steps: [{call: back GET /, timeout_s: 1}]}}}
  back: {operations: {GET /: {steps: [{cache: get, key: "item:{int:10}"}, {wait_ms: 2}]}}}
load: {rate_rps: 30, timeout_s: 3, mix: [{request: front GET /}]}
"""
Planned = tuple[str, str, dict[str, Any]]
FAULTS: tuple[Planned, ...] = (
    ("NetworkDelay", "back", {"delay_ms": 100}),
    ("NetworkLoss", "middle", {"loss_percent": 20}),
    ("NetworkPartition", "back", {}),
    ("NetworkBandwidth", "middle", {"rate_bps": 64_000}),
    ("CPUStress", "back", {}),
    ("MemoryStress", "middle", {"size_mb": 256}),
    ("PodFailure", "back", {}),
    ("PodKill", "middle", {}),
    ("DNSError", "front", {}),
    ("JVMLatency", "back", {}),
    ("HTTPResponseAbort", "middle", {}),
)
PROGRAMS = """
system: victim
hosts: [host-a, host-b]
services:
  front:
    program: {command: [python3, own_program.py], environment: {BACK_URL: "http://middle:8080"}, ports: {http: 8080},
              ready: {http: GET /health}, calls: [middle]}
  middle:
    replicas: 2
    program: {command: [python3, own_program.py], environment: {BACK_URL: "http://back:8080"}, ports: {http: 8080},
              ready: {http: GET /health}, calls: [back], clock: faketime}
  back:
    program: {command: [python3, own_program.py], ports: {http: 8080}, ready: {tcp: 8080}, calls: []}
load: {rate_rps: 20, timeout_s: 3, mix: [{request: front GET /items/1}]}
"""
PROGRAM = Path(__file__).parents[1] / "tests" / "testbed" / "substrates" / "local" / "own_program.py"
"""Nothing but Python's library: it answers, and calls the next."""
INSIDE = ("JVMLatency", "HTTPResponseAbort")
"""Faults that only OpsAssay's own runtime carries out without a sidecar; programs have a wrong clock in their place."""
FAULT_S = 6.0
NAME = "victim"
ENDING_S = 5.0
"""A killed process takes a while to end on a busy machine."""


def main() -> None:
    given = [int(word) for word in sys.argv[1:] if word.isdigit()]
    rounds, chance = given[0] if given else 200, random.Random(given[1] if len(given) > 1 else 0)
    programs = "--programs" in sys.argv
    folder = Path(tempfile.mkdtemp(prefix="kills-", dir="/tmp"))
    os.environ["OPSASSAY_STATE"] = str(folder / "state")
    folder.chmod(0o755)  # programs of root run as another user
    shutil.copy(PROGRAM, folder)
    (folder / "app.yaml").write_text(PROGRAMS if programs else APP)
    levels = [name for name, level in probe().items() if level.available and not (programs and name == "plain")]
    clock: Planned = ("TimeSkew", "middle", {})
    faults = [*(one for one in FAULTS if one[0] not in INSIDE), clock] if programs else FAULTS
    victims: Counter[str] = Counter()
    acknowledged, findings = 0, []
    before = belongings()
    try:
        for number in range(rounds):
            level = levels[number % len(levels)]
            with warm_process() if number // len(levels) % 2 else nullcontext():
                victim, spans, problems = one_round(folder, level, faults, chance)
            victims[victim] += 1
            acknowledged += spans
            problems += [f"left behind: {thing}" for thing in sorted(belongings() - before)]
            findings += [f"round {number} ({level}, {victim} killed): {problem}" for problem in problems]
            print(
                f"{number + 1:4} {level:10} killed {victim:14} {spans:5} spans acknowledged  {problems or 'clean'}",
                flush=True,
            )
    finally:
        subprocess.run([sys.executable, "-m", "opsassay", "system", "status"], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{rounds} kills ({', '.join(f'{n} {v}' for v, n in victims.most_common())}): {len(findings)} findings, "
          f"{acknowledged} acknowledged spans looked for")  # fmt: skip
    for finding in findings:
        print(finding)
    sys.exit(bool(findings))


def one_round(folder: Path, level: Any, faults: Sequence[Planned], chance: random.Random) -> tuple[str, int, list[str]]:
    """Return who was killed, how many spans had been acknowledged, and what was wrong afterwards."""
    running = LocalSubstrate().deploy(load_system(str(folder / "app.yaml")), NAME, isolation=level)
    spool, acks = folder / "spool", folder / "acks"
    running.receiver.open_session(spool, spool.name)
    witness = subprocess.Popen(
        [sys.executable, __file__, "--witness", json.dumps(running.status().payload()), str(acks)]
    )
    injector = inject(folder, faults, chance)
    try:
        time.sleep(chance.uniform(0.5, 3.5))
        spaces = namespaces(running)
        victim, pid = chance.choice(killable(running, injector, chance))
        os.kill(pid, 9)
        time.sleep(chance.uniform(0.0, 1.0))
        problems = after_the_kill(running)
    finally:
        witness.terminate()
        witness.wait()
        injector.kill()
        injector.wait()
    problems += inhabited(spaces)
    lost, total = lost_spans(spool, acks)
    shutil.rmtree(spool, ignore_errors=True)
    acks.unlink(missing_ok=True)
    return victim, total, problems + ([f"{lost} of {total} acknowledged spans are lost"] if lost else [])


def inject(folder: Path, faults: Sequence[Planned], chance: random.Random) -> subprocess.Popen[bytes]:
    """Start `opsassay system inject` with one of *faults*."""
    fault, service, parameters = chance.choice(faults)
    plan = folder / "fault.yaml"
    plan.write_text(
        json.dumps({"fault": fault, "target": {"service": service}, "parameters": parameters, "duration_s": FAULT_S})
    )
    command = [sys.executable, "-m", "opsassay", "system", "inject", str(plan), "--on", NAME]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def killable(running: LocalSystem, injector: subprocess.Popen[bytes], chance: random.Random) -> list[tuple[str, int]]:
    """Return (what, pid) of every process of the system and of the injector; one of each kind is as likely as another."""
    pids = {pid: "replica" for pid in running.status().pids.values() if pid is not None}
    found = [("injector", injector.pid)]
    found += [("warm", one.pid) for one in psutil.Process().children() if "local.warm" in " ".join(one.cmdline())]
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) == str(running.state.dir):
                found.append((pids.get(process.pid) or kind_of(process), process.pid))
        except (psutil.Error, OSError):
            continue
    kinds = sorted({kind for kind, _ in found})
    chosen = chance.choice(kinds)
    return [one for one in found if one[0] == chosen]


def kind_of(process: psutil.Process) -> str:
    """Return what a marked process is, by its log."""
    log = Path(f"/proc/{process.pid}/fd/2").readlink().stem
    known = ("supervisor", "receiver", "template", "store-cache")
    return log if log in known else "fork"  # relay, load generator, pressure, packets


def after_the_kill(running: LocalSystem) -> list[str]:
    """Run `opsassay system status`, then end the system when it has survived; return what is wrong."""
    problems = []
    status = subprocess.run(
        [sys.executable, "-m", "opsassay", "system", "status", "--json"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    if status.returncode:
        problems.append(f"opsassay system status ended with {status.returncode}: {status.stderr.strip()[-200:]}")
    deadline = time.monotonic() + 20
    while running.state.dir.exists() and time.monotonic() < deadline:
        try:
            LocalSubstrate().remove(NAME)
        except OpsAssayError:
            LocalSubstrate().status()  # it ended in the meantime
        time.sleep(0.1)
    if running.state.dir.exists():
        problems.append("the system's folder is still there")
    return problems


def lost_spans(spool: Path, acks: Path) -> tuple[int, int]:
    """Return how many acknowledged spans are missing in *spool*, and how many were acknowledged."""
    from opsassay.telemetry.otlp.seal import decode_spool

    acknowledged = {line for line in acks.read_text().splitlines() if len(line) == 16} if acks.exists() else set()
    present = set(decode_spool(spool)["traces"]["span_id"].to_list()) if acknowledged else set()
    return len(acknowledged - present), len(acknowledged)


def namespaces(running: LocalSystem) -> set[str]:
    """Return the network namespaces in which processes of the system are and this process is not."""
    found = set()
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) == str(running.state.dir):
                found.add(str(Path(f"/proc/{process.pid}/ns/net").readlink()))
        except (psutil.Error, OSError):
            continue
    return found - {str(Path("/proc/self/ns/net").readlink())}


def inhabited(spaces: set[str]) -> list[str]:
    """Return those of the network namespaces *spaces* in which there is a process, after ENDING_S at most."""
    deadline = time.monotonic() + ENDING_S
    while True:
        found = {}
        for process in psutil.process_iter():
            try:
                found[str(Path(f"/proc/{process.pid}/ns/net").readlink())] = " ".join(process.cmdline())[:80]
            except (psutil.Error, OSError):
                continue
        left = [f"left behind: namespace {space} with {found[space]}" for space in sorted(spaces & found.keys())]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.2)


def belongings() -> set[str]:
    """Return processes, control groups and mounts of this machine that belong to a system of this program."""
    mounts = (line.split(" - ")[0].split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines())
    found = {f"mount {point}" for point in mounts if os.environ["OPSASSAY_STATE"] in point or NAME in point}
    for process in psutil.process_iter():
        try:
            if MARKER in process.environ() and str(os.environ["OPSASSAY_STATE"]) in process.environ()[MARKER]:
                found.add(f"process {process.pid} {' '.join(process.cmdline())[:80]}")
        except (psutil.Error, OSError):
            continue
    root = Path("/sys/fs/cgroup")
    groups = (folder for folder, *_ in os.walk(root) if Path(folder).name.startswith(f"opsassay-{NAME}"))
    return found | {f"control group {path}" for path in groups}


def witness(status: dict[str, Any], acks: Path) -> None:
    """Post single spans to the receiver for ever; write down each one that it has acknowledged."""
    if (place := status["probe"]) is not None:
        try:
            join(place["pid"], place["namespace"])
        except FileNotFoundError:
            return  # the system was killed before this process had started
    number = 0
    with acks.open("a", buffering=1) as file:
        while True:
            number += 1
            request = ExportTraceServiceRequest()
            span = request.resource_spans.add().scope_spans.add().spans.add(name="witness", trace_id=os.urandom(16))
            span.span_id = number.to_bytes(8, "big")
            span.start_time_unix_nano = span.end_time_unix_nano = time.time_ns()
            post = urllib.request.Request(
                status["receiver"] + "/v1/traces",
                request.SerializeToString(),
                {"Content-Type": "application/x-protobuf"},
            )
            try:
                with urllib.request.urlopen(post, timeout=2) as response:
                    if response.status == 200:
                        file.write(span.span_id.hex() + "\n")
            except OSError:
                time.sleep(0.05)
            time.sleep(0.005)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--witness"]:
        witness(json.loads(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
