"""A real platform: its server, its PostgreSQL and its workers as processes, in a folder of the test's own."""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from opsassay.server.client import PlatformClient

BILL = """
domain: finops
description: Questions about a cloud bill.
baselines: [constant]
part: {tasks: [category-cost, top-applications, anomalies-spikes]}
"""


class Running:
    """`opsassay server start` on *state*; ended by `end`."""

    def __init__(self, state, *words, port=0):
        self.state, self.words, self.port = Path(state), words, port
        (self.state / "task_sets").mkdir(parents=True, exist_ok=True)
        if not (self.state / "task_sets" / "bill.yaml").exists():
            (self.state / "task_sets" / "bill.yaml").write_text(BILL)
        self.admin = self.process = None
        self.start()

    def start(self):
        if self.process is not None:
            self.process.stderr.close()
        command = [
            sys.executable,
            "-m",
            "opsassay",
            "server",
            "start",
            "--state",
            str(self.state),
            "--port",
            str(self.port),
            *self.words,
        ]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env={**os.environ, "OPSASSAY_LOG": "info"}
        )
        self.said = ""
        for line in self.process.stderr:
            self.said += line
            if token := re.search(r"ops_\S+", line):
                self.admin = token.group()
            if found := re.search(r"serving at (http://[\d.]+:(\d+))", line):
                self.url, self.port = found.group(1), int(found.group(2))
                break
        else:
            self.process.wait(20)
            return
        for _ in range(300):
            with contextlib.suppress(Exception):
                self.client().ask("GET", "/api/health")
                return
            time.sleep(0.05)

    def client(self, token=None):
        return PlatformClient(self.url, token or self.admin or "")

    def user(self, name, role="owner"):
        return self.client(self.client().ask("POST", "/api/users", {"name": name, "role": role})["token"])

    def database(self):
        """The URL of its database, as a worker of another machine has it."""
        password = (self.state / "database.password").read_text()
        port = (self.state / "postgresql" / "postmaster.pid").read_text().splitlines()[3]
        return f"postgresql://opsassay:{password}@127.0.0.1:{port}/opsassay"

    def worker(self, *words):
        command = [
            sys.executable,
            "-m",
            "opsassay",
            "server",
            "worker",
            "--state",
            str(self.state),
            "--server",
            self.url,
            *words,
        ]
        log = (self.state / "further.log").open("ab")
        with log:
            return subprocess.Popen(
                command, env={**os.environ, "OPSASSAY_DATABASE": self.database()}, stdout=log, stderr=log
            )

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(90)
        finally:
            self.process.kill()
            self.process.stderr.close()


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    running = Running(tmp_path_factory.mktemp("platform") / "state")
    yield running
    running.end()


def finished(client, benchmark, timeout_s=120.0):
    """Return the benchmark once it has come to an end."""
    deadline = time.monotonic() + timeout_s
    while (found := client.benchmark(benchmark))["state"] not in ("Finished", "Error"):
        assert time.monotonic() < deadline, [(c["task"], c["bundle"], c["agent"], c["error"]) for c in found["cells"]]
        time.sleep(0.3)
    return found


def bundle(**files):
    """Return a tar of *files*, name to text."""
    kept = io.BytesIO()
    with tarfile.open(fileobj=kept, mode="w") as archive:
        for name, text in files.items():
            content, member = text.encode(), tarfile.TarInfo(name.replace("__", "."))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return kept.getvalue()
