"""A small fabric in a process of its own, with servers to measure against: what is made there ends with the process."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import encodings.idna  # noqa: F401 - read before root is dropped
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opsassay.core.errors import StartError
from opsassay.testbed.kernel import partition, shaping  # noqa: F401 - read before root is dropped
from opsassay.testbed.kernel.namespaces import inside, isolate
from opsassay.testbed.kernel.network import Fabric, Place
from opsassay.testbed.workload import detour, packets  # noqa: F401 - read before root is dropped

PORT = 8080
NOBODY = 65534
SKIPPED = "skipped: "


def run_apart(work: Callable[[], None], user: str = "present") -> None:
    """Run *work* in a child, as *user* ("present", "root" or "nobody"); what it raises fails the test, told in full."""
    if user == "root" and os.geteuid() != 0:
        pytest.skip("not root: what root may do is not tried")
    with tempfile.TemporaryDirectory(prefix="opsassay-lab-") as folder:
        Path(folder).chmod(0o777)
        told = _in_child(work, user, folder)
    if told.startswith(SKIPPED):
        pytest.skip(told.removeprefix(SKIPPED))
    if told:
        pytest.fail(told, pytrace=False)


def _in_child(work: Callable[[], None], user: str, folder: str) -> str:
    """Run *work* in a child whose temporary files lie in *folder*; return what went wrong."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told = ""
        try:
            os.setpgid(0, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            tempfile.tempdir = folder
            if user == "nobody" and os.geteuid() == 0:
                become_nobody()
            work()
        except StartError as error:
            told = f"{SKIPPED}{error}"
        except BaseException:  # noqa: BLE001 - told to the parent
            told = traceback.format_exc()
        os.write(writing, told.encode()[-60_000:])
        os._exit(0)
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            return pipe.read()
    finally:  # a test that timed out leaves nobody behind who holds its output
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)


def become_nobody() -> None:
    """Drop root for good, yet own our own entries under /proc as a process that was never root does."""
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE


class Laboratory:
    """Three replicas on two hosts: each answers TCP with as many bytes as asked, and UDP with its clock."""

    def __init__(self) -> None:
        isolate()
        self.folder = Path(tempfile.mkdtemp(prefix="opsassay-lab-"))
        self.fabric = Fabric(["h1", "h2"])
        self.fabric.start()
        self.a, self.b, self.c = (
            self.fabric.attach(name, host) for name, host in (("a", "h1"), ("b", "h2"), ("c", "h1"))
        )
        self._faults = 0
        for place in (self.a, self.b, self.c):
            server = inside(place.namespace, lambda place=place: socket.create_server((place.data_address, PORT)))
            threading.Thread(target=_answer, args=(server,), daemon=True).start()

    def stream(self, place: Place, peer: Place, *, leaving: bool) -> dict:
        """Return the stream of the link from *peer*, the caller, to *place*, the replica."""
        direction = "backward" if leaving else "forward"
        link = f"{peer.name}>{place.name}"
        return {"link": link, "direction": direction, "leaving": leaving, "address": peer.data_address}

    @contextlib.contextmanager
    def fault(
        self, impairment: dict, streams: list[dict], means: str = "queue", place: Place | None = None
    ) -> Iterator[Fault]:
        """Run a packet process for *place* (b); yield it once it has said hello, and hang up in the end."""
        self._faults += 1
        name = f"fault{self._faults}"
        place = place or self.b
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self.folder / name))
            listening.listen()
            config = {
                "id": name, "management": str(self.folder / name), "ledger": str(self.folder / f"{name}.jsonl"),
                "namespace": place.path, "peer_interface": place.peer_interface, "means": means, "streams": streams,
                "impairment": impairment,
            }  # fmt: skip
            pid = os.fork()
            if pid == 0:
                try:
                    asyncio.run(packets.main(config))
                except BaseException:  # noqa: BLE001 - the parent sees the status
                    traceback.print_exc()
                    sys.stderr.flush()
                    os._exit(1)
                os._exit(0)
            channel = _accept(listening, pid)
            with channel:
                assert b"hello" in channel.recv(1000)
                running = Fault(pid, channel, Path(config["ledger"]))
                yield running
            if running.pid:
                assert os.waitpid(pid, 0)[1] == 0

    def exchange(self, caller: Place, callee: Place, times: int, size: int = 100) -> list[float]:
        """Return how long each of *times* requests for *size* bytes took on one connection, in ms."""

        def call() -> list[float]:
            with socket.create_connection((callee.data_address, PORT), timeout=120) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return [_timed(connection, size) for _ in range(times)]

        return inside(caller.namespace, call)

    def one_way(self, source: Place, destination: Place, count: int, wait_s: float = 0.5) -> list[float]:
        """Send *count* datagrams and return how long each that arrived was on its way, in ms, in order of arrival."""
        receiving = inside(destination.namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        sending = inside(source.namespace, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        with receiving, sending:
            receiving.bind((destination.data_address, 0))
            receiving.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
            receiving.settimeout(wait_s)
            found: list[float] = []

            def receive() -> None:
                with contextlib.suppress(TimeoutError):
                    while True:
                        (sent,) = struct.unpack("d", receiving.recv(100))
                        found.append((time.monotonic() - sent) * 1e3)

            thread = threading.Thread(target=receive)
            thread.start()
            for _ in range(count):
                sending.sendto(struct.pack("d", time.monotonic()), receiving.getsockname())
                time.sleep(0.0005)
            thread.join()
        return found

    def counter(self, place: Place, name: str) -> int:
        """Return the counter *name* ("Tcp.InCsumErrors") of the namespace of *place*."""
        protocol, _, field = name.partition(".")

        def read() -> int:
            lines = Path("/proc/thread-self/net/snmp").read_text().splitlines()
            names, values = (line.split() for line in lines if line.startswith(f"{protocol}:"))
            return int(values[names.index(field)])

        return inside(place.namespace, read)


class Fault:
    """A packet process that runs."""

    def __init__(self, pid: int, channel: socket.socket, ledger: Path) -> None:
        self.pid, self._channel, self._ledger = pid, channel, ledger

    def ping(self) -> dict:
        self._channel.sendall(b'{"id": 1, "op": "ping"}\n')
        return json.loads(self._channel.recv(1000))["result"]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0

    def ledger(self) -> Counter[tuple[str, str, str]]:
        """Return how many lines there are of each (kind, link, direction)."""
        lines = [json.loads(line) for line in self._ledger.read_text().splitlines()]
        return Counter((line["kind"], line["link"], line["direction"]) for line in lines)


def _accept(listening: socket.socket, pid: int) -> socket.socket:
    """Return the channel that process *pid* opens; fails when it ends instead."""
    listening.settimeout(0.05)
    while True:
        with contextlib.suppress(TimeoutError):
            return listening.accept()[0]
        assert os.waitpid(pid, os.WNOHANG)[0] == 0, "the packet process ended"


def _timed(connection: socket.socket, size: int) -> float:
    began = time.monotonic()
    connection.sendall(struct.pack("I", size))
    left = size
    while left:
        data = connection.recv(1 << 16)
        assert data == b"y" * len(data)
        left -= len(data)
    return (time.monotonic() - began) * 1e3


def _answer(server: socket.socket) -> None:
    while True:
        connection, _ = server.accept()
        threading.Thread(target=_answer_one, args=(connection,), daemon=True).start()


def _answer_one(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with contextlib.suppress(OSError), connection:
        while request := connection.recv(4):
            connection.sendall(b"y" * struct.unpack("I", request)[0])
