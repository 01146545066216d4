"""The size of the base and of each extra, each in a bare environment, and whether its command runs there.

python benchmarks/packages.py [EXTRA[,EXTRA] ...]      (`base` is the package alone)

The size is what `du -sm` says of the environment: pip, what pip compiles, and the versions of requirements.lock.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
BARS = {"base": 125, "demo": 750}
"""What an environment may take, in MB."""
COMMANDS = {
    "base": ("trace", "proxy", "--help"),
    "data": ("agent", "methods"),
    "demo": ("system", "faults"),
    "testbed": ("task", "list"),
    "agents": ("agent", "list"),
}


def size(environment: Path) -> int:
    """Return the megabytes of *environment* on the disk, by du."""
    return int(subprocess.run(["du", "-sm", environment], check=True, capture_output=True, text=True).stdout.split()[0])


def install(extras: str, environment: Path) -> None:
    """Make *environment* and install OpsAssay with *extras* as the README does, with the locked versions."""
    venv.create(environment, with_pip=True)
    locked = (line.removesuffix(" \\") for line in (ROOT / "requirements.lock").read_text().splitlines())
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(line for line in locked if not line.startswith(" ")))
        constraints.flush()
        what = str(ROOT) if extras == "base" else f"{ROOT}[{extras}]"
        subprocess.run([environment / "bin" / "pip", "install", "-q", "-c", constraints.name, what], check=True)


def main(wanted: list[str]) -> int:
    """Print one line per extra; return 1 when a command failed or a bar was passed."""
    listed = list(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    wrong = 0
    for extras in wanted or ["base", *listed]:
        with tempfile.TemporaryDirectory(prefix="opsassay-packages-") as folder:
            environment = Path(folder)
            install(extras, environment)
            megabytes = size(environment)
            command = COMMANDS.get(extras.partition(",")[0], ("--help",))
            done = subprocess.run([environment / "bin" / "opsassay", *command], check=False, capture_output=True)
        bar = BARS.get(extras)
        asked = f" (the bar is {bar})" if bar else ""
        print(f"{extras:12} {megabytes:5} MB{asked}, its command: exit {done.returncode}", flush=True)
        wrong += done.returncode != 0 or megabytes > (bar or megabytes)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
