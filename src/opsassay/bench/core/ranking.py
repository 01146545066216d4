"""Which run of a cell counts, what its solver is called, and whether it may be ranked: one rule for every domain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from opsassay.bench.core.store import FINISHED
from opsassay.model.run import Run

ORACLE = "oracle:"
"""Begins the names of oracles: scripts that know the truth."""

NOT_RANKED = {
    "unsealed": "it ran unsealed",
    "canary": "its answer repeats the canary truth",
    "oracle": "it is an oracle, which knows the truth",
}


def why_not_ranked(run: Run) -> tuple[str, ...]:
    """Return the reasons for which *run* is not ranked: it was unsealed, it is flagged, or an oracle made it."""
    oracle = ("oracle",) if run.solver.name.startswith(ORACLE) else ()
    reasons = (*(("unsealed",) if run.isolation == "unsealed" else ()), *oracle, *run.flags)
    return tuple(NOT_RANKED.get(reason, reason) for reason in reasons)


def run_id(run: Run) -> str:
    """Return the name of an attempt, as its verdict has it."""
    return f"{run.cell}/{run.attempt}"


def solver_label(run: Run) -> str:
    """Return what the solver of *run* is called in tables: another arm is another row."""
    return run.solver.name if run.arm == "default" else f"{run.solver.name} ({run.arm})"


def counted(runs: Iterable[Run]) -> list[Run]:
    """Return the one run of every cell that counts, in their order: the first result that was not unsealed, else the first.

    A cell is run again to look again, or to seal what was not; to count every attempt would let anyone try until it fits.
    """
    found: dict[str, Run] = {}
    for run in runs:
        first = found.get(run.cell)
        better = first is not None and first.isolation == "unsealed" != run.isolation
        if run.status in FINISHED and (first is None or better):
            found[run.cell] = run
    return list(found.values())


def aborted_cells(runs: Iterable[Run]) -> dict[str, int]:
    """Return how many cells of each solver, by its label, were begun and aborted and never came to a result."""
    of_cell: dict[str, tuple[str, bool]] = {}
    for run in runs:
        ended = run.status in FINISHED or of_cell.get(run.cell, ("", False))[1]
        of_cell[run.cell] = (solver_label(run), ended)
    return dict(Counter(label for label, ended in of_cell.values() if not ended))


def most_repeats(runs: Iterable[Run]) -> int:
    """Return how often the most often repeated solver was run on one case; 1 when there is nothing."""
    return max(Counter((solver_label(run), run.item) for run in runs).values(), default=1)
