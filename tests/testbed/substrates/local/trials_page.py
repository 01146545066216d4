"""What docs/own-system.md says of trials, as tests type it."""

from __future__ import annotations

import json
from pathlib import Path

from test_docs import ROOT, blocks, commands_in

PAGE = ROOT / "docs" / "own-system.md"


def scenario_of_the_page() -> str:
    (found,) = (block for block in blocks(PAGE, "yaml") if "oracles:" in block)
    return found


def plan_of_the_page() -> str:
    return PAGE.read_text().partition("And `trials.yaml`: `")[2].partition("`")[0]


def commands_of_the_page() -> list[str]:
    section = PAGE.read_text().partition("## Trials")[2].partition("\n## ")[0]
    return commands_in(section)


def certificates(store: Path) -> dict[str, bool]:
    """Return by the oracle of each run of *store* whether it is certified."""
    verdicts = [json.loads(file.read_text()) for file in store.glob("runs/*/*/verdicts/default.json")]
    return {one["solver"]: one["metrics"]["certificate"]["value"] == 1.0 for one in verdicts}
