"""Attacks on the package aim at files that exist: one that looks for a file of before would be held by its absence."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "opsassay"
FOLDERS = ("tests/hostile", "tests/solvers/sandbox/attempts")
ATTACKS = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
_FILE = re.compile(r"(?:PACKAGE/|\[\"package\"\], \")((?:\w+/)*\w+\.py)")
_MODULE = re.compile(r"(?:from|import) (opsassay(?:\.\w+)+)")


def test_attacks_name_files_and_modules_of_the_package_as_they_are():
    files = [(path.name, found) for path in ATTACKS for found in _FILE.findall(path.read_text())]
    modules = [(path.name, found) for path in ATTACKS for found in _MODULE.findall(path.read_text())]
    assert len(files) >= 3
    assert [one for one in files if not (PACKAGE / one[1]).is_file()] == []
    assert [one for one in modules if not _is_there(one[1])] == []


def _is_there(module: str) -> bool:
    """Return whether *module* is a module, or a name in one."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        parent, _, name = module.rpartition(".")
        return find_spec(parent) is not None and re.search(rf"\b{name}\b", Path(find_spec(parent).origin).read_text())
