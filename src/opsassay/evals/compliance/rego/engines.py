"""The installed Rego engines, and which of them decide: OPA, else two others that must agree."""

from __future__ import annotations

import functools
import mmap
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from opsassay.core.errors import UserError
from opsassay.core.extras import install_hint
from opsassay.evals.compliance.rego import worker

PLACE = str(Path(worker.OPA_PLACE).parent)
_GO = {"data_bytes": 2**30}
_LIMITS = {"regorus": {}, "rego-cpp": {"address_space_bytes": 2**39}}
"""rego-cpp reserves 256 GiB, to write into: where no control group holds its memory, only its time is bounded."""
_LIBRARY = "opa-golib-python-bindings"
_MODULE = re.compile(rb"dep\tgithub\.com/open-policy-agent/opa\t(v[0-9.]+)")
_PROGRAM = re.compile(r"^Version: (1\.\S+)", re.MULTILINE)


@dataclass(frozen=True)
class RegoEngine:
    """One engine: its *key* in the worker, *label* with version, and files *shown* in the sandbox, by place there.

    *limits* override sandbox limits, for engines that reserve more addresses than they use memory.
    """

    key: str
    label: str
    shown: Mapping[str, Path]
    limits: Mapping[str, int] = field(default_factory=dict)


def engines_here(syntax: str = "v1") -> list[RegoEngine]:
    """Return every installed Rego engine for *syntax* (v0 or v1), OPA first, as a program or else as a library."""
    found = [_opa_program()] if syntax == "v0" else [_opa_program(), _opa_library()]
    found += [_engine_of_package("regorus", "regorus", "regorus", "gordon-to-regorus")]
    found += [] if syntax == "v0" else [_engine_of_package("rego-cpp", "rego-cpp", "regopy", "regopy")]
    return [one for one in found if one is not None]


def judges(syntax: str = "v1") -> list[RegoEngine]:
    """Return the engines that decide: OPA, or without it several that must agree; raises UserError for none.

    For the syntax v0 without the program `opa` that is regorus alone; verdicts use v1.
    """
    here = engines_here(syntax)
    if here and here[0].key in ("opa", "library"):
        return here[:1]
    if len(here) < (1 if syntax == "v0" else 2):
        raise UserError(f"Rego policies are judged by OPA or by regorus and regopy together; {install_hint('ciso')}.")
    return here


@functools.cache
def _opa_program() -> RegoEngine | None:
    """Return the engine of the program ``opa`` on the PATH, None unless it is version 1 or later."""
    if (path := shutil.which("opa")) is None:
        return None
    said = subprocess.run([path, "version"], capture_output=True, text=True, check=False).stdout
    number = _PROGRAM.search(said)
    return RegoEngine("opa", f"OPA {number[1]} (opa)", {worker.OPA_PLACE: Path(path)}, _GO) if number else None


@functools.cache
def _opa_library() -> RegoEngine | None:
    """Return the engine of OPA as a library, with its version; None when it is not installed."""
    if (folder := _package_folder("opa_bindings")) is None:
        return None
    with (folder / "libopabridge.so").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        number = _MODULE.search(data)
        label = f"OPA {number[1].decode().removeprefix('v') if number else 'of unknown version'}"
    return RegoEngine("library", f"{label} ({_LIBRARY} {version(_LIBRARY)})", {f"{PLACE}/opa_bindings": folder}, _GO)


@functools.cache
def _engine_of_package(key: str, name: str, module: str, distribution: str) -> RegoEngine | None:
    """Return the engine *key* of the Python package *module* (pip: *distribution*), called *name*; None if missing."""
    if (folder := _package_folder(module)) is None:
        return None
    libraries = folder.with_name(f"{module}.libs")  # what a wheel brings of the system
    shown = {f"{PLACE}/{one.name}": one for one in (folder, libraries) if one.exists()}
    return RegoEngine(key, f"{name} ({distribution} {version(distribution)})", shown, _LIMITS[key])


def _package_folder(module: str) -> Path | None:
    """Return the folder of the package *module*, None when it is not installed."""
    found = find_spec(module)
    return Path(next(iter(found.submodule_search_locations))) if found and found.submodule_search_locations else None
