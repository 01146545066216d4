"""The root file system of the example's image: this machine's Python, its libraries, and the server. No base image."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
LOADED = """
import encodings.idna, runpy, sys
runpy.run_path(sys.argv[1], run_name="loaded")
print(*(file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))), sep="\\n")
"""


def fill(rootfs: Path) -> None:
    """Copy into *rootfs* what the server needs of an interpreter, each file at the path that it has here."""
    python, standard = Path(os.path.realpath(sys.executable)), Path(sysconfig.get_path("stdlib"))
    command = [python, "-I", "-c", LOADED, HERE / "server.py"]
    payload = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    modules = {path for path in map(Path, payload.splitlines()) if path.is_relative_to(standard)}
    modules |= set((standard / "encodings").glob("*.py"))  # looked up by name when a text needs one
    compiled = [path for path in modules if path.suffix == ".so"]
    for file in {python, *modules, *_libraries([python, *compiled])}:
        _inside(rootfs, file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, _inside(rootfs, file))
    (rootfs / "bin").mkdir(exist_ok=True)
    (rootfs / "bin" / "python3").symlink_to(python)
    shutil.copy(HERE / "server.py", rootfs)


def _inside(rootfs: Path, path: Path) -> Path:
    return rootfs / path.relative_to("/")


def _libraries(programs: list[Path]) -> set[Path]:
    """Return the shared libraries of *programs*, the loader among them."""
    listed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=True).stdout
    words = (line.split() for line in listed.splitlines() if line.startswith("\t"))
    found = (line[2] if "=>" in line else line[0] for line in words)
    return {Path(os.path.normpath(name)) for name in found if name.startswith("/")}
