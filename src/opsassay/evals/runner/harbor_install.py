"""How OpsAssay gets into the image of a Harbor task: as a wheel that lies beside its Dockerfile, or by what pip fetches.

No package index has OpsAssay, and a Dockerfile sees its own folder alone. So the wheel of the OpsAssay that writes the
task is packed and laid there, unless another one, or something that pip can fetch, is named.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import shlex
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import opsassay
from opsassay.core.errors import UserError
from opsassay.core.extras import WHEEL, install_hint

PLACE = "/opt/wheels"
"""Where the image has the wheel."""
_WHEEL_PATH = re.compile(r"(?P<path>[^:@]*\.whl)(?P<extras>\[[^]]*\])?")
_METADATA = "Wheel-Version: 1.0\nGenerator: opsassay\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@dataclass(frozen=True)
class ContainerInstall:
    """What pip installs in a container: the *requirement*, and the wheel behind it where that lies in the task."""

    requirement: str
    wheel: str = ""
    content: bytes = b""

    def dockerfile_lines(self, folder: str = "") -> tuple[str, str]:
        """Return what a Dockerfile says before RUN when the wheel lies in *folder* beside it, and the command of RUN."""
        copy = f"COPY {folder}{self.wheel} {PLACE}/\n" if self.wheel else ""
        clean = f" && rm -r {PLACE}" if self.wheel else ""
        return copy, f"pip install --no-cache-dir {shlex.quote(self.requirement)}{clean}"

    def files(self, folder: str) -> dict[str, bytes]:
        """Return the wheel by its path in *folder* of a task; nothing where pip fetches what it installs."""
        return {f"{folder}{self.wheel}": self.content} if self.wheel else {}


def container_install(asked: str | None, extras: str) -> ContainerInstall:
    """Return how OpsAssay with *extras* is installed when *asked* is a wheel, a requirement of pip, or None: as it is here.

    Raises UserError for a file or folder that cannot be laid beside a Dockerfile.
    """
    if asked is None:
        return ContainerInstall(f"{PLACE}/{WHEEL}[{extras}]", WHEEL, own_wheel())
    named = _WHEEL_PATH.fullmatch(asked)
    if named is None:
        if Path(asked).is_dir():
            raise UserError(
                f"--install {asked} is a folder, which no container sees; make a wheel of it with "
                f"`pip wheel --no-deps -w dist {shlex.quote(asked)}` and name that."
            )
        return ContainerInstall(asked)
    path = Path(named["path"])
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"--install {path} cannot be read ({error.strerror}); name a wheel that is there.") from error
    return ContainerInstall(f"{PLACE}/{path.name}{named['extras'] or f'[{extras}]'}", path.name, content)


def own_wheel() -> bytes:
    """Return the wheel of the OpsAssay that runs, the same bytes each time; raises UserError where it is not installed."""
    package = Path(opsassay.__file__).parent
    try:
        installed = distribution("opsassay")
    except PackageNotFoundError as error:
        raise UserError(f"This OpsAssay is not installed, so it has no wheel; {install_hint('data')}.") from error
    files = {f"opsassay/{name}": content for name, content in _contents(package).items()}
    if not (package / "examples").is_dir():  # in a checkout they lie at its top
        beside = package.parents[1] / "examples"
        files |= {f"opsassay/examples/{name}": content for name, content in _contents(beside).items()}
    info = WHEEL.removesuffix("-py3-none-any.whl") + ".dist-info"
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        files[f"{info}/{name}"] = (installed.read_text(name) or "").encode()
    files[f"{info}/WHEEL"] = _METADATA.encode()
    record = [f"{name},sha256={_digest(content)},{len(content)}\n" for name, content in files.items()]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():  # with the date of no day, so that an image is built once for all tasks
            entry = zipfile.ZipInfo(name)
            mode = 0o100755 if content.startswith(b"#!") else 0o100644
            entry.external_attr, entry.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return packed.getvalue()


def _contents(folder: Path) -> dict[str, bytes]:
    """Return the files below *folder* by their paths in it, without compiled ones."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
