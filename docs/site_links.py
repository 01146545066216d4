"""Hooks of the site: the pages of commands in its navigation, and links that lead out of this folder as names of files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!commands/|[a-z-]+\.md)([^)\s]*)\)")


def on_config(config: Any) -> Any:
    """Return the configuration with every page of a command in the navigation."""
    pages = sorted(Path(config.docs_dir, "commands").glob("*.md"))
    config.nav.append({"Commands": [f"commands/{page.name}" for page in pages]})
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the text of a page with links to files of the repository as their names: the site does not hold them."""
    return _OUTSIDE.sub(lambda found: f"{found.group(1)} (`{found.group(2)}`)", markdown)
