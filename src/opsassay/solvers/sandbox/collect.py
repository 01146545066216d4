"""Copies folders into and out of the sandbox: plain files and folders only."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from pathlib import Path

MOST_FILES = 10_000
MOST_DEPTH = 32
NOTED = 20
"""Most entries left out that are named; the rest is counted."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_ISLNK: "a symbolic link",
    stat.S_ISFIFO: "a FIFO",
    stat.S_ISSOCK: "a socket",
    stat.S_ISCHR: "a character device",
    stat.S_ISBLK: "a block device",
}


def first_odd(folder: Path) -> str | None:
    """Return the path of the first entry below *folder* that is neither file nor folder (a link, ...), else None."""
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_dir(follow_symlinks=False):
            if odd := first_odd(Path(entry.path)):
                return odd
        elif not entry.is_file(follow_symlinks=False):
            return entry.path
    return None


def copy_in(source: Path, target: Path, *, owner: int | None = None, time_s: int | None = None) -> None:
    """Copy files and folders of *source* into the empty *target*; set *owner* (uid) and *time_s* (epoch) if given."""
    for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
        copy = target / entry.name
        if entry.is_dir(follow_symlinks=False):
            copy.mkdir(mode=0o755)
            copy_in(Path(entry.path), copy, owner=owner, time_s=time_s)
        elif entry.is_file(follow_symlinks=False):
            shutil.copyfile(entry.path, copy, follow_symlinks=False)
            executable = entry.stat(follow_symlinks=False).st_mode & 0o100
            copy.chmod(0o755 if executable else 0o644)
        else:
            continue
        if owner is not None:
            os.chown(copy, owner, owner)
        if time_s is not None:
            os.utime(copy, (time_s, time_s))


def copy_out(source: int, target: Path, most_bytes: int) -> list[str]:
    """Copy the folder of the descriptor *source* to *target*; return a line per entry left out, with the reason.

    Left out are links, FIFOs, devices, sockets, and files beyond *most_bytes* in total, MOST_FILES or MOST_DEPTH. No
    process may change the folder any more.
    """
    left: list[str] = []
    seen, copied = 0, 0
    folders = ["."]
    while folders and seen <= MOST_FILES:
        folder = folders.pop()
        try:
            descriptor = os.open(folder, _READ | os.O_DIRECTORY, dir_fd=source)
        except OSError as error:
            left.append(f"{folder}: {error.strerror}")
            continue
        try:
            for name in sorted(os.listdir(descriptor)):  # noqa: PTH208 - no path object lists a descriptor
                path = os.path.normpath(f"{folder}/{name}")
                seen += 1
                if seen > MOST_FILES:
                    left.append(f"{path} and what follows: more than {MOST_FILES} files")
                    break
                try:
                    if _is_folder(descriptor, name, path, most_bytes - copied):
                        (target / path).mkdir(exist_ok=True)
                        folders.append(path)
                    else:
                        copied += _copy_file(descriptor, name, target / path)
                except OSError as error:
                    left.append(f"{path}: {error.strerror}")
        finally:
            os.close(descriptor)
    return left if len(left) <= NOTED else [*left[:NOTED], f"and {len(left) - NOTED} more"]


def _is_folder(folder: int, name: str, path: str, remaining: int) -> bool:
    """Return whether the entry *name* is a folder, not a file; OSError for others and files over *remaining* bytes."""
    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
    reason = next((kind for test, kind in _KINDS.items() if test(found.st_mode)), None)
    is_folder = stat.S_ISDIR(found.st_mode)
    if is_folder and path.count("/") >= MOST_DEPTH:
        reason = f"more than {MOST_DEPTH} folders deep"
    elif reason is None and not is_folder and found.st_size > remaining:
        reason = f"{found.st_size} bytes, more than may be collected"
    if reason is not None:
        raise OSError(errno.EPERM, reason)
    return is_folder


def _copy_file(folder: int, name: str, target: Path) -> int:
    """Copy the plain file *name* in the folder descriptor *folder* to *target*; return its size in bytes."""
    reader = os.open(name, _READ, dir_fd=folder)
    with os.fdopen(reader, "rb") as source:
        if not stat.S_ISREG(os.fstat(reader).st_mode):
            raise OSError(errno.EPERM, "not a plain file any more")
        target.unlink(missing_ok=True)
        mode = 0o700 if os.fstat(reader).st_mode & 0o100 else 0o600
        with os.fdopen(os.open(target, _WRITE, mode), "wb") as copy:
            shutil.copyfileobj(source, copy, 2**20)
            return copy.tell()
