"""Writes the pages as files with relative links, all or none, such as an artefact of a CI job."""

from __future__ import annotations

import shutil
import tempfile
from collections import deque
from pathlib import Path

from opsassay.core.errors import OperationError, OpsAssayError, UserError
from opsassay.ui.browsing.site import HOME, Answered, StorePages, home_from
from opsassay.ui.page import render


def require_new_folder(out: Path) -> None:
    """Raise UserError when *out* exists and is not an empty folder."""
    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise UserError(f"{out} is there already and is no empty folder; name a new one.")


def export(site: StorePages, out: Path) -> tuple[int, list[str]]:
    """Write every page of *site* into the new folder *out*; return their number and a line for each page left out.

    Raises UserError when *out* is there and not empty, OperationError when it cannot be written.
    """
    require_new_folder(out)
    partial: Path | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=out.parent, prefix=f".{out.name}."))
        count, problems = _write_pages(site, partial)
        partial.chmod(0o755)
        partial.replace(out)
    except OSError as error:
        raise OperationError(f"{out} cannot be written: {error.strerror}; name another folder.") from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
    return count, problems


def _write_pages(site: StorePages, folder: Path) -> tuple[int, list[str]]:
    """Write each page that can be reached from the first page into *folder*; return (number of pages, problems)."""
    waiting, seen, problems = deque([HOME]), {HOME}, []
    while waiting:
        address = waiting.popleft()
        try:
            files = site.files(address)
        except OpsAssayError as error:  # what one page cannot show costs this page alone
            problems.append(f"{address}: {error}")
            files = {address: _error_page(address, error)}
        for name, answered in files.items():
            path = folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(answered.text, encoding="utf-8", newline="\n")
        seen |= files.keys()
        found = frozenset[str]().union(*(answered.links for answered in files.values())) - seen
        waiting.extend(sorted(found))
        seen |= found
    return len(seen), problems


def _error_page(address: str, error: OpsAssayError) -> Answered:
    """Return the page that shows *error* in place of the one at *address*."""
    text = render("browse_error.html", "Nothing to show", text=str(error), home=home_from(address))
    return Answered(text, "html")
