"""Hooks of the site: pages of commands in its navigation, JSON Schemas, and links out of this folder as names of files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!commands/|[a-z-]+\.md)([^)\s]*)\)")


def on_config(config: Any) -> Any:
    """Return the configuration with every page of a command in the navigation, under the reference."""
    pages = sorted(Path(config.docs_dir, "commands").glob("*.md"))
    reference = next(group["Reference"] for group in config.nav if "Reference" in group)
    reference.append({"Commands": [f"commands/{page.name}" for page in pages]})
    return config


def on_post_build(config: Any) -> None:
    """Write what programs read into the site: the JSON Schema of every file that people write, and llms.txt."""
    from opsassay.cli.new.schema import KINDS, schema_of

    site = Path(config.site_dir)
    (site / "schemas").mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        (site / "schemas" / f"{kind}.json").write_text(json.dumps(schema_of(kind), indent=1) + "\n", encoding="utf-8")
    (site / "llms.txt").write_text(llms_text(config.site_name, Path(config.docs_dir), config.nav), encoding="utf-8")


def llms_text(name: str, docs: Path, nav: list[dict[str, Any]]) -> str:
    """Return the index of the pages of *nav* for language models: a heading for each group, a line for each page."""
    lines = [f"# {name}", "", f"> {_first_words(docs / 'index.md')}"]
    for title, pages in _groups(nav):
        lines += ["", f"## {title}", ""]
        for page in pages:
            heading = (docs / page).read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
            lines.append(f"- [{heading}]({page.removesuffix('.md')}/): {_first_words(docs / page)}")
    return "\n".join(lines) + "\n"


def _groups(nav: list[dict[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Yield every group of *nav* with its pages; a group inside another one follows it."""
    for group in nav:
        for title, pages in group.items():
            if isinstance(pages, str):
                yield title, [pages]
            else:
                yield title, [page for page in pages if isinstance(page, str)]
                yield from _groups([page for page in pages if isinstance(page, dict)])


def _first_words(page: Path) -> str:
    """Return the first sentence of *page*, links as their words."""
    paragraphs = page.read_text(encoding="utf-8").split("\n\n")
    first = next((p for p in paragraphs if p[0] not in "#|`!["), "")
    words = " ".join(re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", first).split())
    return re.split(r"(?<=[.:]) (?=[A-Z`])", words)[0]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the text of a page with links to files of the repository as their names: the site does not hold them."""
    return _OUTSIDE.sub(lambda found: f"{found.group(1)} (`{found.group(2)}`)", markdown)
