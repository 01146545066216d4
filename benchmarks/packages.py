"""The size of the base and of each extra, each in a bare environment, and whether its command runs there.

python benchmarks/packages.py [EXTRA ...]      (`base` is the package alone)
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
BARS = {"base": 70, "demo": 600}
COMMANDS = {
    "base": ("proxy", "--help"),
    "data": ("methods",),
    "demo": ("faults",),
    "testbed": ("tasks",),
    "agents": ("agents",),
}


def size(environment: Path) -> float:
    """Return the megabytes of the files in *environment*, without compiled copies and what a bare environment has."""
    files = (f for f in (environment / "lib").rglob("*") if f.is_file() and not f.is_symlink())
    return (
        sum(
            f.stat().st_size
            for f in files
            if f.suffix != ".pyc" and not {"pip", "setuptools", "pkg_resources"} & set(f.parts)
        )
        / 1e6
    )


def main(wanted: list[str]) -> int:
    """Print one line per extra; return 1 when a command failed or a bar was passed."""
    extras = list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    wrong = 0
    for extra in wanted or ["base", *extras]:
        with tempfile.TemporaryDirectory(prefix="opsassay-packages-") as folder:
            venv.create(folder, with_pip=True)
            binaries = Path(folder, "bin")
            subprocess.run(
                [binaries / "pip", "install", "-q", str(ROOT) + (f"[{extra}]" if extra != "base" else "")], check=True
            )
            megabytes = size(Path(folder))
            done = subprocess.run(
                [binaries / "opsassay", *COMMANDS.get(extra, ("--help",))], check=False, capture_output=True, text=True
            )
        bar = BARS.get(extra)
        print(
            f"{extra:12} {megabytes:7.1f} MB"
            + (f" (the bar is {bar})" if bar else "")
            + f", its command: exit {done.returncode}"
        )
        wrong += done.returncode != 0 or megabytes > (bar or megabytes)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
