"""Names: a class name means one thing in src, and words that need a glossary are not used."""

from __future__ import annotations

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "opsassay"

PLAIN_TERM = {
    "told": "payload, event, reported, given",
    "wanted": "desired",
    "door": "agent endpoint",
    "doors": "agent endpoints",
    "keeper": "pod agent",
    "struck": "affected",
    "lent": "mounts",
    "surprises": "unexpected exits",
    "ailment": "health problem",
    "let_in": "start",
    "let_out": "stop",
}
IDENTIFIER_ONLY = {"ways": "mechanisms, paths"}

_WORD = re.compile(rf"(?<![A-Za-z])({'|'.join(PLAIN_TERM)})(?![A-Za-z])", re.IGNORECASE)
_IDENTIFIER = re.compile(rf"(?<![a-z])({'|'.join(PLAIN_TERM | IDENTIFIER_ONLY)})(?![a-z])", re.IGNORECASE)


def class_names() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SRC.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(SRC)))
    return found


def test_a_class_name_is_defined_once():
    assert {name: paths for name, paths in class_names().items() if len(paths) > 1} == {}


def private_words(path: Path) -> Iterator[str]:
    """Yield where *path* has a word of the list: in identifiers, strings and comments, or anywhere on a page."""
    if path.suffix == ".md":
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield from (f"{path.relative_to(ROOT)}:{number}: {found}" for found in _WORD.findall(line))
        return
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    for token in tokens:
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            found = _WORD.findall(token.string)
        else:
            found = _IDENTIFIER.findall(token.string) if token.type == tokenize.NAME else []
        yield from (f"{path.relative_to(ROOT)}:{token.start[0]}: {word}" for word in found)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["src/opsassay", "docs", "examples"])
def test_private_words_are_not_used(folder):
    paths = [path for suffix in ("py", "md") for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))]
    terms = ", ".join(f"{word}: {term}" for word, term in (PLAIN_TERM | IDENTIFIER_ONLY).items())
    assert [found for path in paths for found in private_words(path)] == [], f"say instead {terms}"
