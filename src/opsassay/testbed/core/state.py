"""The state of a running system on disk, and the search for its processes.

``$OPSASSAY_STATE`` or ``~/.local/state/opsassay`` has ``systems/<name>/``: the supervisor's lock and socket, the undo
journal, logs, the ledger, the stores' data. Every process that OpsAssay starts has the environment variable
``OPSASSAY_SYSTEM``, by which leftovers are found.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from opsassay.core.errors import OperationError, UserError
from opsassay.core.schema.json_lines import append_object

MARKER = "OPSASSAY_SYSTEM"
GROUPS_FILE = "groups.json"
UNDO_FILE = "undo.json"
UNDO_S, UNDO_ATTEMPTS, UNDO_AGAIN_AFTER_S = 120.0, 3, 2.0
LOOKS, LOOK_S = 5, 0.02
SOCKET_PATH_LIMIT = 100  # sun_path is 108 bytes on Linux, 104 on macOS


def state_root() -> Path:
    """Return the folder of all systems' state; raises UserError when its path is too long for Unix sockets."""
    base = (
        os.environ.get("OPSASSAY_STATE")
        or os.environ.get("XDG_STATE_HOME", str(Path.home() / ".local" / "state")) + "/opsassay"
    )
    root = Path(base).absolute()
    if len(str(root)) > SOCKET_PATH_LIMIT - 45:
        raise UserError(
            f"The state folder {root} is too long a path for Unix sockets; set OPSASSAY_STATE to a shorter one."
        )
    return root


def cache_root() -> Path:
    """Return the folder of files that may be deleted at any time (initialised database folders)."""
    return Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "opsassay"


@dataclass(frozen=True)
class SystemState:
    """The folder of one running system called *name*."""

    name: str
    dir: Path

    @classmethod
    def for_system(cls, name: str) -> SystemState:
        """Return the state of the system *name*, whether or not it exists; raises UserError for an invalid name."""
        if not name or not all(c.isalnum() or c in "-_." for c in name) or name.startswith("."):
            raise UserError(f"{name!r} is no name for a running system; use letters, digits, '-' and '_'.")
        state = cls(name, state_root() / "systems" / name)
        if len(str(state.socket)) > SOCKET_PATH_LIMIT:
            raise UserError(f"{name!r} is too long a name for a running system; Unix sockets have short paths.")
        return state

    @property
    def socket(self) -> Path:
        """The path of the supervisor's control socket."""
        return self.dir / "supervisor.sock"

    @property
    def management_socket(self) -> Path:
        """The path of the socket at which the system's processes report and take commands."""
        return self.dir / "manage.sock"

    @property
    def journal(self) -> Path:
        """The path of the undo journal."""
        return self.dir / "journal.jsonl"

    @property
    def receiver_dir(self) -> Path:
        """The folder of the OTLP receiver's state."""
        return self.dir / "receiver"

    @property
    def ledger_dir(self) -> Path:
        """The folder of the ledger, what faults caused per process; it is part of the hidden ground truth."""
        return self.dir / "ledger"

    @property
    def failure(self) -> Path:
        """The path of the file that says why the supervisor gave up."""
        return self.dir / "failed.json"

    def why_it_failed(self) -> str | None:
        """Return the message in the supervisor's failure file, None without a readable one."""
        try:
            return str(json.loads(self.failure.read_text())["message"])
        except (OSError, ValueError, KeyError):
            return None

    def log(self, process: str) -> Path:
        """Return the path of the log of *process*."""
        return self.dir / "logs" / f"{process}.log"

    @property
    def lock(self) -> Path:
        """The lock file that a running supervisor holds; it lies outside of the folder, which may be deleted."""
        return self.dir.with_name(f".{self.name}.lock")

    def running(self) -> bool:
        """Return whether a supervisor, or a command that is about to start one, holds the lock."""
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # those who look do not shut each other out
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def write(self, name: str, payload: dict[str, Any]) -> None:
        """Write *payload* as the JSON file *name* atomically."""
        temporary = self.dir / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(payload))
        temporary.replace(self.dir / name)


