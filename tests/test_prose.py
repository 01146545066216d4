"""Pages and messages are in plain English: words that make a sentence hard to read have a budget that only falls."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
CLI = ROOT / "src" / "opsassay" / "cli"

HARD_TO_READ = {
    "beside": r"(?<!`)\bbeside\b",  # not the folder of that name
    "who": r"(?:^[\s|*>-]*|[.!?:;,|(]\s+)who\b(?!&)",  # where it opens a clause
    "nobody": r"(?<!`)\bnobody\b(?!`)",  # not the user of that name
    "whoever": r"\bwhoever\b",
    "of which": r"\bof which\b",
    "what": r"(?:^[\s|*>-]*|[.!?:]\s+\**)(?-i:What(?:ever)?)\b(?![^.]*\?)",  # where it opens a sentence that asks nothing
}
BUDGET = dict.fromkeys(HARD_TO_READ, 0) | {"what": 15}
"""How often each may stand in pages and in the messages of commands together; no page has one of them."""

LONGEST_LINE = 160
LONG_LINES = {"grading.md": "one string of JSON, which has no line breaks"}
"""Pages with a long line that is neither a row of a table nor a command."""


def messages(path: Path) -> Iterator[str]:
    """Yield every text of *path*: messages, help and docstrings."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def counted(text: str) -> Counter[str]:
    found = {name: len(re.findall(rule, text, re.IGNORECASE | re.MULTILINE)) for name, rule in HARD_TO_READ.items()}
    return Counter({name: count for name, count in found.items() if count})


def over(budget: dict[str, int], texts: dict[Path, list[str]]) -> tuple[dict[str, int], list[str]]:
    """Return the counts that exceed *budget*, and where every word was found."""
    found = {path.relative_to(ROOT): sum(map(counted, parts), Counter()) for path, parts in texts.items()}
    total = sum(found.values(), Counter())
    where = [f"{path}: {dict(here)}" for path, here in found.items() if here]
    return {name: total[name] for name, most in budget.items() if total[name] > most}, where


def test_words_that_are_hard_to_read_stay_within_their_budget():
    texts = {page: [page.read_text(encoding="utf-8")] for page in sorted(DOCS.rglob("*.md"))}
    texts |= {path: list(messages(path)) for path in sorted(CLI.rglob("*.py"))}
    found, where = over(BUDGET, texts)
    assert found == {}, "\n".join(["say who does what, in the order subject, verb, object:", *where])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Who stops calling starves its callees.", {"who": 1}),
        ("The table says: who is to blame", {"who": 1}),
        ("| Who&When | yes |", {}),
        ("users who wait", {}),
        ("It is here. What is there is gone.", {"what": 1}),
        ("## What it does\n\nWhat is it? Say what it is.", {}),
        ("as `nobody`, or nobody at all", {"nobody": 1}),
        ("Besides that, beside this; whoever of which", {"beside": 1, "whoever": 1, "of which": 1}),
    ],
)
def test_words_are_counted_where_they_make_a_sentence_hard_to_read(text, words):
    assert counted(text) == Counter(words)


def long_lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines()
    long = [(n, line) for n, line in enumerate(lines, 1) if len(line) > LONGEST_LINE]
    return [f"{path.relative_to(ROOT)}:{n}: {len(line)}" for n, line in long if not line.startswith(("|", "$ "))]


def test_no_source_line_of_a_page_is_long():
    pages = [page for page in DOCS.rglob("*.md") if page.name not in LONG_LINES]
    others = [ROOT / name for name in ("README.md", "CHANGELOG.md")]
    assert len(pages) > 25
    assert [line for page in (*others, *sorted(pages)) for line in long_lines(page)] == []


def test_pages_that_may_have_long_lines_need_it():
    assert {name: len(long_lines(DOCS / name)) for name in LONG_LINES} == {"grading.md": 1}
