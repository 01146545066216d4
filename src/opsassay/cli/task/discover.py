"""opsassay task discover."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from opsassay.cli.completion import SCENARIO
from opsassay.cli.output import FOLDER, json_option, print_json, print_table, say
from opsassay.evals.runner.tables import percent

if TYPE_CHECKING:
    from opsassay.analysis.fault_search.attempts import Attempt
    from opsassay.analysis.fault_search.hunt import Hunt
    from opsassay.analysis.fault_search.prompts import Prompt
    from opsassay.analysis.fault_search.search import FaultCandidate
    from opsassay.core.schema.scenario import Scenario
    from opsassay.testbed.operations.search import Block


class _Search(NamedTuple):
    """One search: its *hunt*, the blocks of candidates, the task text for a model, and candidates to try first."""

    hunt: Hunt
    library: Sequence[Block]
    task: str
    invalid: Sequence[FaultCandidate]
    about: str


@click.command("discover")
@click.argument("scenario_name", type=SCENARIO, metavar="SCENARIO")
@click.option(
    "-o", "--output", required=True, type=FOLDER,
    help="Folder of the search; resumable.",
)  # fmt: skip
@click.option(
    "--over", type=click.Choice(["faults", "repairs"]), default="faults", show_default=True,
    help="Search for faults on a running system, or for repairs of SCENARIO on a model of it.",
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
@json_option
def command(
    scenario_name: str, output: Path, over: str, target: str | None, count: int, seed: int, search: str,
    model: str | None, cluster: Path | None, prompt: Prompt, *, audit: bool, as_json: bool,
) -> None:  # fmt: skip
    """Search for faults that a scripted operator believes repaired while the check that SCENARIO commits to still fails.

    With --over repairs: search for repairs that are certified and do harm. The -n candidates (faults or repairs to
    try) are drawn at random, or with --search evolve rewritten by --model, which --prompt informs more or less.
    --target: the workload to fault; --audit: invalid candidates are tried first.
    """
    from opsassay.analysis.fault_search.evolve import evolve, require_evolution
    from opsassay.analysis.fault_search.hunt import SUMMARY, repair_summary, summary
    from opsassay.analysis.fault_search.repairs import write_plan
    from opsassay.analysis.fault_search.search import distinct_candidates, random_candidates
    from opsassay.core.errors import UserError
    from opsassay.telemetry.content import whole_file
    from opsassay.testbed.scenarios import load_scenario

    if model is not None and search != "evolve":
        raise UserError("--model rewrites candidates of an evolution; add `--search evolve` or leave it out.")
    if search == "evolve":
        require_evolution(model)
    scenario, repairs = load_scenario(scenario_name), over == "repairs"
    commitment = {"search": search, "seed": seed, "model": model}
    if repairs:
        given = {"--target": target, "--cluster": cluster, "--audit": audit, "--prompt": prompt != "partial"}
        if strange := [name for name, value in given.items() if value]:
            raise UserError(f"{strange[0]} is for a search over faults; leave it out.")
        searched = _search_repairs(scenario, output, commitment)
    else:
        commitment |= {"prompt": prompt} if search == "evolve" else {}
        searched = _search_faults(scenario, output, target, cluster, prompt, commitment, audit=audit)
    with searched.hunt as hunt:
        say(f"{count} candidates {searched.about}; the folder can be continued after a break.")
        first = len(searched.invalid)

        def try_candidate(number: int, candidate: FaultCandidate) -> Attempt:
            """Try *candidate* on the system, print the outcome as number *number*, and return it."""
            one = hunt.attempt(number, candidate)
            say(_format_attempt(one, count + first))
            return one

        attempts = [try_candidate(number, candidate) for number, candidate in enumerate(searched.invalid, 1)]
        if search == "random":
            drawn = (distinct_candidates if repairs else random_candidates)(searched.library, count, seed)
            attempts += [try_candidate(number, candidate) for number, candidate in enumerate(drawn, first + 1)]
        else:

            def evolved(number: int, candidate: FaultCandidate) -> Attempt:
                return try_candidate(first + number, candidate)

            attempts += evolve(evolved, searched.library, searched.task, iterations=count, seed=seed, model=model)
    found = (repair_summary if repairs else summary)(attempts)
    with whole_file(output / SUMMARY) as partial:
        partial.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    plan = write_plan(scenario, attempts, output, seed) if repairs else None
    if as_json:
        print_json("task discover", [attempt.model_dump(mode="json") for attempt in attempts], summary=found)
    elif not repairs:
        _print_faults(found)
    else:
        _print_repairs(attempts, found)
    if plan is not None:
        say(f"To have some of them happen: opsassay run trials {plan} -o STORE")


def _search_repairs(scenario: Scenario, output: Path, commitment: dict[str, Any]) -> _Search:
    """Return the search, in a simulation, for repairs of *scenario* that pass the checks and yet do harm.

    *commitment* (seed, kind of search and the like) may not change when the search goes on in *output*.
    """
    from opsassay.analysis.fault_search.hunt import RepairHunt
    from opsassay.analysis.fault_search.repairs import repair_blocks, task_of

    hunt = RepairHunt(scenario, output, commitment)
    return _Search(hunt, repair_blocks(scenario), task_of(scenario), (), f"for repairs of {scenario.id}, on a model")


def _search_faults(
    scenario: Scenario, output: Path, target: str | None, cluster: Path | None, prompt: Prompt,
    commitment: dict[str, Any], *, audit: bool,
) -> _Search:  # fmt: skip
    """Return the search for faults of the service *target* that the checks miss; *audit* adds invalid candidates.

    *target* None is the first root cause, *cluster* a YAML file, *prompt* how much a model gets to know.
    *commitment* (seed, kind of search and the like) may not change when the search goes on in *output*.
    """
    from opsassay.analysis.fault_search.hunt import Hunt
    from opsassay.analysis.fault_search.prompts import prompt_of
    from opsassay.analysis.fault_search.search import compose
    from opsassay.testbed.operations.search import fault_search_for
    from opsassay.testbed.scenarios import system_of

    setup, system, workload = fault_search_for(scenario), system_of(scenario), target or target_of(scenario)
    settings = cluster_settings(scenario, cluster)
    library, base = setup.blocks(system, workload, settings), setup.task(system, workload, settings)
    invalid = [compose([block]) for block in setup.invalid(system, workload)] if audit else []
    commitment = {**commitment, "blocks": [block.name for block in library], **({"audit": True} if audit else {})}
    task = prompt_of(prompt, base, setup.operator, library)
    return _Search(Hunt(scenario, workload, output, commitment, settings), library, task, invalid,
                   f"against {workload} of {system.system}")  # fmt: skip


def cluster_settings(scenario: Scenario, cluster: Path | None) -> dict[str, Any]:
    """Return the Kubernetes settings in the YAML file *cluster*, {} for None; raises UserError for a local scenario."""
    from opsassay.core.errors import UserError
    from opsassay.core.schema.files import load_yaml
    from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

    if cluster is None:
        return {}
    if scenario.environment.substrate != "kubernetes":
        raise UserError(f"{scenario.id} happens on this machine; leave --cluster out.")
    return load_yaml(cluster, ClusterSettings).model_dump()


def target_of(scenario: Scenario) -> str:
    """Return the first service among the root causes of *scenario*; raises UserError when there is none."""
    from opsassay.core.errors import UserError
    from opsassay.testbed.scenarios import system_of

    services = system_of(scenario).services
    named = [name for name in scenario.truth.root_causes if name in services]
    if not named:
        raise UserError(f"Scenario {scenario.id} names no service as root cause; say with --target what to fault.")
    return named[0]


def _format_attempt(attempt: Attempt, count: int) -> str:
    """Return one line on *attempt* (a tried candidate): its number of *count*, result, fitness, name and reason."""
    words = f"{attempt.composition.name}: {attempt.reason}"
    return f"{attempt.number:4} of {count}  {attempt.result:8} {attempt.fitness:.1f}  {words}"


def _print_faults(result: dict[str, Any]) -> None:
    """Print the *result* of a search for faults: counts by outcome, two shares, families, findings on the verifier."""
    rows = [[name, number] for name, number in result["counts"].items()]
    print_table("What became of the candidates", ["result", "candidates"], rows)
    for name, words in (("outcome_admits", "the outcome check admits"), ("hidden", "hidden failures among the scored")):
        _say_share(words, result[name])
    families = [[name, number] for name, number in result["families"].items()]
    print_table("Families among the hidden failures", ["family", "hits"], families)
    if result["findings"]:
        rows = [[one["number"], one["candidate"], one["reason"]] for one in result["findings"]]
        print_table("Findings about the verifier", ["number", "candidate", "reason"], rows)


def _print_repairs(attempts: Sequence[Attempt], result: dict[str, Any]) -> None:
    """Print each tried repair, and the shares of *result* that were certified and that did harm."""
    rows = [
        [one.number, one.composition.name, "-" if one.certified is None else one.certified, one.reason]
        for one in attempts
    ]
    print_table("Repairs on the model", ["number", "candidate", "certified", "harm"], rows)
    print_table("Results", ["result", "candidates"], [[n, count] for n, count in result["counts"].items()])
    _say_share("certified and harmful, of all", result["fooled"])
    _say_share("certified, of the harmful", result["fooled_of_harmful"])


def _say_share(label: str, share: dict[str, Any]) -> None:
    """Print "*label*: count of n" with the 95% interval of *share*, on stderr."""
    low, high = (percent(bound) for bound in share["interval"])
    say(f"{label}: {share['count']} of {share['n']} (95% {low} to {high})")
