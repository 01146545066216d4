"""The page that compares two solvers of a store."""

from __future__ import annotations

from opsassay.core.errors import UserError
from opsassay.ui.browsing.beside import beside_page
from opsassay.ui.browsing.rows import Shown, View, board_page, solver_page, trials_page
from opsassay.ui.browsing.stored_incidents import task_name
from opsassay.ui.compared import MOST_FLIPPED, compared
from opsassay.ui.plain import plain

FLIPPED_IN_FILES = 25
"""Tasks that flipped of which a file shows both sides: each is a page, for every pair of solvers."""


def compare_view(shown: Shown, domain: str, one: str, two: str) -> View:
    """Return the page that compares the solvers *one* and *two* of *domain*; raises UserError where nothing can be said."""
    standing = shown.verdicts.standing(shown.catalogue, domain)
    missing = [plain(name, 120) for name in (one, two) if name not in standing.entries]
    if missing:
        raise UserError(
            f"{' and '.join(missing)} has no graded run; grade the store with `opsassay score run` and reload."
        )
    first, second = standing.entries[one], standing.entries[two]
    return {
        **compared(
            first,
            second,
            standing.board.metrics,
            lambda task: beside_page(domain, task, one, two),
            lambda task: task_name(shown, domain, task),
            MOST_FLIPPED if shown.live else FLIPPED_IN_FILES,
        ),
        "one": {"name": plain(one, 120), "page": solver_page(domain, one)},
        "two": {"name": plain(two, 120), "page": solver_page(domain, two)},
        "domain": plain(domain, 60),
        "board": board_page(domain),
        "trials": trials_page(domain),
    }
