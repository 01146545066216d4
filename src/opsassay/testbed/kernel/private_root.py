"""Runs root's servers as another user, who sees only the programs and the data of that server.

The private root is a mount namespace, which ends with its last process. Where root may not mount, or is root of a user
namespace only, servers run in a further user namespace, and without one as `nobody`.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
import subprocess
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from opsassay.core.errors import StartError

PRIVATE_UID = 64999
"""The user of confined programs; below 65,536, so that it exists in containers that map no more users."""
SIDECAR_UID = PRIVATE_UID - 1
"""The user of the proxy in front of a user's program, which that program cannot reach."""


def _read_script(name: str) -> str:
    """Return the shell script *name* of this folder, with the id of the private user in place of PRIVATE_UID."""
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return text.replace("PRIVATE_UID", str(PRIVATE_UID))


PRIVATE_ROOT = _read_script("private_root.sh")
"""A script for sh in its own mount namespace.

Arguments: folders of programs, libraries and data, size of a disk of its own for the data or '', the command.

Without /proc the loader does not know a program's folder, so libraries next to it have to be named.
"""

PROGRAM_ROOT = _read_script("program_root.sh")
"""A script for sh in its own mount and process namespaces.

Arguments: text of resolv.conf, options for the user, start folder, path of libfaketime or '', number of folders to show,
these folders, the command.
"""

_UNSHARED = ["unshare", "--mount", "--propagation", "private", "sh", "-c", PRIVATE_ROOT, "sh"]
_ENDING = ["setpriv", "--no-new-privs", "--pdeathsig", "KILL"]
_MAPPED = [
    "unshare",
    "--user",
    "--map-user=nobody",
    "--map-group=65534",
    *_ENDING,
]  # PostgreSQL wants a user with a name
_NOBODY = ["setpriv", "--reuid=nobody", "--clear-groups", *_ENDING[1:]]


class Confinement(StrEnum):
    """The ways to run servers as a user other than root."""

    NONE = "none"
    """This process is not root."""
    PRIVATE_ROOT = "private root"
    USER_NAMESPACE = "user namespace"
    """They see the machine as the caller does, and are the same user outside of the namespace."""
    NOBODY = "nobody"


@functools.cache
def confinement() -> Confinement:
    """Return the strongest confinement of servers and programs that works for this user on this machine; cached."""
    if os.geteuid() != 0:
        return Confinement.NONE
    folder = str(Path(__file__).parent)
    if _runs_true([*_UNSHARED, folder, "", folder, ""]):
        return Confinement.PRIVATE_ROOT
    return Confinement.USER_NAMESPACE if _runs_true(_MAPPED) else Confinement.NOBODY


def _runs_true(words: list[str]) -> bool:
    """Return whether the command prefix *words* can run `true` with status 0."""
    return subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0


def unprivileged(programs: Path, data: Path, disk: str = "") -> list[str]:
    """Return the command prefix that runs a command as a user other than root; [] for a normal user.

    The command sees the folder *programs*, with the libraries of its wheel, read-only, and the folder *data*, which
    `give` must have given it, at their own paths. In a private root *data* is an empty disk of the size *disk* ("16m")
    if given, in memory, which ends with the command.
    """
    match confinement():
        case Confinement.PRIVATE_ROOT:
            return [*_UNSHARED, str(programs), _libraries(programs), str(data), disk]
        case Confinement.USER_NAMESPACE:
            return _MAPPED
        case Confinement.NOBODY:
            return _NOBODY
        case Confinement.NONE:
            return []


def program_words(
    resolver: str, directory: str, folders: Sequence[str], uid: int = PRIVATE_UID, clock: str | None = None
) -> list[str]:
    """Return the command prefix that runs a user's program in its own file system root and process table as *uid*.

    The program sees the system's programs, its own ``/tmp``, and *folders*, read-only; it starts in *directory*.
    *resolver* is the text of its resolv.conf, *clock* the path of libfaketime where it is preloaded. All of its processes
    end with its first one.
    """
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--propagation", "private"]
    ours = confinement() is Confinement.PRIVATE_ROOT
    user = f"--reuid={uid} --regid={uid} --clear-groups" if ours else ""
    shown = sorted({folder for folder in folders if not folder.startswith("/usr/")})  # what holds others comes first
    script = ["sh", "-c", PROGRAM_ROOT, "sh", resolver, user, directory, clock or "", str(len(shown)), *shown]
    return [*unshare, *script]


def program_owner() -> int:
    """Return the user id that programs started by `program_words` have."""
    return PRIVATE_UID if confinement() is Confinement.PRIVATE_ROOT else os.geteuid()


def may_read(folder: Path) -> bool:
    """Return whether programs started by `program_words` can read *folder*; those of root run as another user."""
    if os.geteuid() != 0 or confinement() is not Confinement.PRIVATE_ROOT:
        return True
    status = folder.stat()
    return status.st_uid == PRIVATE_UID or status.st_mode & 0o005 == 0o005


def _libraries(programs: Path) -> str:
    """Return the ".libs" folder that `auditwheel repair` made for the package of *programs*, "" without one."""
    beside = (package.with_name(f"{package.name}.libs") for package in (programs, *programs.parents) if package.name)
    return next((str(folder) for folder in beside if folder.is_dir()), "")


def give(folder: Path) -> None:
    """Make the user of `unprivileged` commands the owner of *folder* and its content, or raise StartError."""
    how = confinement()
    if how not in (Confinement.PRIVATE_ROOT, Confinement.NOBODY):
        return
    parents = folder.resolve().parents if how is Confinement.NOBODY else ()
    closed = [above for above in parents if not above.stat().st_mode & stat.S_IXOTH]
    try:
        for path in [folder, *folder.rglob("*")]:
            shutil.chown(path, PRIVATE_UID if how is Confinement.PRIVATE_ROOT else "nobody")
    except OSError:
        closed.append(folder)
    if closed:
        raise StartError(
            f"Root may mount nothing here, so its database servers run as nobody, who cannot use {closed[-1]}; run as a "
            "user other than root, or in a container with CAP_SYS_ADMIN."
        )
