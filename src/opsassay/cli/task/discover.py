"""opsassay task discover."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import json_option, print_json, print_table, say
from opsassay.evals.runner.tables import percent

if TYPE_CHECKING:
    from opsassay.analysis.fault_search.attempts import Attempt
    from opsassay.analysis.fault_search.prompts import Prompt
    from opsassay.core.schema.scenario import Scenario
    from opsassay.testbed.operations.search import Block, FaultSearch


@click.command("discover")
@click.argument("scenario_name", metavar="SCENARIO")
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the search; resumable.",
)  # fmt: skip
@click.option("--target", help="Workload to fault; the scenario's first root cause when left out.")
@click.option("-n", "count", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Candidates.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the search.")
@click.option(
    "--search", type=click.Choice(["random", "evolve"]), default="random", show_default=True,
    help="Draw blocks at random, or let openevolve rewrite what scored.",
)  # fmt: skip
@click.option(
    "--cluster", type=click.Path(path_type=Path), help="YAML file that says which cluster, for its scenarios."
)
@click.option("--audit", is_flag=True, help="Try a candidate of each invalid class first: the guard must refuse it.")
@click.option("--model", help="Model of OPENAI_BASE_URL that rewrites candidates; a seeded mutator when left out.")
@click.option(
    "--prompt", type=click.Choice(["full", "partial", "minimal"]), default="partial", show_default=True,
    help="How much a model is given to know: kinds of faults, what the operator does, the goal alone.",
)  # fmt: skip
@click.option(
    "--prompt-sweep", is_flag=True, help="Evolve under every prompt with five seeds, each from the start (App. H.1)."
)
@json_option
def command(
    scenario_name: str, output: Path, target: str | None, count: int, seed: int, search: str, model: str | None,
    cluster: Path | None, prompt: Prompt, *, prompt_sweep: bool, audit: bool, as_json: bool,
) -> None:  # fmt: skip
    """Search for faults that a scripted operator takes for repaired while the depth that SCENARIO commits stays broken."""
    from opsassay.analysis.fault_search.evolve import evolve, require_evolution
    from opsassay.analysis.fault_search.hunt import SUMMARY, Hunt, summary
    from opsassay.analysis.fault_search.prompts import prompt_of
    from opsassay.analysis.fault_search.search import compose, random_candidates
    from opsassay.core.errors import UserError
    from opsassay.telemetry.content import whole_file
    from opsassay.testbed.operations.search import fault_search_for
    from opsassay.testbed.scenarios import load_scenario, system_of

    if prompt_sweep and (search != "evolve" or audit):
        raise UserError("--prompt-sweep compares evolutions: add `--search evolve`, and audit in a search of its own.")
    if model is not None and search != "evolve":
        raise UserError("--model rewrites candidates of an evolution; add `--search evolve` or leave it out.")
    if search == "evolve":
        require_evolution(model)
    scenario = load_scenario(scenario_name)
    setup, system, workload = fault_search_for(scenario), system_of(scenario), target or _target_of(scenario)
    settings = _settings(scenario, cluster)
    library, base = setup.blocks(system, workload, settings), setup.task(system, workload, settings)
    if prompt_sweep:
        _sweep(
            Evolutions(scenario, workload, settings, setup, library, base, count, model), output, seed, as_json=as_json
        )
        return
    task = prompt_of(prompt, base, setup.operator, library)
    invalid = [compose([block]) for block in setup.invalid(system, workload)] if audit else []
    commitment = {"search": search, "seed": seed, "model": model, "blocks": [block.name for block in library]}
    commitment |= {"prompt": prompt} if search == "evolve" else {}
    commitment |= {"audit": True} if audit else {}
    with Hunt(scenario, workload, output, commitment, settings) as hunt:
        say(f"{count} candidates against {workload} of {system.system}; the folder can be continued after a break.")
        whole = count + len(invalid)

        def tried(number: int, candidate: Any) -> Attempt:
            one = hunt.attempt(number, candidate)
            say(_line(one, whole))
            return one

        attempts = [tried(number, candidate) for number, candidate in enumerate(invalid, 1)]
        if search == "random":
            drawn = enumerate(random_candidates(library, count, seed), len(invalid) + 1)
            attempts += [tried(number, candidate) for number, candidate in drawn]
        else:

            def evolved(number: int, candidate: Any) -> Attempt:
                return tried(len(invalid) + number, candidate)

            attempts += evolve(evolved, library, task, iterations=count, seed=seed, model=model)
    found = summary(attempts)
    with whole_file(output / SUMMARY) as partial:
        partial.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    _print(attempts, found, as_json=as_json)


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
        from opsassay.analysis.fault_search.evolve import evolve
        from opsassay.analysis.fault_search.hunt import Hunt
        from opsassay.analysis.fault_search.prompts import prompt_of

        commitment = {"search": "evolve", "seed": seed, "model": self.model, "prompt": prompt}
        words = prompt_of(prompt, self.task, self.setup.operator, self.library)
        with Hunt(self.scenario, self.target, folder, commitment, self.settings) as hunt:
            return evolve(hunt.attempt, self.library, words, iterations=self.count, seed=seed, model=self.model)


def _sweep(evolutions: Evolutions, output: Path, seed: int, *, as_json: bool) -> None:
    """Run every prompt with every seed, and print what came of each prompt."""
    from opsassay.analysis.fault_search.evolve import MUTATOR
    from opsassay.analysis.fault_search.prompts import PROMPTS, SEEDS, sweep_rows

    found: dict[tuple[Prompt, int], list[Attempt]] = {}
    for prompt in PROMPTS:
        for number in range(seed, seed + SEEDS):
            found[prompt, number] = evolutions.run(prompt, number, output / f"{prompt}-{number}")
            say(f"{prompt}, seed {number}: {len(found[prompt, number])} candidates")
    rows = sweep_rows(found)
    proposer = evolutions.model or f"{MUTATOR}, which reads no prompt: prompts can differ by chance alone"
    if as_json:
        print_json("task discover", rows, proposer=proposer)
        return
    columns = ("prompt", "seeds with a hit", "median first hit", "families of first hits")
    shown = [
        (r["prompt"], f"{r['reached']} of {r['seeds']}", r["median_first_hit"], ", ".join(r["families"])) for r in rows
    ]
    print_table("Prompts (App. H.1)", columns, shown)
    say(f"Proposed by {proposer}.")


def _settings(scenario: Scenario, cluster: Path | None) -> dict[str, Any]:
    """Return the settings of the cluster in the file *cluster*; raises UserError for a scenario of this machine."""
    from opsassay.core.errors import UserError
    from opsassay.core.schema.files import load_yaml
    from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

    if cluster is None:
        return {}
    if scenario.environment.substrate != "kubernetes":
        raise UserError(f"{scenario.id} happens on this machine; leave --cluster out.")
    return load_yaml(cluster, ClusterSettings).model_dump()


def _target_of(scenario: Scenario) -> str:
    from opsassay.core.errors import UserError
    from opsassay.testbed.scenarios import system_of

    services = system_of(scenario).services
    named = [name for name in scenario.truth.root_causes if name in services]
    if not named:
        raise UserError(f"Scenario {scenario.id} names no service as root cause; say with --target what to fault.")
    return named[0]


def _line(attempt: Attempt, count: int) -> str:
    words = f"{attempt.composition.name}: {attempt.reason}"
    return f"{attempt.number:4} of {count}  {attempt.result:8} {attempt.fitness:.1f}  {words}"


def _print(attempts: list[Attempt], found: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json("task discover", [attempt.model_dump(mode="json") for attempt in attempts], summary=found)
        return
    rows = [[name, number] for name, number in found["counts"].items()]
    print_table("What became of the candidates", ["result", "candidates"], rows)
    for name, words in (("outcome_admits", "the outcome check admits"), ("hidden", "hidden failures among the scored")):
        share = found[name]
        low, high = (percent(bound) for bound in share["interval"])
        say(f"{words}: {share['count']} of {share['n']} (95% {low} to {high})")
    families = [[name, number] for name, number in found["families"].items()]
    print_table("Families among the hidden failures", ["family", "hits"], families)
    if found["findings"]:
        rows = [[one["number"], one["candidate"], one["reason"]] for one in found["findings"]]
        print_table("Findings about the verifier", ["number", "candidate", "reason"], rows)
