"""One browser for all tests of pages: its driver allows one at a time in a process."""

from __future__ import annotations

import shutil

import pytest

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e .[dev]")
    names = ("chromium", "chromium-browser", "google-chrome")
    executable = next((path for name in names if (path := shutil.which(name))), None)
    if executable is None:
        pytest.skip(f"no Chromium: none of {', '.join(names)} is on the PATH, so no page was opened")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=executable, args=FLAGS)
        yield chromium
        chromium.close()
