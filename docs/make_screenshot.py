"""Take a picture of a report page with the system's Chromium: ``make_screenshot.py REPORT.html OUT.png [--width 1280]``."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def take(report: Path, out: Path, *, width: int, height: int | None, dark: bool) -> None:
    """Write *out*: the page at *width* CSS pixels, its first *height* pixels or all of it."""
    executable = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if executable is None:
        sys.exit(f"None of {', '.join(CHROMIUM)} is on the PATH; install Chromium.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        page = browser.new_page(
            viewport={"width": width, "height": height or 900}, color_scheme="dark" if dark else "light"
        )
        page.goto(report.resolve().as_uri())
        page.wait_for_function("window.opsassayReport && window.opsassayReport.shown.view")
        out.parent.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=out, full_page=height is None)
        browser.close()


def main() -> None:
    """Read the command line and take the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=1280, help="CSS pixels")
    parser.add_argument("--height", type=int, help="CSS pixels from the top; the whole page when left out")
    parser.add_argument("--dark", action="store_true")
    chosen = parser.parse_args()
    if not chosen.report.is_file():
        sys.exit(f"There is no report {chosen.report}; make one with `opsassay demo`.")
    take(chosen.report, chosen.out, width=chosen.width, height=chosen.height, dark=chosen.dark)


if __name__ == "__main__":
    main()
