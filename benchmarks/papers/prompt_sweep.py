"""Evolve faults under every prompt with five seeds, each from the start ("side-effects", App. H.1).

Run: ``python -m benchmarks.papers.prompt_sweep SCENARIO -o FOLDER``.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import click

from opsassay.analysis.fault_search import evolve as evolution
from opsassay.analysis.fault_search.attempts import HIDDEN, Attempt
from opsassay.analysis.fault_search.evolve import MUTATOR
from opsassay.analysis.fault_search.hunt import Hunt
from opsassay.analysis.fault_search.prompts import Prompt, prompt_of
from opsassay.cli.output import json_option, print_json, print_table, say
from opsassay.cli.task.discover import cluster_settings, target_of
from opsassay.core.schema.scenario import Scenario
from opsassay.testbed.operations.search import Block, FaultSearch, fault_search_for
from opsassay.testbed.scenarios import load_scenario, system_of

from .running import run

PROMPTS: tuple[Prompt, ...] = get_args(Prompt)
SEEDS = 5


@click.command("prompt_sweep")
@click.argument("scenario_name", metavar="SCENARIO")
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="A folder a search."
)
@click.option("--target", help="Workload to fault; the scenario's first root cause when left out.")
@click.option("-n", "count", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Candidates.")
@click.option("--seed", type=int, default=0, show_default=True, help="First of the seeds.")
@click.option("--cluster", type=click.Path(path_type=Path), help="YAML file that says which cluster.")
@click.option("--model", help="Model of OPENAI_BASE_URL that rewrites candidates; a seeded mutator when left out.")
@json_option
def command(
    scenario_name: str, output: Path, target: str | None, count: int, seed: int, cluster: Path | None,
    model: str | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Compare how soon evolutions under each prompt come to a hidden failure of SCENARIO."""
    evolution.require_evolution(model)
    scenario = load_scenario(scenario_name)
    setup, system, workload = fault_search_for(scenario), system_of(scenario), target or target_of(scenario)
    settings = cluster_settings(scenario, cluster)
    library, base = setup.blocks(system, workload, settings), setup.task(system, workload, settings)
    evolutions = Evolutions(scenario, workload, settings, setup, library, base, count, model)
    _sweep(evolutions, output, seed, as_json=as_json)


@dataclass(frozen=True)
class Evolutions:
    """The settings that all evolutions of a sweep share."""

    scenario: Scenario
    target: str
    settings: dict[str, Any]
    setup: FaultSearch
    library: Sequence[Block]
    task: str
    count: int
    model: str | None

    def run(self, prompt: Prompt, seed: int, folder: Path) -> list[Attempt]:
        """Return the attempts of the evolution under *prompt* with *seed*, those that *folder* knows read back."""
        commitment = {"search": "evolve", "seed": seed, "model": self.model, "prompt": prompt}
        words = prompt_of(prompt, self.task, self.setup.operator, self.library)
        with Hunt(self.scenario, self.target, folder, commitment, self.settings) as hunt:
            return evolution.evolve(
                hunt.attempt, self.library, words, iterations=self.count, seed=seed, model=self.model
            )


def _sweep(evolutions: Evolutions, output: Path, seed: int, *, as_json: bool) -> None:
    """Run every prompt with every seed, and print what came of each prompt."""
    found: dict[tuple[Prompt, int], list[Attempt]] = {}
    for prompt in PROMPTS:
        for number in range(seed, seed + SEEDS):
            found[prompt, number] = evolutions.run(prompt, number, output / f"{prompt}-{number}")
            say(f"{prompt}, seed {number}: {len(found[prompt, number])} candidates")
    rows = sweep_rows(found)
    proposer = evolutions.model or f"{MUTATOR}, which reads no prompt: prompts can differ by chance alone"
    if as_json:
        print_json("prompt_sweep", rows, proposer=proposer)
        return
    columns = ("prompt", "seeds with a hit", "median first hit", "families of first hits")
    shown = [
        (r["prompt"], f"{r['reached']} of {r['seeds']}", r["median_first_hit"], ", ".join(r["families"])) for r in rows
    ]
    print_table("Prompts (App. H.1)", columns, shown)
    say(f"Proposed by {proposer}.")


def sweep_rows(attempts: Mapping[tuple[Prompt, int], Sequence[Attempt]]) -> list[dict[str, Any]]:
    """Return a row for each prompt of *attempts* by prompt and seed: seeds with a hit, median first hit, diversity.

    A hit is a hidden failure; its iteration counts from 1, the healthy start being 0. Diversity is how many different
    families the first hits have; of a seed without a hit nothing is known but that.
    """
    rows = []
    for prompt in dict.fromkeys(prompt for prompt, _ in attempts):
        runs = [found for (which, _), found in sorted(attempts.items()) if which == prompt]
        hits = [hit for found in runs if (hit := _first_hit(found)) is not None]
        winners = sorted({family for _, one in hits for family in one.families})
        rows.append(
            {
                "prompt": prompt,
                "seeds": len(runs),
                "reached": len(hits),
                "median_first_hit": statistics.median(iteration for iteration, _ in hits) if hits else None,
                "families": winners,
            }
        )
    return rows


def _first_hit(attempts: Sequence[Attempt]) -> tuple[int, Attempt] | None:
    return next(((n, one) for n, one in enumerate(attempts) if one.fitness == HIDDEN), None)


if __name__ == "__main__":
    sys.exit(run(command))
