"""Solvers that misbehave, each in one way; run by name, ``evals.solvers:Class``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

from opsassay.core.errors import DatapackError
from opsassay.core.schema.diagnosis import Diagnosis, RankedService, RootCauseClaim


class Solver:
    source = "tests"
    cost = "none"
    configuration: ClassVar[dict[str, object]] = {}

    @property
    def name(self) -> str:
        return type(self).__name__

    def diagnose(self, _view):
        raise NotImplementedError


class Honest(Solver):
    def diagnose(self, view):
        return Diagnosis(root_causes=(RootCauseClaim(service=view.services()[0]),))


class Raises(Solver):
    def diagnose(self, _view):
        raise ZeroDivisionError("by hand")


class Complains(Solver):
    def diagnose(self, _view):
        raise DatapackError("The table has no legs; give it some.")


class Exits(Solver):
    def diagnose(self, _view):
        sys.exit(3)


class Vanishes(Solver):
    def diagnose(self, _view):
        os._exit(0)


class Dies(Solver):
    def diagnose(self, _view):
        os.kill(os.getpid(), signal.SIGKILL)


class Hangs(Solver):
    def diagnose(self, _view):
        while True:
            time.sleep(1)


class AnswersText(Solver):
    def diagnose(self, _view):
        return "it was the cart"


class AnswersNoNumber(Solver):
    def diagnose(self, _view):
        return Diagnosis(ranking=(RankedService(service="cart", score=float("nan")),))


class Writes(Solver):
    text = ""

    def diagnose(self, _view):
        Path(sys.argv[2]).write_text(self.text)
        os._exit(0)


class WritesGarbage(Writes):
    text = '{"diagnosis": {"root_causes": ['


class WritesList(Writes):
    text = "[]"


class WritesUnknownKind(Writes):
    text = json.dumps({"diagnosis": {"root_causes": [{"service": "cart", "fault_kind": "gremlins"}]}})


class WritesALot(Writes):
    text = " " * (16 * 2**20 + 1)


class LinksItsAnswer(Solver):
    def diagnose(self, _view):
        Path(sys.argv[2]).symlink_to("/etc/hostname")
        os._exit(0)


class LeavesAChild(Solver):
    def diagnose(self, _view):
        child = subprocess.Popen(["sleep", "600"])  # keeps running
        print(child.pid, flush=True)
        child.returncode = 0  # no warning about a child that is left behind
        return Diagnosis()


class Vandal(Solver):
    def diagnose(self, view):
        for file in view.path.iterdir():
            file.write_bytes(b"")
        return Diagnosis()


class Spy(Solver):
    """Tell all that a process can easily find out about where it is."""

    def diagnose(self, view):
        here = Path.cwd()
        seen = {
            "argv": sys.argv,
            "environ": dict(os.environ),
            "cwd": str(here),
            "view": str(view.path.resolve()),
            "tree": sorted(str(path) for path in view.path.resolve().parent.rglob("*")),
            "parents": {str(folder): sorted(p.name for p in folder.iterdir()) for folder in here.parents},
            "links": {str(p): str(p.readlink()) for p in here.rglob("*") if p.is_symlink()},
            "descriptors": _open_files(),
            "command": Path("/proc/self/cmdline").read_text(),
            "incident": (view.path / "incident.json").read_text(),
            "other": sorted(p.name for p in view.path.iterdir()),
            "inodes_shared": [p.name for p in view.path.iterdir() if p.stat().st_nlink > 1],
        }
        return Diagnosis(protocol=seen)


def _open_files() -> list[str]:
    descriptors = list(Path("/proc/self/fd").iterdir())
    return [str(link.readlink()) for link in descriptors if os.path.lexists(link)]
