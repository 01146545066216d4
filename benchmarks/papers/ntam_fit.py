"""Fit NTAM's constants to rankings by experts, as ITBench's Appendix F.4 proposes: the best mean Kendall's tau-b.

Run: ``python -m benchmarks.papers.ntam_fit TRUTHS ANSWERS RANKS.csv``. RANKS has the columns scenario, trial and rank, 1
being the best answer; trials of one rank are tied. TRUTHS and ANSWERS are as for `itbench_answers`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import click
import numpy as np
import polars as pl
from scipy.optimize import differential_evolution
from scipy.stats import kendalltau

from opsassay.cli.output import echo, json_option, print_json, print_table, say
from opsassay.core.errors import UserError
from opsassay.scoring.itbench import ItbenchAnswer, ItbenchTruth, read_itbench_answer
from opsassay.scoring.ntam import TABLE_33, Parameters

from .itbench_answers import answer_file, scenario_number, truth_folders
from .running import run

BOUNDS: Mapping[str, tuple[float, float]] = {
    "alpha": (0.1, 3), "beta": (0, 3), "gamma": (0, 3), "delta": (0.05, 3), "c": (0, 2), "d": (0, 2), "zeta": (1, 10)
}  # fmt: skip
"""Where each constant is looked for; a call costs at least as much as an ownership."""
SEED = 0
_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@dataclass(frozen=True)
class RankedScenario:
    """Answers of one scenario, with the rank that experts gave to each."""

    truth: ItbenchTruth
    answers: Sequence[ItbenchAnswer]
    ranks: Sequence[float]

    def agreement(self, parameters: Parameters) -> float:
        """Return Kendall's tau-b of NTAM (FL + FPC) with the ranks; 0 where NTAM ties all answers."""
        scores = [self.truth.score(answer, parameters) for answer in self.answers]
        tau = kendalltau([-one.fl - one.fpc for one in scores], self.ranks).statistic
        return 0.0 if np.isnan(tau) else float(tau)


def fit(scenarios: Sequence[RankedScenario]) -> Parameters:
    """Return the constants in BOUNDS with the best mean agreement, by differential evolution with a fixed seed.

    Among constants that agree alike the search prefers those near Table 33.
    """
    names = list(BOUNDS)
    usual = np.array([getattr(TABLE_33, name) for name in names])
    width = np.array([high - low for low, high in BOUNDS.values()])

    def cost(values: np.ndarray) -> float:
        parameters = Parameters(**dict(zip(names, map(float, values), strict=True)))
        return -mean_agreement(scenarios, parameters) + 1e-3 * float(np.abs((values - usual) / width).mean())

    found = differential_evolution(
        cost, list(BOUNDS.values()), x0=usual, rng=SEED, maxiter=40, popsize=6, tol=1e-6, polish=False
    )
    return Parameters(**dict(zip(names, map(float, found.x), strict=True)))


def mean_agreement(scenarios: Sequence[RankedScenario], parameters: Parameters) -> float:
    """Return the mean tau-b over *scenarios*."""
    return fmean(one.agreement(parameters) for one in scenarios)


def left_out(scenarios: Sequence[RankedScenario]) -> float | None:
    """Return the mean tau-b of each scenario under constants that were fitted to the others; None for a single one."""
    if len(scenarios) < 2:
        return None
    others = [[other for other in scenarios if other is not one] for one in scenarios]
    return fmean(one.agreement(fit(rest)) for one, rest in zip(scenarios, others, strict=True))


def read_rankings(truths: Path, answers: Path, ranks: Path) -> list[RankedScenario]:
    """Return the scenarios of *ranks* with two answers or more; raises UserError for what is missing."""
    try:
        table = pl.read_csv(ranks, schema_overrides={"scenario": pl.String, "trial": pl.String, "rank": pl.Float64})
    except (pl.exceptions.PolarsError, OSError) as error:
        raise UserError(f"{ranks} is no CSV with the columns scenario, trial, rank: {error}.") from error
    if missing := {"scenario", "trial", "rank"} - set(table.columns):
        raise UserError(f"{ranks} lacks the column {min(missing)}; it needs scenario, trial and rank.")
    if table.null_count().sum_horizontal().item():
        raise UserError(f"{ranks} has an empty cell; every row needs scenario, trial and rank.")
    known = truth_folders(truths)
    folders = {scenario_number(one.name): one for one in answers.iterdir() if one.is_dir()}
    found = []
    for (scenario,), rows in table.group_by("scenario", maintain_order=True):
        number = scenario_number(str(scenario))
        if number not in known or number not in folders:
            raise UserError(f"{ranks} ranks the scenario {scenario}, of which {truths} or {answers} has no folder.")
        said = [read_itbench_answer(answer_file(folders[number] / trial)) for trial in rows["trial"]]
        if len(said) > 1:
            found.append(RankedScenario(ItbenchTruth.read(known[number]), said, rows["rank"].to_list()))
    if not found:
        raise UserError(f"{ranks} ranks no scenario with two answers, so that there is no order to fit.")
    return found


@click.command("ntam_fit")
@click.argument("truths", type=_FOLDER)
@click.argument("answers", type=_FOLDER)
@click.argument("ranks", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@json_option
def command(truths: Path, answers: Path, ranks: Path, *, as_json: bool) -> None:
    """Fit NTAM's constants to the ranks that experts gave to ANSWERS, and say how well old and new agree with them."""
    scenarios = read_rankings(truths, answers, ranks)
    say(f"opsassay: fitting to {len(scenarios)} scenarios")
    fitted = fit(scenarios)
    before, after, unseen = mean_agreement(scenarios, TABLE_33), mean_agreement(scenarios, fitted), left_out(scenarios)
    if as_json:
        print_json(
            "ntam_fit", [fitted.model_dump()], before=before, after=after, left_out=unseen, scenarios=len(scenarios)
        )
        return
    rows = [(name, getattr(TABLE_33, name), f"{getattr(fitted, name):.3f}") for name in BOUNDS]
    print_table("NTAM's constants", ("constant", "Table 33", "fitted"), rows)
    echo(f"Mean Kendall's tau-b over {len(scenarios)} scenarios: {before:.3f} with Table 33, {after:.3f} fitted.")
    if unseen is not None:
        echo(f"On scenarios left out of the fit in turn: {unseen:.3f}.")


if __name__ == "__main__":
    sys.exit(run(command))
