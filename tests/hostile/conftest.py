"""What comes from outside is hostile: each test here is an attempt, made as an attack and as the same act where it is allowed.

A file is a class of attempts (`CLASS`); `make hostile` runs all of them and prints how many were held. A property that is
drawn by hypothesis counts as one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

_counts: dict[str, Counter[str]] = defaultdict(Counter)


@pytest.fixture(autouse=True)
def _class_of_attempt(request: pytest.FixtureRequest, record_property) -> None:
    record_property("hostile class", request.module.CLASS)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    of = dict(report.user_properties).get("hostile class")
    if of is not None and (report.when == "call" or report.outcome == "skipped"):
        _counts[str(of)][report.outcome] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _counts:
        return
    terminalreporter.section("attempts from outside")
    terminalreporter.write_line(f"{'class':<44} {'held':>6} {'broke':>6} {'skipped':>8}")
    total: Counter[str] = Counter()
    for name in sorted(_counts, key=lambda name: int(name.split()[0])):
        of = _counts[name]
        total += of
        terminalreporter.write_line(f"{name:<44} {of['passed']:>6} {of['failed']:>6} {of['skipped']:>8}")
    terminalreporter.write_line(f"{'all':<44} {total['passed']:>6} {total['failed']:>6} {total['skipped']:>8}")


@pytest.fixture(scope="session")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the machine that nobody handed in."""
    secret = tmp_path_factory.mktemp("machine") / "secret.json"
    secret.write_text('{"secret": "of-the-machine-73190"}', encoding="utf-8")
    return secret
