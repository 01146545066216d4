"""Container images of agents: found at a local container engine and unpacked once, for the sandbox to show their files.

No container runs: the agent's program starts in the usual sandbox, with the image's files as its root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from opsassay.core.errors import OperationError, UserError

ENGINES = ("docker", "podman")
"""Commands of container engines, in the order in which they are asked for an image."""
CONTAINER = "opsassay-unpacking-"
"""Prefix of the names of the containers from which images are unpacked; the process id follows. They never run."""
ASK_S, UNPACK_S = 20.0, 900.0
MOST_BYTES = 20 * 2**30
"""The size of its files above which an image is not unpacked."""


@dataclass(frozen=True)
class ContainerImage:
    """An image of *engine*: its name, its *id* (the digest of its configuration) and the variables that it sets."""

    engine: str
    name: str
    id: str
    environment: Mapping[str, str]

    def unpacked(self, cache: Path) -> Path:
        """Return the folder below *cache* with the image's files, which the first call unpacks.

        All users may read the files; devices and set-user-id bits are dropped. Raises OperationError if the engine fails,
        UserError for an image that is too large.
        """
        folder = cache / "images" / self.id
        if folder.is_dir():
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(self.engine, folder.parent)
        made = Path(tempfile.mkdtemp(prefix=f".{os.getpid()}-", dir=folder.parent))
        try:
            self._unpack_into(made)
            made.chmod(0o755)
            try:
                made.rename(folder)
            except OSError:  # another run was first
                if not folder.is_dir():
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)
        return folder

    def _unpack_into(self, folder: Path) -> None:
        """Export the image's files into *folder* by a container that is created, never started, and removed."""
        container = f"{CONTAINER}{folder.name[1:]}"
        self._run_engine("create", "--name", container, "--network", "none", self.id, "none")
        try:
            with subprocess.Popen(
                [self.engine, "export", container], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            ) as exporting:
                assert exporting.stdout is not None
                try:
                    with tarfile.open(fileobj=exporting.stdout, mode="r|") as archive:
                        self._extract_archive(archive, folder)
                except tarfile.TarError as error:
                    raise OperationError(f"{self.engine} did not export the image {self.name}: {error}.") from error
                finally:
                    exporting.kill()
        finally:
            subprocess.run([self.engine, "rm", "-f", container], capture_output=True, timeout=UNPACK_S, check=False)

    def _extract_archive(self, archive: tarfile.TarFile, folder: Path) -> None:
        """Extract *archive*, except device files, into *folder*; raises UserError beyond `MOST_BYTES`."""
        size = 0
        for member in archive:
            size += member.size
            if size > MOST_BYTES:
                raise UserError(f"The image {self.name} has more than {MOST_BYTES:,} bytes; make a smaller one.")
            if not member.isdev():
                archive.extract(member, folder, filter=_safe_member)

    def _run_engine(self, *words: str) -> None:
        """Run docker or podman with *words*; raises OperationError when it fails or takes too long."""
        try:
            done = subprocess.run([self.engine, *words], capture_output=True, timeout=UNPACK_S, check=False, text=True)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OperationError(f"{self.engine} does not unpack the image {self.name}: {error}.") from error
        if done.returncode:
            why = " ".join(done.stderr.split())[-300:]
            raise OperationError(f"{self.engine} does not unpack the image {self.name}: {why}.")


def _safe_member(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
    """Return *member* for extraction: inside *path*, owned by this user, readable by all, never set-user-id."""
    kept = tarfile.tar_filter(member, path)
    mode = (kept.mode or 0) & 0o755 | (0o755 if kept.isdir() else 0o644)
    return kept.replace(mode=mode, uid=os.getuid(), gid=os.getgid(), uname="", gname="", deep=False)


def find_image(name: str) -> ContainerImage:
    """Return the image *name* from the first local engine that has it, without pulling; UserError if none has."""
    engines = [engine for engine in ENGINES if shutil.which(engine)]
    for engine in engines:
        try:
            answer = subprocess.run(
                [engine, "image", "inspect", name], capture_output=True, timeout=ASK_S, check=False, text=True
            )
            found = json.loads(answer.stdout) if answer.returncode == 0 else []
        except (OSError, subprocess.TimeoutExpired, ValueError):
            continue
        if found:
            set_ = found[0].get("Config") or {}
            variables = dict(pair.partition("=")[::2] for pair in set_.get("Env") or ())
            return ContainerImage(engine, name, str(found[0]["Id"]).removeprefix("sha256:"), variables)
    asked = " and ".join(engines) or f"no engine is on PATH: {' or '.join(ENGINES)}"
    raise UserError(f"There is no container image {name!r} on this machine ({asked}); build or pull it first.")


def _remove_leftovers(engine: str, folder: Path) -> None:
    """Remove folders below *folder* and containers of *engine* that unpacking processes now dead left behind."""
    for made in folder.glob(".*-*"):
        if not psutil.pid_exists(int(made.name[1:].partition("-")[0])):
            shutil.rmtree(made, ignore_errors=True)
    listed = [engine, "ps", "-a", "--filter", f"name={CONTAINER}", "--format", "{{.Names}}"]
    done = subprocess.run(listed, capture_output=True, timeout=ASK_S, check=False, text=True)
    for name in done.stdout.split():
        pid = name.removeprefix(CONTAINER).partition("-")[0]
        if name.startswith(CONTAINER) and pid.isdigit() and not psutil.pid_exists(int(pid)):
            subprocess.run([engine, "rm", "-f", name], capture_output=True, timeout=ASK_S, check=False)
