"""The page of formats says what the code does: every count of every API, and the versions that are read."""

from __future__ import annotations

import re
from pathlib import Path

from opsassay.solvers.proxy.apis.counts import COUNTS
from opsassay.solvers.proxy.formats.atif import NEWEST

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")


def test_the_table_of_counts_is_the_one_of_the_code() -> None:
    rows = re.findall(r"^\| (\w+) \| `(\w+)` \| (.*) \|$", PAGE, re.MULTILINE)
    found: dict[str, dict[str, str]] = {}
    for api, ours, theirs in rows:
        found.setdefault(api, {})[ours] = theirs.replace("`", "").replace(" or ", " | ")
    assert found == COUNTS


def test_the_versions_of_atif_are_those_of_the_code() -> None:
    assert f"ATIF-v1.0 to v1.{NEWEST}" in PAGE
    assert f"| ATIF | 1.0 to 1.{NEWEST}; without a version as 1.{NEWEST}" in PAGE