def acquire_lock(state: SystemState) -> int | None:
    """Lock the system of *state* for this process; return the file descriptor, None when it is locked already."""
    # Not `folder_lock`, which ends with its block: the held descriptor is handed to the supervisor that is started.
    state.lock.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for patience in (*[LOOK_S] * LOOKS, 0.0):  # somebody who only looks is gone in a moment
        descriptor = os.open(state.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(state.lock, descriptor):
                return descriptor
        except BlockingIOError:
            pass
        os.close(descriptor)
        time.sleep(patience)
    return None


def release_lock(state: SystemState, descriptor: int) -> None:
    """Delete the lock file of the system and close *descriptor*, by which this process holds the lock."""
    state.lock.unlink(missing_ok=True)
    os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether *path* is still the file that is open as *descriptor*."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def all_states() -> list[SystemState]:
    """Return the state of every system that has left a folder, running or not."""
    systems = state_root() / "systems"
    return [SystemState(p.name, p) for p in sorted(systems.iterdir()) if p.is_dir()] if systems.exists() else []


def note_process(state: SystemState, pid: int) -> None:
    """Record in the state folder that the process *pid* belongs to the system, for `marked_processes`."""
    try:
        noted = {"pid": pid, "created": psutil.Process(pid).create_time()}
    except psutil.NoSuchProcess:
        return
    append_object(state.dir / "processes.jsonl", noted)


def note_groups(state: SystemState, folders: Iterable[Path]) -> None:
    """Record in the state folder the control groups *folders* that the system is about to make."""
    state.write(GROUPS_FILE, {"folders": [str(folder) for folder in folders]})


def noted_groups(state: SystemState) -> list[Path]:
    """Return the control group folders that `note_groups` recorded, [] without a record."""
    try:
        return [Path(folder) for folder in json.loads((state.dir / GROUPS_FILE).read_text())["folders"]]
    except FileNotFoundError:
        return []


def remove_groups(state: SystemState) -> None:
    """Kill the processes in the recorded control groups, and remove these groups."""
    from opsassay.testbed.kernel.cgroups import remove_below  # pages read states and remove nothing

    for folder in noted_groups(state):
        remove_below(folder)


def note_undo(state: SystemState, command: Sequence[str]) -> None:
    """Record the *command* that undoes changes outside of the system's processes and control groups."""
    state.write(UNDO_FILE, {"words": list(command)})


def undo_outside(state: SystemState) -> None:
    """Run the command that `note_undo` recorded, if any; raises OperationError when it fails repeatedly."""
    path = state.dir / UNDO_FILE
    if not path.exists():
        return
    words = json.loads(path.read_text())["words"]
    failure = ""
    for _ in range(UNDO_ATTEMPTS):  # the guard of a killed system may be at it too
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=UNDO_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = str(error)
        else:
            if done.returncode == 0:
                return
            failure = (done.stderr.strip().splitlines() or ["it says no reason"])[-1]
        time.sleep(UNDO_AGAIN_AFTER_S)
    raise OperationError(f"System {state.name}: `{' '.join(words)}` fails: {failure}; run it by hand.")


def leftovers(state: SystemState, groups: Iterable[Path]) -> list[str]:
    """Return a sentence for each process, group of *groups*, folder or lock that still exists of a removed system."""
    found = [f"process {process.pid} still runs" for process in marked_processes(state)]
    found += [f"the control group {folder} is still there" for folder in groups if folder.exists()]
    found += [f"the folder {state.dir} is still there"] if state.dir.exists() else []
    return found + (["its lock is still held"] if state.running() else [])


def marked_processes(state: SystemState) -> list[psutil.Process]:
    """Return the running processes of this system, by their environment or the record of pids, without this process."""
    written = _written_down(state)
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.create_time() == written.get(process.pid) or process.environ().get(MARKER) == str(state.dir)
            if ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue  # another user's process, or one that has just ended
    return found


def _written_down(state: SystemState) -> dict[int, float]:
    """Return {pid: creation time} of the processes that `note_process` recorded; an incomplete last line is ignored."""
    path = state.dir / "processes.jsonl"
    whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
    return {entry["pid"]: entry["created"] for entry in map(json.loads, whole.splitlines())}


def kill_all(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Kill *processes* with all descendants and wait; return those still alive after 5 s."""
    family: dict[int, psutil.Process] = {}
    for process in processes:
        try:
            family.update({p.pid: p for p in [process, *process.children(recursive=True)]})
        except psutil.NoSuchProcess:
            continue
    for process in family.values():
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(list(family.values()), timeout=5.0)
    return [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def clear_leftovers(state: SystemState) -> int:
    """Kill and remove what a killed supervisor left; return the number of processes, or raise OperationError."""
    for _ in range(3):  # a fork may have been on its way while we looked
        processes = marked_processes(state)
        if not processes:
            break
        alive = kill_all(processes)
        if alive:
            raise OperationError(
                f"System {state.name}: process {alive[0].pid} does not end; end it by hand, then retry."
            )
        time.sleep(0.05)
    undo_outside(state)
    remove_groups(state)
    shutil.rmtree(state.dir, ignore_errors=True)
    return len(processes)
