"""A world to break into, and the two ways to let an attempt loose in it: sealed, and as the control unsealed.

``python -m solvers.sandbox.world PART PARTS`` makes some attempts in both ways as whoever runs it, and prints JSON.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import opsassay
from opsassay.solvers.sandbox import Sandbox, SandboxLimits, python_path, sealing_refusal
from opsassay.solvers.sandbox.groups import memory_is_held
from solvers.sandbox.attempts import ATTEMPTS, LIMITS

HERE = Path(__file__).resolve().parent
START = "import sys; sys.path.insert(0, sys.argv[1]); from attempts import main; main()"

VIEW = "time,service\n1,cart\n"


class World:
    """Truth, another run, earlier repeats, a supervisor with services: everything that an agent must not reach."""

    def __init__(self):
        self.secret = secrets.token_hex(16)
        self.folder = Path(tempfile.mkdtemp(prefix="opsassay-world-", dir="/tmp"))
        self.truth = self.folder / "truth/injection.json"
        self.view, self.work = self.folder / "view", self.folder / "runs/own/2/work"
        for folder in ("truth", "view", "runs/other/1", "runs/own/1", "runs/own/2/work", "sockets"):
            (self.folder / folder).mkdir(parents=True)
        self.truth.write_text(json.dumps({"root": self.secret}))
        for run in ("runs/other/1", "runs/own/1"):
            (self.folder / run / "diagnosis.json").write_text(self.secret)
        (self.view / "table.csv").write_text(VIEW)
        self.lent = Path(
            tempfile.mkdtemp(prefix="agent-", dir="/tmp")
        )  # what is lent can be told from the list of mounts
        self.lent.chmod(0o755)
        self.set_user_id = self.lent / "id"
        shutil.copyfile(shutil.which("id"), self.set_user_id)
        self.set_user_id.chmod(0o4755)
        self.folder.chmod(0o755)
        self.keeper = subprocess.Popen(
            [
                sys.executable,
                str(HERE / "keeper.py"),
                str(self.folder),
                self.secret,
                str(self.set_user_id),
                str(self.lent),
                python_path(),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"OPSASSAY_KEY": self.secret},
        )
        self.told = json.loads(self.keeper.stdout.readline())

    def close(self):
        self.keeper.stdin.close()
        self.keeper.stdout.close()
        try:
            self.keeper.wait(10)
        except subprocess.TimeoutExpired:
            self.keeper.kill()
            self.keeper.wait()
        shutil.rmtree(self.folder)
        shutil.rmtree(self.lent)

    def facts(self, *, sealed):
        home = str(Path("~").expanduser())
        entries = [path.name for path in Path(home).iterdir()] if os.access(home, os.R_OK) else []
        return {
            **self.told,
            "sealed": sealed,
            "secret": self.secret,
            "root": str(self.folder),
            "truth": str(self.truth),
            "other_run": str(self.folder / "runs/other/1/diagnosis.json"),
            "earlier": str(self.folder / "runs/own/1/diagnosis.json"),
            "home": home,
            "home_entry": next((name for name in sorted(entries) if f"/{name}/" not in sys.base_prefix), None),
            "package": str(Path(opsassay.__file__).parent),
            "view": "/view" if sealed else str(self.view),
            "socket_folder": "/run/opsassay" if sealed else str(self.folder / "sockets"),
            "hostname": socket.gethostname(),
            "name_servers": name_servers(),
            "own_address": own_address(),
            "set_user_id": "/agent/id" if sealed else str(self.set_user_id),
            "mounted_folder": "/agent/folder" if sealed else str(self.lent),
            "interpreter": python_path(),
        }

    def sealed(self, name):
        """Make the attempt in a seal; return what it told, or how it was ended."""
        with self.handing_over():
            ended = Sandbox(
                self.view,
                self.fresh_work(),
                {"tools": self.folder / "sockets/tools.sock"},
                {8000: "tools"},
                SandboxLimits(wall_clock_s=60, **LIMITS[name]),
                {"HOME": "/work"},
                readable={
                    "/agent/attempts": HERE / "attempts",
                    "/agent/id": self.set_user_id,
                    "/agent/folder": self.lent,
                },
            ).run(command(python_path(), "/agent", name, self.facts(sealed=True)))
        if not ended.stdout_tail and LIMITS[name] and ended.limit:
            return {"reached": False, "held": ended.reason}
        return parse(ended.stdout_tail, f"{ended.reason}: {ended.stderr_tail}")

    def unsealed(self, name):
        """Make the attempt as a plain child of this process, as a runner without a seal would; return what it told."""
        with self.handing_over():
            done = subprocess.run(
                command(python_path(), str(HERE), name, self.facts(sealed=False)),
                cwd=self.fresh_work(),
                close_fds=False,
                stdin=None,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        return parse(done.stdout, done.stderr)

    def fresh_work(self):
        shutil.rmtree(self.work)
        self.work.mkdir()
        return self.work

    @contextmanager
    def handing_over(self):
        """Have what careless runners hand on: a key in the environment, an open descriptor, something on standard input."""
        descriptor, kept = os.open(self.truth, os.O_RDONLY), os.dup(0)
        reader, writer = os.pipe()
        os.write(writer, self.secret.encode())
        os.close(writer)
        os.set_inheritable(descriptor, True)  # noqa: FBT003 - positional only
        os.dup2(reader, 0)
        os.environ["OPSASSAY_TEST_KEY"] = self.secret
        try:
            yield
        finally:
            del os.environ["OPSASSAY_TEST_KEY"]
            os.dup2(kept, 0)
            for left in (descriptor, kept, reader):
                os.close(left)


def command(python, folder, name, facts):
    return [python, "-I", "-S", "-c", START, folder, name, json.dumps(facts)]


def parse(stdout, otherwise):
    try:
        return json.loads(stdout)
    except ValueError:
        return {"broken": f"no answer: {otherwise}"}


def name_servers():
    with suppress(OSError):
        rows = [line.split() for line in Path("/etc/resolv.conf").read_text().splitlines()]
        return [row[1] for row in rows if row[:1] == ["nameserver"] and "." in row[1]]
    return []


def own_address():
    """Return an address of this machine that is not its loopback's, or None."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        return probe.getsockname()[0]


def left_running(token, within_s=0.0):
    """Return the pids of this machine's processes with *token* in their command line, once there are none or time is up."""
    give_up = time.monotonic() + within_s
    while True:
        found = []
        for folder in Path("/proc").iterdir():
            with suppress(OSError):
                if folder.name.isdigit() and token.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
        if not found or time.monotonic() >= give_up:
            return found
        time.sleep(0.02)


def some_attempts(part, parts):
    """Return what came of the attempts of one *part* of *parts* in both ways; refusal if this machine gives no seal."""
    if refusal := sealing_refusal():
        return {"refusal": refusal}
    world = World()
    try:
        told = {name: [world.sealed(name), world.unsealed(name)] for name in list(ATTEMPTS)[part::parts]}
        return {"attempts": told, "memory_is_held": memory_is_held()}
    finally:
        world.close()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    print(json.dumps(some_attempts(int(sys.argv[1]), int(sys.argv[2]))))
