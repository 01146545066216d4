"""Rules of every domain: which run of a cell counts, the display name of its solver, and whether it may be ranked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from opsassay.core import text as counting
from opsassay.core.schema.run import Run, RunStatus
from opsassay.evals.runner.store import FINISHED

HASH_SHOWN = 8
"""Digits of the hash after a solver's name."""

ORACLE = "oracle:"
"""Prefix of the names of oracles: scripts that know the truth."""

NOT_RANKED = {
    "unsealed": "it ran unsealed",
    "canary": "its answer repeats the canary truth",
    "oracle": "it is an oracle, which knows the truth",
}


def why_not_ranked(run: Run) -> tuple[str, ...]:
    """Return the reasons why *run* is not ranked: no sandbox, flags such as cheating, or an oracle; () if it is."""
    oracle = ("oracle",) if run.solver.name.startswith(ORACLE) else ()
    reasons = (*(("unsealed",) if run.isolation == "unsealed" else ()), *oracle, *run.flags)
    return tuple(NOT_RANKED.get(reason, reason) for reason in reasons)


def run_id(run: Run) -> str:
    """Return the id of the attempt, "cell/attempt", which verdicts refer to."""
    return f"{run.cell}/{run.attempt}"


def solver_names(runs: Iterable[Run]) -> Callable[[Run], str]:
    """Return a function from run to its solver's name in tables; each variant and each hash has its own name.

    Solvers with one name but different hashes are ``NAME@HASH``, since their runs are no repeats of each other. Oracles
    are scripts of their scenarios, so each has many hashes and one name.
    """
    hashes: dict[str, set[str]] = {}
    for run in runs:
        hashes.setdefault(_label_of_solver(run), set()).add(run.solver_hash)
    shared = {label for label, of in hashes.items() if len(of) > 1}

    def name(run: Run) -> str:
        """Return the solver's label, with its hash when several solvers of *runs* have that label."""
        label = _label_of_solver(run)
        several = label in shared and not run.solver.name.startswith(ORACLE)
        return f"{label}@{run.solver_hash[:HASH_SHOWN]}" if several else label

    return name


def versions_reported(runs: Iterable[Run]) -> list[str]:
    """Return a sentence per name that several versions of a solver in *runs* share, with the runs of each version."""
    given = list(runs)
    name, counts = solver_names(given), Counter[tuple[str, str]]()
    for run in given:
        if "@" in name(run).removeprefix(_label_of_solver(run)):
            counts[_label_of_solver(run), name(run)] += 1
    versions: dict[str, list[str]] = {}
    for (label, one), count in sorted(counts.items()):
        versions.setdefault(label, []).append(f"{one} ({counting.plural(count, 'run')})")
    return [f"{label} was run by {len(of)} solvers of that name: {', '.join(of)}" for label, of in versions.items()]


def _label_of_solver(run: Run) -> str:
    """Return the solver's label, with the variant in brackets unless it is the default."""
    return run.solver.label if run.arm == "default" else f"{run.solver.label} ({run.arm})"


def counted_runs(runs: Iterable[Run]) -> list[Run]:
    """Return the run that counts for each cell: its first sandboxed result, else its first result.

    Only one counts: otherwise anyone could repeat a run until the result is good.
    """
    found: dict[str, Run] = {}
    for run in runs:
        first = found.get(run.cell)
        better = first is not None and first.isolation == "unsealed" != run.isolation
        if run.status in FINISHED and (first is None or better):
            found[run.cell] = run
    return list(found.values())


def aborted_cells(runs: Iterable[Run], name: Callable[[Run], str]) -> dict[str, int]:
    """Return solver (named by *name*) to the number of its planned runs in *runs* that have only aborted attempts."""
    of_cell: dict[str, tuple[str, bool]] = {}
    for run in runs:
        ended = run.status in FINISHED or of_cell.get(run.cell, ("", False))[1]
        of_cell[run.cell] = (name(run), ended)
    return dict(Counter(label for label, ended in of_cell.values() if not ended))


def retried_cells(runs: Iterable[Run], name: Callable[[Run], str]) -> dict[str, int]:
    """Return solver (named by *name*) to the number of its planned runs with a result after an aborted attempt."""
    aborted, retried = set[str](), dict[str, str]()
    for run in runs:
        if run.status is RunStatus.ABORTED:
            aborted.add(run.cell)
        elif run.status in FINISHED and run.cell in aborted:
            aborted.remove(run.cell)
            retried[run.cell] = name(run)
    return dict(Counter(retried.values()))


def most_repeats(runs: Iterable[Run]) -> int:
    """Return the largest number of seeds of one solver on one case; 1 without runs."""
    return max(Counter((_label_of_solver(run), run.solver_hash, run.item) for run in runs).values(), default=1)
