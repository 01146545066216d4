"""The identity of a method as a solver: name, configuration, package version and source code."""

from __future__ import annotations

import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable
from importlib.metadata import packages_distributions, version
from pathlib import Path

from opsassay.core.schema.run import Solver
from opsassay.solvers.methods.base import Method


def solver_of(method: Method) -> Solver:
    """Return the name, configuration and package version of *method* that identify it as a solver."""
    return Solver(name=method.name, configuration=dict(method.configuration), version=_package_version(method))


def hash_of(solver: Solver, sources: Iterable[Path]) -> str:
    """Return the SHA-256 over *solver* and the names and contents of its *sources*."""
    total = hashlib.sha256(solver.digest().encode())
    for file in sources:
        total.update(f"\0{file.name}\0{hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
    return total.hexdigest()


def sources_of(solver: object) -> list[Path]:
    """Return the source files of *solver*'s class: its package folder, or its module.

    The whole folder counts because methods share code. A module outside a package counts with all imported modules of
    its folder, unless packages are installed there.
    """
    source = inspect.getsourcefile(type(solver))
    assert source is not None
    file, module = Path(source), sys.modules[type(solver).__module__]
    if module.__package__:
        return sorted(file.parent.glob("*.py"))
    if str(file.parent) in sysconfig.get_paths().values():
        return [file]
    imported = {Path(name) for one in list(sys.modules.values()) if (name := getattr(one, "__file__", None))}
    return sorted({file, *(beside for beside in imported if beside.parent == file.parent)})


def _package_version(method: Method) -> str:
    """Return the version of the method's top-level package, "" when it has none."""
    top_level = type(method).__module__.partition(".")[0]
    if said := getattr(sys.modules[top_level], "__version__", None):
        return str(said)
    installed = packages_distributions().get(top_level, [])
    return version(installed[0]) if installed else ""
