"""Where the cluster's binaries and images lie between runs: a folder for each version, everything in it written whole."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

VERSION = "1.20.2"
DEBIAN_VERSION = "1.20.5+really1.20.2-1.1+deb12u1"
BINARIES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl", "kubelet")


def _home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opsassay" / "kubernetes"


@dataclass(frozen=True)
class Cache:
    """The cache of one version of the cluster."""

    root: Path

    @classmethod
    def default(cls) -> Cache:
        """Return the cache of the version that these tests run on."""
        return cls(_home() / VERSION)

    @property
    def apt(self) -> Path:
        """Lists and archives of a private apt."""
        return self.root / "apt"

    @property
    def system(self) -> Path:
        """Debian packages, unpacked beside the system."""
        return self.root / "system"

    @property
    def gopath(self) -> Path:
        """Kubernetes's source tree as Go wants it, until the binaries are built."""
        return self.root / "gopath"

    @property
    def gocache(self) -> Path:
        """Go's own cache of what it compiled."""
        return self.root / "gocache"

    @property
    def binaries(self) -> Path:
        """The programs that were built."""
        return self.root / "bin"

    @property
    def containerd(self) -> Path:
        """A containerd root in which every image is unpacked; nodes start from hard links to it."""
        return self.root / "containerd"

    @property
    def runs(self) -> Path:
        """State of running clusters: on the same file system, so that nodes can link to what is unpacked here."""
        return self.root / "runs"

    def missing(self) -> list[str]:
        """Return what is not there yet; a cluster starts when nothing is missing."""
        wanted = {name: self.binaries / name for name in (*BINARIES, "box")}
        wanted |= {"Debian packages": self.system, "images": self.containerd}
        return [name for name, path in wanted.items() if not path.exists()]

    def environment(self) -> dict[str, str]:
        """Return the environment in which the unpacked programs find one another and their libraries."""
        system = self.system
        folders = [
            self.binaries,
            *(system / part for part in ("usr/lib/go-1.19/bin", "usr/sbin", "sbin", "usr/bin", "bin")),
        ]
        libraries = system / "usr/lib/x86_64-linux-gnu"
        return {
            "PATH": ":".join([*map(str, folders), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]),
            "LD_LIBRARY_PATH": str(libraries),
            "XTABLES_LIBDIR": f"{libraries}/xtables:/usr/lib/x86_64-linux-gnu/xtables",
            "HOME": os.environ.get("HOME", "/root"),
            "LANG": "C.UTF-8",
        }


def made_whole(target: Path, make: Callable[[Path], None]) -> None:
    """Have *make* fill a folder beside *target* that takes its name when it is complete; nothing when it is there."""
    if target.exists():
        return
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    make(partial)
    partial.rename(target)
