"""The interface of the sandbox: the command to run, its files, sockets and limits, and how it ended."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from opsassay.core.errors import StartError, UserError
from opsassay.solvers.sandbox.members import remove
from opsassay.solvers.sandbox.tails import Tail

_START = "import sys; sys.path.insert(0, sys.argv[1]); from opsassay.solvers.sandbox.supervisor import main; main()"
_PACKAGE = Path(__file__).resolve().parents[2]
_ENDING_S = 30.0
_OWN_PLACES = ("/proc", "/dev", "/view", "/run", "/etc")


@dataclass(frozen=True)
class SandboxLimits:
    """The limits of one command with all the processes that it starts.

    *memory_bytes* limits all processes together where a cgroup can be made; elsewhere it bounds the address space of each
    process, unless *address_space_bytes* or *data_bytes* does; *data_bytes* bounds each process's writable private memory,
    for programs that reserve more addresses than they use, as Go's do. *work_bytes* and *work_files* bound /work, /tmp
    and /dev/shm each; *collect_bytes* the files copied out of /work; *output_bytes* the recorded end of each stream.
    """

    wall_clock_s: float = 600.0
    memory_bytes: int = 2 * 2**30
    cpu_cores: float | None = None
    address_space_bytes: int | None = None
    data_bytes: int | None = None
    processes: int = 256
    open_files: int = 1024
    file_bytes: int = 256 * 2**20
    work_bytes: int = 512 * 2**20
    work_files: int = 20_000
    collect_bytes: int = 64 * 2**20
    output_bytes: int = 64 * 2**10


@dataclass(frozen=True)
class Ended:
    """How a sandboxed command ended: with an *exit_code* or by a *signal*, and at which *limit*, if any.

    *reason* is one sentence. *left_behind* names entries of /work that were not copied out, and why. A command that could
    not start (*started* False) has exit code 127, as in a shell.
    """

    exit_code: int | None
    signal: str | None
    seconds: float
    reason: str
    stdout_tail: str
    stderr_tail: str
    limit: str | None = None
    left_behind: tuple[str, ...] = ()
    started: bool = True


@dataclass(frozen=True)
class Sandbox:
    """The files, sockets, environment and limits of a sandboxed command; it gets nothing else.

    *view* is copied to /view, read-only; *work* to /work, its home, whose files are copied back into *work* at the end.
    *sockets* are offered as /run/opsassay/NAME.sock, and *ports* of 127.0.0.1 lead to the named socket. *environment* is
    the whole environment. *readable* shows more of the machine: path inside to file or folder. *hidden* folders and files
    are not shown, even below a shown folder. The files of the folder *host* are placed over the root: its etc/fstab is
    /etc/fstab inside. *root* is a folder whose content replaces the machine's system folders.
    """

    view: Path
    work: Path
    sockets: Mapping[str, Path]
    ports: Mapping[int, str]
    limits: SandboxLimits
    environment: Mapping[str, str]
    readable: Mapping[str, Path] = field(default_factory=dict)
    hidden: Sequence[Path] = ()
    host: Path | None = None
    root: Path | None = None

    def run(self, command: Sequence[str]) -> Ended:
        """Run *command* in the sandbox; return how it ended, once all of its processes have.

        A command that cannot start ends with exit code 127, as in a shell. Raises UserError for invalid settings,
        StartError when no sandbox can be made.
        """
        from opsassay.solvers.sandbox.groups import make_group  # listings load this module and seal nothing

        reader, writer = os.pipe()
        with os.fdopen(reader, "rb") as report:
            try:
                plan = self._make_plan(command, writer)
                plan["group"] = make_group(self.limits.cpu_cores, self.limits.memory_bytes)
                warden = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _START, str(_PACKAGE.parent)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd="/",
                    env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                    pass_fds=(writer,),
                    start_new_session=True,
                )
            finally:
                os.close(writer)
            try:
                return self._watch_supervisor(warden, report, plan)
            finally:
                remove(plan["group"])  # the warden has, unless it was killed

    def _watch_supervisor(self, warden: subprocess.Popen[bytes], report: IO[bytes], plan: dict[str, Any]) -> Ended:
        """Send *plan* to the supervisor process *warden*, read its *report* and return how the command ended."""
        assert warden.stdin is not None
        assert warden.stdout is not None
        assert warden.stderr is not None
        tails = [Tail(stream, self.limits.output_bytes) for stream in (warden.stdout, warden.stderr)]
        try:
            warden.stdin.write(json.dumps(plan).encode() + b"\n")
            warden.stdin.flush()
            payload = report.read()
        finally:
            warden.stdin.close()  # also on Ctrl-C: it ends the seal
            try:
                warden.wait(_ENDING_S)
            except subprocess.TimeoutExpired:  # pragma: no cover - a kernel that does not end a process
                warden.kill()
                warden.wait()
            stdout, stderr = (tail.text() for tail in tails)
        if not payload:
            raise StartError(f"The seal's warden ended with {warden.returncode} and without a report.", stderr)
        return _describe_end(json.loads(payload), self.limits, stdout, stderr)

    def _make_plan(self, command: Sequence[str], report: int) -> dict[str, Any]:
        """Return the supervisor's JSON-ready instructions to run *command* and to write its report to *report*."""
        from opsassay.solvers.sandbox.collect import first_odd
        from opsassay.solvers.sandbox.groups import memory_is_held

        if not command:
            raise UserError("There is no command to seal.")
        if unknown := sorted(set(self.ports.values()) - set(self.sockets)):
            raise UserError(f"Port for the socket {unknown[0]!r}, which is not among {sorted(self.sockets)}.")
        for name in self.sockets:
            if not name.replace("-", "").replace("_", "").isalnum():
                raise UserError(f"A socket's name is letters, digits, '-' and '_', not {name!r}.")
        for place in self.readable:
            path = Path(place)
            if not path.is_absolute() or ".." in path.parts or path.parts[:2] in {Path(p).parts for p in _OWN_PLACES}:
                raise UserError(f"Nothing can be shown as {place!r}; choose an absolute path such as /agent.")
        for folder in (self.view, self.work, *([self.host] if self.host else [])):
            if odd := first_odd(folder):
                raise UserError(
                    f"{odd} is neither a plain file nor a folder; copy what it leads to before the folder is sealed."
                )
        limits = asdict(self.limits)
        if limits["address_space_bytes"] is None and limits["data_bytes"] is None and not memory_is_held():
            limits["address_space_bytes"] = limits["memory_bytes"]
        return {
            "runner": os.getpid(),
            "report": report,
            "command": list(command),
            "environment": dict(self.environment),
            "view": str(self.view.resolve(strict=True)),
            "work": str(self.work.resolve(strict=True)),
            "sockets": {name: str(path.absolute()) for name, path in self.sockets.items()},
            "ports": {str(port): name for port, name in self.ports.items()},
            "readable": {place: str(path.resolve(strict=True)) for place, path in self.readable.items()},
            "host": str(self.host.resolve(strict=True)) if self.host else None,
            "root": str(self.root.resolve(strict=True)) if self.root else None,
            "hidden": sorted({str(path.resolve()) for path in (*self.hidden, *own_hidden())}),
            "python": None if sys.base_prefix in {"/usr", "/usr/local", "/"} else os.path.realpath(sys.base_prefix),
            "limits": limits,
            "group": [],
        }


