"""Modules and files of the package that tests, benchmarks, examples and docs name are there.

An attack that reads a file of before would be held by its absence, and code in a string is seen by no linter.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
FOLDERS = ("tests", "benchmarks", "examples", "docs")
PAGES = [
    path
    for folder in FOLDERS
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".md", ".sh", ".yaml"} and path.is_file() and "golden" not in path.parts
]
_IMPORT = re.compile(r"(?:from (opsassay(?:\.\w+)*) import \(?\s*(\w+)|(?:import|-m) (opsassay(?:\.\w+)+))")
_FILE = re.compile(r"(?:PACKAGE/|\[\"package\"\], \")((?:\w+/)*\w+\.py)")


@cache
def is_module(name: str) -> bool:
    path = SRC / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@cache
def source(module: str) -> str:
    path = SRC / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")


def test_imports_name_what_is_there():
    missing = []
    for page in PAGES:
        for module, name, whole in _IMPORT.findall(page.read_text(encoding="utf-8")):
            if not is_module(whole or module):
                missing.append(f"{page.relative_to(ROOT)}: {whole or module}")
            elif name and not is_module(f"{module}.{name}") and not re.search(rf"\b{name}\b", source(module)):
                missing.append(f"{page.relative_to(ROOT)}: {module}.{name}")
    assert missing == []


def test_attacks_on_files_of_the_package_name_files_that_are_there():
    named = [(page.name, file) for page in PAGES for file in _FILE.findall(page.read_text(encoding="utf-8"))]
    assert len(named) >= 3
    assert [one for one in named if not (SRC / "opsassay" / one[1]).is_file()] == []


def test_paths_of_code_in_the_docs_are_there():
    known = [
        f"/{path.relative_to(ROOT)}"
        for top in ("src", "tests", "benchmarks", "examples")
        for path in (ROOT / top).rglob("*.py")
    ]
    pages = sorted((ROOT / "docs").glob("*.md"))
    named = {
        (page.name, path)
        for page in pages
        for path in re.findall(r"`((?:\w+/)+[a-z_]+\.py)`", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert sorted(one for one in named if not any(path.endswith(f"/{one[1]}") for path in known)) == []
