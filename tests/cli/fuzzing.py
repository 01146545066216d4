"""What the fuzzers share: a call of the command line that begins nothing, and what every call owes to who typed it.

A call ends where it would begin something outside of itself: a process, a server, a connection, a signal. What is in
`BEGINS` is that, as the interpreter audits it, so that no list of commands has to be right about what they start.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import Phase

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
LONGEST_S = 30.0
"""Seconds of a processor that a call may take until it ends or begins something."""

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
        path = str(Path(os.fsdecode(arguments[0])).absolute())
        if not path.startswith((_armed[0], os.devnull)) and "__pycache__" not in path:
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
    started = time.process_time()  # a busy machine makes nothing slow
    code: int | None = None
    began = contextlib.suppress(BeganError)
    with _inside(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), began:
        code = run(list(words))
    return Done(code, out.getvalue(), err.getvalue(), time.process_time() - started)


def entries(folder: Path) -> list[tuple[str, int, int]]:
    """Return the path, the size and the time of every file and folder below *folder*, links not followed."""
    found = []
    for above, folders, names in os.walk(folder):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        for name in (*folders, *names):
            path = f"{above}/{name}"
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


def broken_rules(done: Done) -> list[str]:
    """Return which rules of exit status, words and time a call that is *done* has broken."""
    said = sentences(done.err)
    wrong = [] if done.seconds < LONGEST_S else [f"takes {done.seconds:.0f} s"]
    if done.code not in (0, 1, 2, None):
        wrong.append(f"exit status {done.code}")
    if (found := FOREIGN.search(done.err)) and "cannot be imported" not in done.err:
        wrong.append(f"says {found[0]!r}: {done.err[-400:]}")
    if done.code == 1 and not said and not done.out:
        wrong.append("says nothing")
    if done.code == 2 and len(said) != 1:
        wrong.append(f"says {len(said)} sentences: {done.err[-600:]}")
    if done.code == 2 and done.out:
        wrong.append(f"prints {done.out[:200]!r} before it refuses")
    return wrong


class Place:
    """A folder of files for calls; what a call changes is put back from *origin*."""

    def __init__(self, origin: Path, where: Path) -> None:
        self.origin, self.folder = origin, where / "w"
        shutil.copytree(origin, self.folder, symlinks=True)
        (where / "tmp").mkdir()
        os.mknod(self.folder / "socket", stat.S_IFSOCK | 0o600)
        self.before = entries(where)

    def _changed(self) -> set[Path]:
        """Return what a call has left or changed."""
        return {Path(one[0]) for one in set(entries(self.folder.parent)) ^ set(self.before)}

    def _put_back(self, changed: set[Path]) -> None:
        within = {path.relative_to(self.folder).parts[:1] for path in changed if path.is_relative_to(self.folder)}
        for top in {self.folder.joinpath(*parts) for parts in within if parts}:
            shutil.rmtree(top) if top.is_dir() and not top.is_symlink() else top.unlink(missing_ok=True)
            origin = self.origin / top.name
            if origin.is_dir() and not origin.is_symlink():
                shutil.copytree(origin, top, symlinks=True)
            elif origin.is_symlink() or origin.exists():
                shutil.copy2(origin, top, follow_symlinks=False)
        for name in ("s", "cache", "tmp"):
            shutil.rmtree(self.folder.parent / name, ignore_errors=True)
        (self.folder.parent / "tmp").mkdir()
        self.before = entries(self.folder.parent)

    def problems(self, words: Sequence[str]) -> tuple[Done | None, list[str]]:
        """Call *words* and return how that ended and what is wrong with it, nothing where the contract is held."""
        done, wrong = None, []
        try:
            done = call(words, self.folder)
        except OutsideError as error:
            if not str(error).startswith("/sys/fs/cgroup"):  # asking what the machine has begins something
                wrong.append(f"writes to {error}")
        except BaseException as error:  # noqa: BLE001 - what a user would see as a traceback
            lines = traceback.format_exception(error)[-4:]
            wrong.append(f"traceback: {type(error).__name__}: {error}\n{''.join(lines)}")
        changed = self._changed()
        if done is not None:
            wrong += broken_rules(done)
            if changed and done.code == 2:
                names = sorted(os.path.relpath(path, self.folder) for path in changed)
                wrong.append(f"leaves or changes {names[:6]}")
        if changed:
            self._put_back(changed)
        return done, wrong

    def problems_with(self, file: str, content: bytes, words: Sequence[str]) -> tuple[Done | None, list[str]]:
        """Return as `problems`, with *content* in *file*, which is put back then."""
        path = self.folder / file
        path.write_bytes(content)
        self.before = entries(self.folder.parent)
        found = self.problems(words)
        path.unlink(missing_ok=True)
        if (self.origin / file).exists():
            shutil.copy2(self.origin / file, path)
        self.before = entries(self.folder.parent)
        return found


DRAWN = (Phase.explicit, Phase.reuse, Phase.generate)
TIMES = 10 if "HOSTILE_DRAWS" in os.environ else 1
"""Draws are small as they are: making a smaller one of what failed would take minutes."""

Choose = Callable[[Sequence[Any]], Any]
"""A draw of one of several."""

DEEP: list[Any] = []
for _ in range(80):
    DEEP = [DEEP]
ODD_VALUES = [
    None, True, False, 0, -1, 1, 0.5, 1e308, 10**40, -(10**19), float("nan"), float("inf"), "", " ", "x", "x" * 5000,
    "nan", "1e400", "\0", "\x1b[31m", "a\nb", "../..", "/etc/hostname", "http://[", "{0}", "%s", [], {}, [[]], [None],
    {"a": 1}, {"": None}, {"x" * 300: 1}, ["x"] * 300, DEEP, "2026-01-01", "*", "shop", "cart",
]  # fmt: skip


def _nodes(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of every value in *value*."""
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from _nodes(one, (*at, key))


def mutated(value: Any, choose: Choose) -> Any:
    """Return a copy of *value*, as YAML or JSON has it, with one to three odd changes."""
    value = copy.deepcopy(value)
    for _ in range(choose([1, 1, 2, 3])):
        *above, last = choose(list(_nodes(value))) or (None,)
        parent = value
        for key in above:
            parent = parent[key]
        if last is None:
            value = copy.deepcopy(choose(ODD_VALUES)) if choose(range(4)) == 0 else value
        elif (act := choose(["odd", "odd", "odd", "drop", "rename", "twice", "wrap"])) == "odd":
            parent[last] = copy.deepcopy(choose(ODD_VALUES))
        elif act == "wrap":
            parent[last] = choose([[parent[last]], {"x": parent[last]}])
        elif act == "twice" and isinstance(parent, list):
            parent.append(parent[last])
        elif act == "twice":
            parent[f"{last}2"] = parent[last]
        elif isinstance(parent, dict) and act == "rename":
            parent[f"{last}x"] = parent.pop(last)
        else:
            del parent[last]
    return value