def python_path() -> str:
    """Return the path of this process's base interpreter, not that of its virtual environment; sandboxes have it."""
    names = (f"python{sys.version_info.major}.{sys.version_info.minor}", "python3", "python")
    found = (Path(sys.base_prefix, "bin", name) for name in names)
    return str(next((path for path in found if path.exists()), Path(sys.executable)))


def sealing_refusal() -> str | None:
    """Return why no sandbox can be made here and what to do about it; None when a trial sandbox worked."""
    from opsassay.solvers.sandbox.seccomp import machine_refusal

    return machine_refusal() or _why_sealing_fails()


@functools.cache
def _why_sealing_fails() -> str | None:
    """Run a trial command in a sandbox; return why it did not work, None when it did."""
    with tempfile.TemporaryDirectory(prefix="opsassay-") as folder:
        view, work = Path(folder, "view"), Path(folder, "work")
        view.mkdir()
        work.mkdir()
        try:
            ended = Sandbox(view, work, {}, {}, SandboxLimits(wall_clock_s=20), {}).run(
                [python_path(), "-I", "-S", "-c", ""]
            )
        except StartError as error:
            return " ".join(str(error).split())
    return (
        None
        if ended.exit_code == 0
        else f"A trial command in the seal did not work: {ended.reason} {ended.stderr_tail}"
    )


def own_hidden() -> list[Path]:
    """Return the folders that agents must not see: OpsAssay's package, its environment, site-packages."""
    prefixes = {sys.base_prefix, "/usr", "/usr/local"}
    packages = [path for prefix in prefixes for path in Path(prefix).glob("lib/python*/*-packages")]
    return [_PACKAGE, *packages, *([Path(sys.prefix)] if sys.prefix != sys.base_prefix else [])]


def _describe_end(payload: dict[str, Any], limits: SandboxLimits, stdout: str, stderr: str) -> Ended:
    """Return how the command ended from the supervisor's report; raises StartError when it had no sandbox."""
    if "refused" in payload:
        raise StartError(
            f"This machine gives no seal: {payload['refused']}; run as root (in a container with CAP_SYS_ADMIN and an "
            "unmasked /proc), or allow user namespaces (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, "
            "kernel.apparmor_restrict_unprivileged_userns) on Linux 5.12 or newer."
        )
    if "failed" in payload:
        raise StartError(f"The seal cannot be made: {payload['failed']}.", stderr)
    if "unstarted" in payload:
        reason = f"the command cannot start in the seal: {payload['unstarted']}"
        left = tuple(payload.get("left", ()))
        return Ended(127, None, payload["seconds"], reason, stdout, stderr, left_behind=left, started=False)
    code = os.waitstatus_to_exitcode(payload["status"]) if "status" in payload else None
    name = signal_name(-code) if code is not None and code < 0 else None
    code = None if name else code
    limit = payload.get("limit")
    if limit is None and name == "SIGXFSZ":
        limit = "file_bytes"
    if limit == "wall_clock_s":
        name, reason = "SIGKILL", f"killed at the limit of {limits.wall_clock_s:g} s of wall clock"
    elif limit == "memory_bytes":
        reason = f"processes were killed at the limit of {limits.memory_bytes} bytes of memory"
    elif limit == "file_bytes":
        reason = f"killed at the limit of {limits.file_bytes} bytes in one file"
    elif name:
        reason = f"killed by {name}"
    else:
        reason = f"ended with exit code {code}" if code is not None else "the seal was ended from outside"
    return Ended(code, name, payload["seconds"], reason, stdout, stderr, limit, tuple(payload.get("left", ())))


def signal_name(number: int) -> str:
    """Return the name of signal *number*, "signal N" for a real-time one."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
