"""The template process: has everything imported, and forks the processes of a system on request.

Fifteen bare interpreters took 7.8 s on two cores; forked from one template they take 1.4 s and share most of their memory.
It is itself a fork of the supervisor, which holds the other end of a socket: ``{"id", "role", "config"}`` asks for a
process, and the template reports ``{"spawned"}`` and ``{"exited"}``. At the end of input it kills its children and goes.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn.protocols.http.httptools_impl  # noqa: F401 - servers import it when they start, which is after the fork
import uvloop
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from opsassay.core.logs import Log, configure
from opsassay.telemetry.otlp import receiver
from opsassay.testbed.kernel.namespaces import enter
from opsassay.testbed.workload import packets
from opsassay.testbed.workload.runtime import (
    allocator,
    burner,
    container,
    load,
    own_load,
    pressure,
    program,
    relay,
    replica,
    side_process,
)
from opsassay.testbed.workload.runtime.forks import die_with_parent, give_way_in_a_full_group

_log = Log(__name__)


async def receive(config: dict[str, Any]) -> None:
    """Run the system's telemetry receiver with *config*."""
    await receiver.receive(Path(config["state"]), config["host"], 0)


OTLPSpanExporter(endpoint="http://127.0.0.1")  # the first of a process imports what it sends with
ROLES = {
    "replica": replica.main,
    "program": program.main,
    "container": container.main,
    "relay": relay.main,
    "load": load.main,
    "own_load": own_load.main,
    "pressure": pressure.main,
    "allocator": allocator.main,
    "burner": burner.main,
    "side_process": side_process.main,
    "packets": packets.main,
    "receiver": receive,
}


def fork_template(log: Path) -> tuple[int, socket.socket]:
    """Fork the template process, which logs to *log*, from this single-threaded one; return (pid, socket to it)."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    status = 1
    try:
        die_with_parent()
        os.setsid()
        for descriptor in (0, 1):
            os.dup2(theirs.fileno(), descriptor)
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the lock of the system and its entrances among them
        serve()
        status = 0
    except BaseException as error:  # noqa: BLE001 - its log is where its end is explained
        _log.exception("failed", error)
    finally:
        os._exit(status)


def serve() -> None:
    """Be the template process: fork a process for each request on stdin, until stdin is closed."""
    configure("template")
    gc.collect()
    gc.freeze()  # what is imported stays shared: the collector would touch every page otherwise
    children: dict[int, str] = {}
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(woken, selectors.EVENT_READ)
    report({"ready": os.getpid()})
    _log.info("ready", pid=os.getpid())
    pending = b""
    while True:
        for key, _ in selector.select():
            if key.fd == woken:
                os.read(woken, 4096)
                reap(children)
                continue
            chunk = os.read(0, 65536)
            if not chunk:
                end(children)
                return
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                request = json.loads(line)
                pid = spawn(request)
                children[pid] = request["id"]
                report({"spawned": request["id"], "pid": pid})


def spawn(request: dict[str, Any]) -> int:
    """Fork a process for the role in *request* {id, role, config, log}; return its pid; the child never returns."""
    if request["role"] == "replica":
        replica.system_from(request["config"]["system"])
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        enter_child(Path(request["log"]))
        configure(request["id"])
        if request["role"] == "replica":
            give_way_in_a_full_group()
        for entrance in request["config"].get("groups", ()):
            Path(entrance).write_text(str(os.getpid()))
        if (namespace := request["config"].get("inside")) is not None:
            enter(namespace)
        main_coroutine = ROLES[request["role"]](request["config"])
        _log.info("started", role=request["role"], pid=os.getpid())
        uvloop.run(main_coroutine)
        _log.info("stopped")
        status = 0
    except BaseException as error:  # noqa: BLE001 - the log of the process is where its end is explained
        _log.exception("failed", error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def enter_child(log: Path) -> None:
    """Prepare the forked child: default signals, output to *log*, and it dies with its parent."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    die_with_parent()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    asyncio.set_event_loop_policy(None)
    gc.unfreeze()
    gc.freeze()


def reap(children: dict[int, str]) -> None:
    """Reap every ended process of *children* (pid to name) and report it to the supervisor."""
    while children:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        report({"exited": children.pop(pid, "?"), "pid": pid, "status": os.waitstatus_to_exitcode(status)})


def end(children: dict[int, str]) -> None:
    """Kill and reap all processes of *children* (pid to name)."""
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    for pid in children:
        os.waitpid(pid, 0)


def report(message: dict[str, Any]) -> None:
    """Write *message* as a line of JSON to the supervisor, by stdout."""
    os.write(1, json.dumps(message).encode() + b"\n")
