"""opsassay scenarios."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from opsassay.cli.output import echo, json_option, print_json, print_table


@click.group("scenarios", invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List the remediation scenarios, shipped and generated, with their complexity (ITBench, Eq. 6)."""
    if context.invoked_subcommand is not None:
        return
    from opsassay.core.schema.task import level_of
    from opsassay.evals.remediation.task_info import scenario_complexity
    from opsassay.testbed.scenarios import generated_names, load_scenario, names

    items: list[dict[str, Any]] = [
        {
            "id": one.id,
            "substrate": one.environment.substrate,
            "complexity": round(scenario_complexity(one.difficulty), 3),
            "level": level_of(scenario_complexity(one.difficulty)),
            "difficulty": one.difficulty.model_dump(mode="json"),
            "committed_depth": one.verification.committed_depth,
            "oracles": list(one.oracles),
            "title": one.title,
            "system": one.environment.system,
            "category": one.category,
            "no_fault": one.no_fault,
            "predicates": list(one.verification.predicates()),
            "digest": one.digest(),
        }
        for one in map(load_scenario, [*names(), *generated_names()])
    ]
    spread = _distributions(items)
    if as_json:
        print_json("scenarios", items, complexity=spread)
        return
    columns = ("id", "substrate", "complexity", "level", "depth", "oracles", "title")
    rows = [
        (
            i["id"],
            i["substrate"],
            f"{i['complexity']:.2f}",
            i["level"],
            i["committed_depth"],
            ", ".join(i["oracles"]),
            i["title"],
        )
        for i in sorted(items, key=lambda i: (i["complexity"], i["id"]))
    ]
    print_table("Scenarios", columns, rows)
    sizes = [(what, size, count) for what, counts in spread["sizes"].items() for size, count in counts.items()]
    print_table("Sizes (ITBench, Figure 10)", ("what", "size", "scenarios"), sizes)
    levels = ", ".join(f"{count} {level}" for level, count in spread["strata"].items())
    echo(f"Complexity (ITBench, Figure 11): {levels}; from {spread['least']:.2f} to {spread['most']:.2f}.")


def _distributions(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many scenarios have which sizes and which level (ITBench, Figures 10 and 11)."""
    sizes = {
        "propagation": [i["difficulty"]["propagation"] for i in items],
        "resolution steps": [i["difficulty"]["resolution_steps"] for i in items],
        "technologies": [len(set(i["difficulty"]["technologies"])) for i in items],
    }
    return {
        "sizes": {what: dict(sorted(Counter(found).items())) for what, found in sizes.items()},
        "strata": dict(Counter(i["level"] for i in sorted(items, key=lambda i: i["complexity"]))),
        "least": min(i["complexity"] for i in items),
        "most": max(i["complexity"] for i in items),
    }


@command.command("show")
@click.argument("name")
def show(name: str) -> None:
    """Print the scenario called NAME as YAML: a generated one as a file that can be changed."""
    import yaml

    from opsassay.testbed.scenarios import load_scenario

    payload = load_scenario(name).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    echo(yaml.safe_dump(payload, sort_keys=False, allow_unicode=True, width=120).rstrip())


@command.command("check")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@json_option
@click.pass_context
def check(context: click.Context, files: tuple[str, ...], *, as_json: bool) -> None:
    """Validate scenarios in files or by name, all that there are when none is given, and propose depths (Table 6).

    A depth is proposed from the layer of the fault. Exits with 1 when something cannot be right.
    """
    from opsassay.testbed.scenarios import generated_names, names

    items = [_checked(file) for file in files or (*names(), *generated_names())]
    if as_json:
        print_json("scenarios check", items)
    else:
        for item in items:
            _tell(item, controls=bool(files))
    context.exit(1 if any(one["error"] for item in items for one in item["findings"]) else 0)


def _checked(file: str) -> dict[str, Any]:
    """Return what is to be said of the scenario in *file* or of that name."""
    from opsassay.evals.remediation.authoring import findings, layers, proposed_depth
    from opsassay.evals.remediation.controls import controls_of
    from opsassay.evals.remediation.task_info import scenario_complexity
    from opsassay.testbed.operations.tools import TOOLS
    from opsassay.testbed.scenarios import load_scenario, place_of, system_of

    scenario = load_scenario(file)
    verbs = {tool.verb or name.replace("_", " "): tool.arguments for name, tool in TOOLS.items()}
    own_stage = scenario.environment.substrate == "compose"  # its services and verbs are known to its stage alone
    found = findings(scenario, None if own_stage else system_of(scenario), verbs)
    problems: list[dict[str, Any]] = [
        {"where": place_of(file, one.field), "message": one.message, "error": one.error} for one in found
    ]
    return {
        "id": scenario.id,
        "substrate": scenario.environment.substrate,
        "complexity": round(scenario_complexity(scenario.difficulty), 3),
        "committed_depth": scenario.verification.committed_depth,
        "proposed_depth": None if scenario.no_fault else proposed_depth(scenario),
        "layers": list(layers(scenario)),
        "oracles": list(scenario.oracles),
        "digest": scenario.digest(),
        "controls": [
            {"name": one.name, "fails": one.fails, "why_not": one.why_not}
            for one in (() if own_stage else controls_of(scenario))
        ],
        "findings": problems,
    }


def _tell(item: dict[str, Any], *, controls: bool) -> None:
    """Print what was found of one scenario, with its *controls* where somebody asked for it alone."""
    proposed = item["proposed_depth"] or "none (a false alarm)"
    echo(f"{item['id']}: complexity {item['complexity']:.2f}, digest {item['digest'][:16]}")
    echo(f"Committed depth {item['committed_depth']}, proposed from the fault's layer: {proposed}.")
    for one in item["controls"] if controls else ():
        why = f"not applicable: {one['why_not']}" if one["why_not"] else f"has to fail {one['fails']}"
        echo(f"{one['name']}: {why}.")
    for one in item["findings"]:
        echo(f"{'Error' if one['error'] else 'Note'}: {one['where']}: {one['message']}.")
    if not item["findings"]:
        echo("Everything fits.")
