"""Writes tasks of Harbor: their files, rewards, and the wheel of OpsAssay that they install."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import shlex
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import opsassay
from opsassay.core.errors import UserError
from opsassay.core.extras import WHEEL, install_hint
from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.telemetry.content import whole_file

SCHEMA = "1.4"
IMAGE = "python:3.12-slim"
Table = Mapping[str, str | float | list[str]]


def task_toml(name: str, tables: Mapping[str, Table]) -> str:
    """Return the text of ``task.toml`` for task *name*; *tables* are by heading, a heading in ``[]`` is an array."""
    lines = [f'schema_version = "{SCHEMA}"']
    named = {"name": f"opsassay/{name}", **tables["task"]}
    for header, table in {**tables, "task": named}.items():
        lines += ["", f"[{header}]", *(f"{key} = {_format_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _format_value(value: object) -> str:
    """Return *value* as a TOML value: text, number or list of them."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")


def write_task(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write *files* (content by path) below *folder*; those that start with ``#!`` are made executable."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        if isinstance(content, str) and content.startswith("#!"):
            (folder / name).chmod(0o755)


def rewards_of(metrics: Mapping[str, Metric], *, success: bool) -> dict[str, float]:
    """Return the value of each scored metric by name, and "reward": 1 for *success*, else 0."""
    scored = {n: m.value for n, m in metrics.items() if m.status is MetricStatus.SCORED and m.value is not None}
    return {"reward": float(success), **scored}


def write_rewards(path: Path, rewards: Mapping[str, float]) -> None:
    """Write *rewards* as the JSON file *path* that Harbor reads."""
    with whole_file(path) as partial:
        partial.write_text(json.dumps(rewards), encoding="utf-8")


PLACE = "/opt/wheels"
"""The folder of the wheel in the container image."""
_WHEEL_PATH = re.compile(r"(?P<path>[^:@]*\.whl)(?P<extras>\[[^]]*\])?")
_METADATA = "Wheel-Version: 1.0\nGenerator: opsassay\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@dataclass(frozen=True)
class ContainerInstall:
    """The pip *requirement* to install in a container, and the *wheel* file (name, content) if the task has one."""

    requirement: str
    wheel: str = ""
    content: bytes = b""

    def dockerfile_lines(self, folder: str = "") -> tuple[str, str]:
        """Return (COPY line of the wheel in *folder*, '' without one; the command that installs it)."""
        copy = f"COPY {folder}{self.wheel} {PLACE}/\n" if self.wheel else ""
        clean = f" && rm -r {PLACE}" if self.wheel else ""
        return copy, f"pip install --no-cache-dir {shlex.quote(self.requirement)}{clean}"

    def files(self, folder: str) -> dict[str, bytes]:
        """Return the wheel's content by its path in the task's *folder*; {} when pip downloads the package."""
        return {f"{folder}{self.wheel}": self.content} if self.wheel else {}


def container_install(requirement: str | None, extras: str) -> ContainerInstall:
    """Return how to install OpsAssay with *extras* in a container, from *requirement*: a wheel, or pip's notation.

    None: a wheel of the running OpsAssay. Raises UserError for a folder, and for a wheel that cannot be read.
    """
    if requirement is None:
        return ContainerInstall(f"{PLACE}/{WHEEL}[{extras}]", WHEEL, own_wheel())
    named = _WHEEL_PATH.fullmatch(requirement)
    if named is None:
        if Path(requirement).is_dir():
            raise UserError(
                f"--install {requirement} is a folder, which no container sees; make a wheel of it with "
                f"`pip wheel --no-deps -w dist {shlex.quote(requirement)}` and name that."
            )
        return ContainerInstall(requirement)
    path = Path(named["path"])
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"--install {path} cannot be read ({error.strerror}); name a wheel that is there.") from error
    return ContainerInstall(f"{PLACE}/{path.name}{named['extras'] or f'[{extras}]'}", path.name, content)


def own_wheel() -> bytes:
    """Return the content of a reproducible wheel of the running OpsAssay; raises UserError if it is not installed."""
    package = Path(opsassay.__file__).parent
    try:
        installed = distribution("opsassay")
    except PackageNotFoundError as error:
        raise UserError(f"This OpsAssay is not installed, so it has no wheel; {install_hint('data')}.") from error
    files = {f"opsassay/{name}": content for name, content in files_below(package).items()}
    if not (package / "examples").is_dir():  # in a checkout they lie at its top
        beside = package.parents[1] / "examples"
        files |= {f"opsassay/examples/{name}": content for name, content in files_below(beside).items()}
    info = WHEEL.removesuffix("-py3-none-any.whl") + ".dist-info"
    for name in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        files[f"{info}/{name}"] = (installed.read_text(name) or "").encode()
    files[f"{info}/WHEEL"] = _METADATA.encode()
    record = [f"{name},sha256={_digest_of_content(content)},{len(content)}\n" for name, content in files.items()]
    files[f"{info}/RECORD"] = "".join([*record, f"{info}/RECORD,,\n"]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():  # with the date of no day, so that an image is built once for all tasks
            entry = zipfile.ZipInfo(name)
            mode = 0o100755 if content.startswith(b"#!") else 0o100644
            entry.external_attr, entry.compress_type = mode << 16, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return packed.getvalue()


def files_below(folder: Path) -> dict[str, bytes]:
    """Return relative path to content of all files below *folder* but hidden files, __pycache__ and node_modules."""
    found = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    made = ("__pycache__", "node_modules")
    kept = {name: path for name, path in found.items() if not any(p in made or p[0] == "." for p in name.parts)}
    return {name.as_posix(): path.read_bytes() for name, path in kept.items()}


def _digest_of_content(content: bytes) -> str:
    """Return the SHA-256 of *content* in the notation of a wheel's RECORD file."""
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
