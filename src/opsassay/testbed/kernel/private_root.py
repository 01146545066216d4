"""Root's servers run as somebody else, who sees the programs, the data of this one server and nothing else of the machine.

The private root is a mount namespace: it goes with its last process. Where mounts are not allowed, servers run as `nobody`.
"""

from __future__ import annotations

import functools
import os
import shutil
import stat
import subprocess
from pathlib import Path

from opsassay.errors import StartError

PRIVATE_UID = 64999
"""The user of confined programs; below 65,536, so that it is there in containers that map no more users."""

PRIVATE_ROOT = f"""
set -e
mount -t tmpfs -o mode=0755,size=1m opsassay /mnt
for place in /usr /bin /sbin /lib /lib32 /lib64 "$1"; do
  if [ -L "$place" ]; then cp -P "$place" "/mnt$place"
  elif [ -d "$place" ]; then mkdir -p "/mnt$place"; mount -o bind,ro "$place" "/mnt$place"; fi
done
mkdir -p /mnt/etc /mnt/dev/shm "/mnt$2"
echo 'server:x:{PRIVATE_UID}:{PRIVATE_UID}::/:/bin/false' > /mnt/etc/passwd
mount -t tmpfs -o mode=1777,size=256m opsassay /mnt/dev/shm
for name in null zero random urandom; do touch /mnt/dev/$name; mount --bind /dev/$name /mnt/dev/$name; done
mount --bind "$2" "/mnt$2"
shift 2
exec chroot /mnt setpriv --reuid={PRIVATE_UID} --regid={PRIVATE_UID} --clear-groups --no-new-privs --pdeathsig KILL "$@"
"""
"""A script for sh, run in a mount namespace of its own: the folder of the programs, that of the data, and the command."""

_UNSHARED = ["unshare", "--mount", "--propagation", "private", "sh", "-c", PRIVATE_ROOT, "sh"]


def unprivileged(programs: Path, data: Path) -> list[str]:
    """Return the words that let a command run as somebody other than root; none for a normal user.

    It finds the folder *programs*, read-only, and the folder *data*, which has to be given to it, at their own paths.
    """
    if os.geteuid() != 0:
        return []
    if has_private_root():
        return [*_UNSHARED, str(programs), str(data)]
    return ["setpriv", "--reuid=nobody", "--clear-groups", "--no-new-privs", "--pdeathsig", "KILL"]


@functools.cache
def has_private_root() -> bool:
    """Return whether root may make a private root here, by making one."""
    if os.geteuid() != 0:
        return False
    folder = str(Path(__file__).parent)
    return subprocess.run([*_UNSHARED, folder, folder, "true"], capture_output=True, check=False).returncode == 0


def give(folder: Path) -> None:
    """Make *folder* and all in it belong to whom `unprivileged` commands run as.

    Raises StartError when they could not use it: without a private root they are `nobody`, who cannot enter everything.
    """
    if os.geteuid() != 0:
        return
    private = has_private_root()
    closed = [] if private else [above for above in folder.resolve().parents if not above.stat().st_mode & stat.S_IXOTH]
    try:
        for path in [folder, *folder.rglob("*")]:
            shutil.chown(path, PRIVATE_UID if private else "nobody")
    except OSError:
        closed.append(folder)
    if closed:
        raise StartError(
            f"Root may mount nothing here, so its database servers run as nobody, who cannot use {closed[-1]}; run as a "
            "user other than root, or in a container with CAP_SYS_ADMIN."
        )
