"""Debian packages and sources, fetched by an apt of our own and unpacked beside the system: nothing is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.kubernetes.native.cache import DEBIAN_VERSION, Cache, made_whole

PACKAGES = (
    "golang-1.19-go",
    "golang-1.19-src",
    "rsync",
    "etcd-server",
    "containerd",
    "runc",
    "containernetworking-plugins",
    "nftables",
    "iproute2",
    "iptables",
    "conntrack",
    "busybox-static",
)
REFLECT2 = "golang-github-modern-go-reflect2-dev"
"""Takes the place of the tree's own copy, by which a server built with Go 1.19 dies at the first custom resource."""
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SOURCES = (("http://deb.debian.org/debian", "bookworm"), ("http://deb.debian.org/debian-security", "bookworm-security"))


def fetch_packages(cache: Cache) -> None:
    """Unpack `PACKAGES`, and what they need beyond this machine's packages, into ``cache.system``."""

    def unpack(folder: Path) -> None:
        apt = _apt(cache)
        subprocess.run(
            [
                "apt-get",
                *apt,
                "install",
                "--reinstall",
                "--download-only",
                "--no-install-recommends",
                "-qq",
                "-y",
                *PACKAGES,
            ],
            check=True,
        )
        for archive in sorted((cache.apt / "archives").glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", archive, folder], check=True)
        for name in (
            "iptables",
            "iptables-save",
            "iptables-restore",
            "ip6tables",
            "ip6tables-save",
            "ip6tables-restore",
        ):
            (folder / "usr/sbin" / name).unlink(missing_ok=True)
            (folder / "usr/sbin" / name).symlink_to("xtables-nft-multi")

    made_whole(cache.system, unpack)


def fetch_source(cache: Cache) -> Path:
    """Unpack Debian's source of Kubernetes where Go expects it; return the tree."""

    def unpack(folder: Path) -> None:
        apt = _apt(cache)
        wanted = f"kubernetes={DEBIAN_VERSION}"
        subprocess.run(
            ["apt-get", *apt, "source", "--download-only", "-qq", wanted], check=True, cwd=cache.apt / "archives"
        )
        (description,) = (cache.apt / "archives").glob("kubernetes_*.dsc")
        parent = folder / "src/k8s.io"
        parent.mkdir(parents=True)
        subprocess.run(["dpkg-source", "--no-check", "-x", description, parent / "kubernetes"], check=True)
        _replace_reflect2(cache, apt, parent / "kubernetes")

    made_whole(cache.gopath, unpack)
    return cache.gopath / "src/k8s.io/kubernetes"


def _replace_reflect2(cache: Cache, apt: list[str], tree: Path) -> None:
    archives, library = cache.apt / "archives", "github.com/modern-go/reflect2"
    subprocess.run(["apt-get", *apt, "download", "-qq", REFLECT2], check=True, cwd=archives)
    (package,) = archives.glob(f"{REFLECT2}_*.deb")
    with tempfile.TemporaryDirectory() as unpacked:
        subprocess.run(["dpkg-deb", "-x", package, unpacked], check=True)
        shutil.rmtree(tree / "vendor" / library)
        shutil.copytree(Path(unpacked) / "usr/share/gocode/src" / library, tree / "vendor" / library)


def _apt(cache: Cache) -> list[str]:
    """Return the options of an apt whose lists and archives are ours; its lists are fetched when there are none."""
    apt = cache.apt
    options = {
        "Dir::Etc::sourcelist": apt / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": apt / "lists",
        "Dir::Cache": apt,
        "APT::Sandbox::User": "root",
        "Acquire::Retries": 3,
    }
    arguments = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    for folder in ("lists/partial", "archives/partial"):
        (apt / folder).mkdir(parents=True, exist_ok=True)
    lines = [
        f"{kind} [signed-by={KEYRING}] {url} {suite} main\n" for url, suite in SOURCES for kind in ("deb", "deb-src")
    ]
    (apt / "sources.list").write_text("".join(lines))
    if not any((apt / "lists").glob("*Packages*")):
        subprocess.run(["apt-get", *arguments, "update", "-qq"], check=True)
    return arguments
