"""Fixtures that every stage shares."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A machine may be busy with other things, and no test says how fast it is. Draws follow from the test alone, so that two
# runs on one commit say the same; `make hostile` draws others, and more, each time.
settings.register_profile(
    "busy", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize="HOSTILE_DRAWS" not in os.environ
)
settings.load_profile("busy")

AXE = "4.10.2"
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


SUITES = ("live", "browser", "alone", "slow", "long", "faults", "kubernetes")
"""Marks of tests that `make test` leaves out."""
NAMED = {
    "system": "system",
    "live": "live",
    "browser": "browser",
    "alone": "alone",
    "long": "long",
    "slow": "slow|sampled",
}
"""Marks whose tests make looks for only in the files that name them, or what makes a test one of them."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file whose tests all have a mark that the run leaves out (``-m "not live and ..."``)."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    left_out = re.findall(r"\bnot (\w+)", config.getoption("markexpr") or "")
    marked = re.search(r"^pytestmark = (.*)$", collection_path.read_text(encoding="utf-8"), re.MULTILINE)
    of_file = re.findall(r"mark\.(\w+)", marked[1]) if marked else []
    return True if set(of_file) & set(left_out) & set(SUITES) else None


def in_share(test: str, most: int | None = None) -> bool:
    """Tell whether a run that takes one in ``OPSASSAY_SHARE`` of the sampled cases, or one in *most*, takes *test*.

    ``OPSASSAY_DRAW`` draws them: CI names the commit, so that other commits take others. All without the variable.
    """
    share = int(os.environ.get("OPSASSAY_SHARE", "1"))
    share = share if most is None else min(share, most)
    drawn = hashlib.sha256(f"{os.environ.get('OPSASSAY_DRAW', '')} {test}".encode()).digest()
    return int.from_bytes(drawn[:4]) % share == 0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Make all but one in *every* cases of a test that is marked ``sampled(every=N)`` slow, and keep this run's share.

    A test that is marked ``drawn`` is one of the cases whose share is kept, one in *most* of ``drawn(most=2)``. Of the
    files with other slow tests a run that takes a share takes every second one.

    Fail where make would never come to a test: it looks for some marks only in the files that name them.
    """
    counts: Counter[str] = Counter()
    left_out: list[pytest.Item] = []
    for item in items:
        if (drawn := item.get_closest_marker("drawn")) and not in_share(item.nodeid, drawn.kwargs.get("most")):
            left_out.append(item)
        if (mark := item.get_closest_marker("sampled")) is None:
            if item.get_closest_marker("slow") and not in_share(item.nodeid.partition("::")[0], most=2):
                left_out.append(item)
            continue
        function = item.nodeid.partition("[")[0]
        if counts[function] % mark.kwargs.get("every", len(items)):
            item.add_marker(pytest.mark.slow)
            left_out += [] if in_share(item.nodeid) else [item]
        counts[function] += 1
    if left_out:
        items[:] = [item for item in items if item not in set(left_out)]
        config.hook.pytest_deselected(items=left_out)
    for mark, named in NAMED.items():
        for path in {item.path for item in items if item.get_closest_marker(mark)}:
            if not re.search(rf"mark\.({named})\b", path.read_text(encoding="utf-8")):
                raise pytest.UsageError(f"{path} has tests with the mark {mark}: write pytest.mark.{mark} in that file")


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Return the folder of real public data, or skip loudly: it is not part of the project."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("OPSASSAY_DATA", default)).resolve()
    if not (folder / "README.md").exists():
        pytest.skip(f"no real data at {folder}; set OPSASSAY_DATA to the folder that holds nezha-datapacks and others")
    return folder


@pytest.fixture(scope="module")
def browser():
    """Return a browser for the tests of a module: its driver keeps an event loop in this thread until it is closed."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e .[dev]")
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next((path for name in names if (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip(f"no Chromium: none of {', '.join(names)} is on the PATH, so no page was opened")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=executable, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe-core, which npm brings once into the cache of this user."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opsassay" / f"axe-core-{AXE}"
    script = cache / "package" / "axe.min.js"
    if not script.exists():
        if shutil.which("npm") is None:
            pytest.skip("npm is not installed, so that axe-core has looked at no page")
        cache.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(
            ["npm", "pack", "--silent", f"axe-core@{AXE}"], cwd=cache, capture_output=True, text=True, timeout=120,
            check=False,
        )  # fmt: skip
        if got.returncode:
            pytest.skip(f"npm cannot bring axe-core, which has looked at no page: {got.stderr[-300:]}")
        subprocess.run(["tar", "xf", f"axe-core-{AXE}.tgz"], cwd=cache, check=True)
    return script.read_text(encoding="utf-8")
