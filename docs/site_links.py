"""Hooks of the site: pages of commands in its navigation, JSON Schemas, and links out of this folder as names of files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!commands/|[a-z-]+\.md)([^)\s]*)\)")


def on_config(config: Any) -> Any:
    """Return the configuration with every page of a command in the navigation."""
    pages = sorted(Path(config.docs_dir, "commands").glob("*.md"))
    config.nav.append({"Commands": [f"commands/{page.name}" for page in pages]})
    return config


def on_post_build(config: Any) -> None:
    """Write the JSON Schema of every file that people write into the site, made from the models as they are."""
    from opsassay.cli.schema_command import KINDS, schema_of

    folder = Path(config.site_dir, "schemas")
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        (folder / f"{kind}.json").write_text(json.dumps(schema_of(kind), indent=1) + "\n", encoding="utf-8")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the text of a page with links to files of the repository as their names: the site does not hold them."""
    return _OUTSIDE.sub(lambda found: f"{found.group(1)} (`{found.group(2)}`)", markdown)
