"""What the fuzzers share: a call of the command line that begins nothing, and what every call owes to who typed it.

A call ends where it would begin something outside of itself: a process, a server, a connection, a signal. What is in
`BEGINS` is that, as the interpreter audits it, so that no list of commands has to be right about what they start.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from opsassay.cli import run

BEGINS = {
    "subprocess.Popen": "another program",
    "os.fork": "a worker, a supervisor",
    "os.posix_spawn": "another program",
    "os.exec": "another program",
    "os.system": "another program",
    "os.kill": "the end of a process",
    "socket.bind": "a server, and rules of the kernel by netlink",
    "socket.connect": "a client of a server or of a running system",
    "socket.getaddrinfo": "a client of a server of that name",
}
"""Events of `sys.audit` at which a call has accepted its inputs and begins something live."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
LONGEST_S = 10.0
"""Seconds that a call may take until it ends or begins something."""

FOREIGN = re.compile(
    r"Traceback|Input should|validation error|\[type=|NoneType|has no attribute|invalid literal|<class |object at 0x|"
    r"PosixPath|codec can't|\[Errno|unhashable|not subscriptable|unexpected keyword|pydantic|KeyError|TypeError|"
    r"String should|List should|Tuple should|Dict(ionary)? should|Value error|valid tuple|ValueError"
)
"""Words of Python and of its packages, which say nothing to who typed a command."""


class BeganError(BaseException):
    """A call would begin what `BEGINS` names; no `except Exception` may take it for a failure."""


class OutsideError(BaseException):
    """A call would write outside of the folder that it was given."""


class Done(NamedTuple):
    """How a call ended: its exit code, None where it began something; what it printed; how long that took."""

    code: int | None
    out: str
    err: str
    seconds: float


_armed: list[str] = []
"""The folder that the present call may write to."""


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _armed:
        return
    if event in BEGINS:
        raise BeganError(event)
    writes = event == "os.mkdir" or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES)
    if writes and isinstance(arguments[0], str | bytes):
        path = os.path.abspath(os.fsdecode(arguments[0]))
        if not path.startswith((_armed[0], "/dev/null")) and "__pycache__" not in path:
            raise OutsideError(path)


sys.addaudithook(_audit)


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Stand in *folder*, with the state and the temporary files of OpsAssay below it, and begin nothing."""
    before, variables, temporary = Path.cwd(), dict(os.environ), tempfile.tempdir
    os.chdir(folder)
    state = folder.parent / "s"
    os.environ |= {"OPSASSAY_STATE": str(state), "XDG_CACHE_HOME": str(folder.parent / "cache")}
    tempfile.tempdir = str(folder.parent / "tmp")
    _armed.append(str(folder.parent))
    try:
        yield
    finally:
        _armed.clear()
        tempfile.tempdir = temporary
        os.environ.clear()
        os.environ.update(variables)
        os.chdir(before)


def call(words: Sequence[str], folder: Path) -> Done:
    """Call the command line with *words* in *folder*, until it ends or begins something live."""
    out, err = io.StringIO(), io.StringIO()
    started = time.monotonic()
    code: int | None = None
    with _inside(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        with contextlib.suppress(BeganError):
            code = run(list(words))
    return Done(code, out.getvalue(), err.getvalue(), time.monotonic() - started)


def entries(folder: Path) -> list[tuple[str, int, int]]:
    """Return the path, the size and the time of every file and folder below *folder*, links not followed."""
    found = []
    for above, folders, names in os.walk(folder):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        for name in (*folders, *names):
            path = os.path.join(above, name)
            of = os.lstat(path)
            found.append((path, of.st_size, of.st_mtime_ns if name in names else 0))
    return sorted(found)


def sentences(err: str) -> list[str]:
    """Return the lines of *err* that say something: not how a command is called, and no progress."""
    return [
        line
        for line in err.splitlines()
        if line.strip() and not re.match(r"Usage:|Try |opsassay: |\s|`opsassay ", line)
    ]


class Place:
    """A folder of files for calls, made anew from *origin* when a call has changed it."""

    def __init__(self, origin: Path, where: Path) -> None:
        self.origin, self.folder = origin, where / "w"
        where.mkdir(parents=True, exist_ok=True)
        self._renew()

    def _renew(self) -> None:
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        shutil.copytree(self.origin, self.folder, symlinks=True)
        (self.folder.parent / "tmp").mkdir()
        os.mknod(self.folder / "socket", stat.S_IFSOCK | 0o600)
        self.before = entries(self.folder.parent)

    def problems(self, words: Sequence[str]) -> tuple[Done | None, list[str]]:
        """Call *words* and return how that ended and what is wrong with it, nothing where the contract is held."""
        try:
            done = call(words, self.folder)
        except OutsideError as error:
            self._renew()
            return None, [f"writes to {error}"]
        except BaseException as error:  # noqa: BLE001 - what a user would see as a traceback
            self._renew()
            lines = traceback.format_exception(error)[-4:]
            return None, [f"traceback: {type(error).__name__}: {error}\n{''.join(lines)}"]
        wrong = [] if done.seconds < LONGEST_S else [f"takes {done.seconds:.0f} s"]
        if done.code not in (0, 1, 2, None):
            wrong.append(f"exit status {done.code}")
        if found := FOREIGN.search(done.err):
            wrong.append(f"says {found[0]!r}: {done.err[-400:]}")
        if done.code in (1, 2) and not sentences(done.err):
            wrong.append("says nothing")
        if done.code == 2:
            if len(sentences(done.err)) != 1:
                wrong.append(f"says {len(sentences(done.err))} sentences: {done.err[-600:]}")
            if done.out:
                wrong.append(f"prints {done.out[:200]!r} before it refuses")
        after = entries(self.folder.parent)
        if after != self.before:
            if done.code == 2:
                more = {one[0] for one in after} ^ {one[0] for one in self.before}
                wrong.append(
                    f"leaves {sorted(os.path.relpath(path, self.folder) for path in more)[:6] or 'changed files'}"
                )
            self._renew()
        return done, wrong
