"""Images without a registry or an engine: layers packed from files of this machine, unpacked once by a containerd."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kubernetes.native.cache import Cache, made_whole
from tests.kubernetes.native.runtime_image import environment, python_layer, readable, source_layer

from opsassay.testbed.substrates.kubernetes.manifests.image import IMAGE

BOX_IMAGE = "docker.io/library/opsassay-box:1"
APPLETS = [
    "sh",
    "ash",
    "cat",
    "ls",
    "sleep",
    "echo",
    "env",
    "ps",
    "kill",
    "true",
    "false",
    "test",
    "nslookup",
    "nc",
    "ip",
    "hostname",
    "tail",
    "head",
    "grep",
    "mkdir",
    "touch",
    "rm",
    "id",
    "top",
    "df",
]
LINKS = {"wget": "box", "web": "box", "pause": "box"} | dict.fromkeys(APPLETS, "busybox")
STORAGE = """version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
"""


def unpack_images(cache: Cache) -> None:
    """Make ``cache.containerd``: a containerd root with every image unpacked; again when what they hold has changed."""
    cache.runs.mkdir(parents=True, exist_ok=True)
    with (cache.runs / ".images.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _unpack_changed(cache, [box_layer(cache), python_layer(cache), source_layer(cache)])


def _unpack_changed(cache: Cache, layers: list[Path]) -> None:
    key = " ".join(layer.stem for layer in layers)
    stamp = cache.containerd / "made-of"
    if stamp.exists() and stamp.read_text() == key:
        return
    retired = cache.containerd.with_name(".containerd.old")
    subprocess.run(["rm", "-rf", retired], check=True)
    if cache.containerd.exists():
        cache.containerd.rename(retired)

    def unpack(folder: Path) -> None:
        archives = [folder.parent / f"{name}.oci" for name in ("box", "runtime")]
        write_image(archives[0], BOX_IMAGE, layers[:1], {"Entrypoint": ["/bin/box"], "Cmd": ["pause"]})
        entry = {
            "Entrypoint": ["python", "-m", "opsassay.testbed.substrates.kubernetes.agent"],
            "Env": environment(),
            "User": "1000",
        }
        write_image(archives[1], f"docker.io/library/{IMAGE}", layers, entry)
        _import(cache, folder, archives)
        for archive in archives:
            archive.unlink()
        (folder / "made-of").write_text(key)

    made_whole(cache.containerd, unpack)
    subprocess.run(["rm", "-rf", retired], check=True)


def _import(cache: Cache, folder: Path, archives: Sequence[Path]) -> None:
    """Import *archives* into a containerd root at *folder*, by a containerd in namespaces of its own."""
    config = folder.parent / "unpack.toml"
    config.write_text(STORAGE)
    imports = "\n".join(f"ctr -n k8s.io images import {archive}" for archive in archives)
    script = f"""set -e
mount -t tmpfs tmpfs /run
mkdir -p {folder}/lib && mount --bind {folder}/lib /var/lib && mkdir -p /var/lib/containerd
containerd -c {config} >/dev/null 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.1; done
{imports}
kill $! && wait $!
"""
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "sh", "-c", script]
    done = subprocess.run(command, env=cache.environment(), check=False, cwd="/", capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"images cannot be imported: {done.stderr}")
    for made in (folder / "lib/containerd").iterdir():
        made.rename(folder / made.name)
    (folder / "lib/containerd").rmdir()
    (folder / "lib").rmdir()
    config.unlink()


def box_layer(cache: Cache) -> Path:
    """Return the layer with our test programs and busybox."""
    programs = {"box": cache.binaries / "box", "busybox": cache.system / "bin/busybox"}
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in programs.values()) + str(LINKS).encode()).hexdigest()
    target = cache.root / f"box-{digest[:16]}.tar"
    if target.exists():
        return target
    for former in cache.root.glob("box-*.tar"):
        former.unlink()
    partial = target.with_suffix(".partial")
    with tarfile.open(partial, "w") as layer:
        for folder in ("bin", "etc", "tmp", "proc", "sys", "dev", "root"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            layer.addfile(entry)
        for name, path in programs.items():
            layer.add(path, f"bin/{name}", filter=readable)
        for name, program in LINKS.items():
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, program
            layer.addfile(link)
    partial.rename(target)
    return target


def write_image(target: Path, name: str, layers: Sequence[Path], config: dict[str, Any]) -> None:
    """Write an OCI archive at *target* of one image called *name*, of the tar files *layers*."""
    described = []
    with tarfile.open(target, "w") as archive:

        def add(path: str, content: bytes) -> None:
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))

        def blob(content: bytes, kind: str) -> dict[str, Any]:
            digest = hashlib.sha256(content).hexdigest()
            add(f"blobs/sha256/{digest}", content)
            return {
                "mediaType": f"application/vnd.oci.image.{kind}.v1+json",
                "digest": f"sha256:{digest}",
                "size": len(content),
            }

        for layer in layers:
            with layer.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            archive.add(layer, f"blobs/sha256/{digest}")
            kind = "application/vnd.oci.image.layer.v1.tar"
            described.append({"mediaType": kind, "digest": f"sha256:{digest}", "size": layer.stat().st_size})
        plain = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}
        whole = {
            "architecture": "amd64",
            "os": "linux",
            "config": {**plain, **config},
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in described]},
        }
        manifest = {"schemaVersion": 2, "config": blob(json.dumps(whole).encode(), "config"), "layers": described}
        listed = blob(json.dumps(manifest).encode(), "manifest")
        listed["annotations"] = {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        }
        add("oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        add("index.json", json.dumps({"schemaVersion": 2, "manifests": [listed]}).encode())
