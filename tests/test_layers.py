"""Names of code in strings, which registries load, go down the layers as imports do."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
NAMED = re.compile(r"opsassay(\.\w+)+(:\w+)?")
KNOWN = {("opsassay.core.schema.faults", "opsassay.testbed.catalogue")}
"""Arrows that go up still: the rows of fault types are made by the testbed's catalogue."""


def layers():
    """Return the number of the layer of each room, 0 at the top, as the import contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (rooms,) = [one["layers"] for one in contracts if one.get("containers") == ["opsassay"]]
    return {name.strip(" ()"): number for number, line in enumerate(rooms) for name in line.split("|")}


def exists(name):
    path = SRC.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@functools.cache
def strings():
    """Return (module, string) for every string of the package that names code."""
    found = []
    for path in sorted(SRC.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if not re.search(r"""["']opsassay\.""", source):
            continue
        module = ".".join(path.relative_to(SRC).with_suffix("").parts)
        nodes = ast.walk(ast.parse(source))
        texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        found += [(module, text) for text in texts if NAMED.match(text) and " " not in text]
    return found


def room(module):
    return module.split(".")[1] if "." in module else module


def test_what_registries_name_is_in_a_layer_below():
    number, named = layers(), [(module, text.partition(":")[0].rstrip(".")) for module, text in strings()]
    named = [(module, name) for module, name in named if exists(name) and {room(module), room(name)} <= set(number)]
    assert len(named) > 50
    assert {pair for pair in named if number[room(pair[0])] > number[room(pair[1])]} == KNOWN


def test_every_name_of_code_in_a_string_leads_somewhere():
    named = [text for _, text in strings() if re.fullmatch(r"opsassay(\.\w+)+:\w+", text)]
    assert len(named) > 50
    assert [text for text in named if not exists(text.partition(":")[0])] == []


FILES = {"__init__", "domain", "tasks", "environment", "solve", "score", "report", "plan"}
TABLES_OF_PAPERS = {"tables", "itbench_tables", "statistics"}
"""These stand in the place of a report, or next to it, until they leave the package."""


def test_every_domain_has_the_same_files():
    domains = [path for path in (SRC / "opsassay" / "evals").iterdir() if (path / "domain.py").is_file()]
    names = {path.name: {file.stem for file in path.glob("*.py")} for path in domains if path.name != "runner"}
    none = {name: set() for name in names}
    assert len(names) == 5
    assert {name: files - FILES - TABLES_OF_PAPERS for name, files in names.items()} == none
    assert {name: FILES - {"report"} - files for name, files in names.items()} == none
    assert all(files & {"report", "tables"} for files in names.values())
