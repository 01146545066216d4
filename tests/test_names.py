"""Names: a class name means one thing in src, and words that need a glossary are not used."""

from __future__ import annotations

import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
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

OF_THE_FIELD = {
    "acted": "effect confirmed",
    "added": "latency delta",
    "begun": "started",
    "bites": "effect confirmed",
    "boards": "leaderboard",
    "bundle": "environment",
    "carried": "propagation gate",
    "chamber": "sandbox init",
    "counting": "text",
    "course": "timeline",
    "culprit": "blamed step",
    "desk": "tool session",
    "desks": "tool sessions",
    "domains": "evals",
    "effort": "usage",
    "fate": "packet decision",
    "furnish": "populate",
    "furnished": "populated",
    "furnishing": "population",
    "gathering": "evidence collection",
    "given": "external submissions",
    "head": "task info",
    "heads": "task info",
    "laboratory": "environment",
    "looked": "read",
    "looks": "samples",
    "mended": "repaired",
    "mishap": "runtime fault",
    "mishaps": "runtime faults",
    "outside": "untrusted input, or external agent",
    "pace": "load normalisation",
    "parted": "split windows",
    "posture": "verdict on held-out systems",
    "pretended": "hypothetical root",
    "reach": "impact closure",
    "room": "preflight",
    "said": "text, or error sentence",
    "scene": "context",
    "seal": "sandbox",
    "seeing": "telemetry queries",
    "sham": "placebo",
    "shelf": "cache",
    "sight": "telemetry view",
    "signs": "signature checks",
    "skeleton": "topology generator",
    "spent": "usage",
    "strain": "stress",
    "turns": "machine lock",
    "usual": "baseline",
    "warden": "sandbox supervisor",
    "wording": "log templates",
}
"""Words that no module and no class has in its name, with the term of the field."""
ALLOWED = {"RequestHead", "_Given", "solvers/sandbox/seal.py", "telemetry/otlp/seal.py"}
"""The head of an HTTP request is its term; what else stands here waits for its own."""

SAYS_NOTHING_ALONE = {
    "acted",
    "at",
    "began",
    "begun",
    "bites",
    "called",
    "checked",
    "compared",
    "drawn",
    "felt",
    "found",
    "given",
    "graded",
    "joined",
    "judge",
    "kept",
    "known",
    "left",
    "look",
    "looked",
    "looks",
    "made",
    "mark",
    "marked",
    "meant",
    "named",
    "noticed",
    "numbered",
    "one",
    "ordered",
    "part",
    "placed",
    "said",
    "sent",
    "shown",
    "stands",
    "taken",
    "told",
    "written",
}
"""Words that are no whole name of a function: a name is a verb and its object, such as `read_status` for `look`."""

ONE_WORD_BUDGET = 22
"""How many functions have one word for a name and no docstring: this number only falls."""

_WORD = re.compile(rf"(?<![A-Za-z])({'|'.join(PLAIN_TERM)})(?![A-Za-z])", re.IGNORECASE)
_ONE_WORD = re.compile(r"( {4})?(?:async )?def (_*[a-z0-9]+)\(")
_SIGNATURE_END = re.compile(r":(?: \.\.\.)?(?:  #.*)?$")
_IDENTIFIER = re.compile(rf"(?<![a-z])({'|'.join(PLAIN_TERM | IDENTIFIER_ONLY)})(?![a-z])", re.IGNORECASE)


@cache
def defined(kind: str) -> list[tuple[str, str]]:
    """Return (name, ``file:line``) of every class or function of the package; syntax trees take 30 times as long."""
    begins = re.compile(rf"^ *{kind} (\w+)[(:\[]")
    return [
        (found[1], f"{path.relative_to(SRC)}:{number}")
        for path in sorted(SRC.rglob("*.py"))
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (found := begins.match(line))
    ]


def class_names() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name, place in defined("class"):
        found[name].append(place)
    return found


def test_a_class_name_is_defined_once():
    assert {name: paths for name, paths in class_names().items() if len(paths) > 1} == {}


def words_of(name: str) -> set[str]:
    """Return the words of a snake_case or CamelCase name, in small letters."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


def test_modules_and_classes_have_the_terms_of_the_field():
    modules = {str(path.relative_to(SRC)): words_of(path.stem) for path in SRC.rglob("*.py")}
    classes = {name: words_of(name) for name in class_names()}
    found = {name: words & set(OF_THE_FIELD) for name, words in (modules | classes).items() if name not in ALLOWED}
    assert {name: [OF_THE_FIELD[word] for word in words] for name, words in found.items() if words} == {}


def test_no_function_is_called_by_a_generic_word_alone():
    functions = defined("(?:async )?def")
    found = [f"{place}: {name}" for name, place in functions if name.strip("_") in SAYS_NOTHING_ALONE]
    assert len(functions) > 5000
    assert found == [], "say what of what: a verb and its object"


def one_word_functions(path: Path) -> Iterator[str]:
    """Yield the functions and methods of *path* whose name is one word and that have no docstring; not nested ones."""
    lines, outer = path.read_text(encoding="utf-8").splitlines(), ""
    for number, line in enumerate(lines):
        outer = line if line[:1].isalpha() else outer
        found = _ONE_WORD.match(line)
        if found is None or (found[1] and not outer.startswith("class ")):
            continue
        ends = next(at for at in range(number, len(lines)) if _SIGNATURE_END.search(lines[at]))
        if not lines[ends + 1].lstrip().startswith('"""'):
            yield f"{path.relative_to(SRC)}:{number + 1}: {found[2]}"


def test_functions_of_one_word_without_a_docstring_stay_within_their_budget():
    found = [place for path in sorted(SRC.rglob("*.py")) for place in one_word_functions(path)]
    assert len(found) <= ONE_WORD_BUDGET, "name a verb and its object:\n" + "\n".join(found)


def private_words(path: Path) -> Iterator[str]:
    """Yield where *path* has a word of the list: in identifiers, strings and comments, or anywhere on a page."""
    if path.suffix == ".md":
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield from (f"{path.relative_to(ROOT)}:{number}: {found}" for found in _WORD.findall(line))
        return
    content = path.read_text(encoding="utf-8")
    if not (_WORD.search(content) or _IDENTIFIER.search(content)):
        return  # as of most files, and reading tokens is slow
    with path.open("rb") as file:
        tokens = list(tokenize.tokenize(file.readline))
    for token in tokens:
        if token.type in (tokenize.STRING, tokenize.COMMENT):
            found = _WORD.findall(token.string)
        else:
            found = _IDENTIFIER.findall(token.string) if token.type == tokenize.NAME else []
        yield from (f"{path.relative_to(ROOT)}:{token.start[0]}: {word}" for word in found)


@pytest.mark.parametrize("folder", ["src/opsassay", "docs", "examples"])
def test_private_words_are_not_used(folder):
    paths = [path for suffix in ("py", "md") for path in sorted((ROOT / folder).rglob(f"*.{suffix}"))]
    paths = [path for path in paths if not {".venv", "node_modules"} & set(path.parts)]
    terms = ", ".join(f"{word}: {term}" for word, term in (PLAIN_TERM | IDENTIFIER_ONLY).items())
    assert [found for path in paths for found in private_words(path)] == [], f"say instead {terms}"
