"""opsassay scenarios."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from opsassay.cli.output import echo, json_option, print_json, print_table


@click.group("scenarios", invoke_without_command=True)
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List the remediation scenarios with their complexity (ITBench, Eq. 6)."""
    if context.invoked_subcommand is not None:
        return
    from opsassay.bench.domains.sre.heads import scenario_complexity
    from opsassay.testbed.scenarios import load_scenario, names

    items: list[dict[str, Any]] = [
        {
            "id": one.id,
            "substrate": one.environment.substrate,
            "complexity": round(scenario_complexity(one.difficulty), 3),
            "committed_depth": one.verification.committed_depth,
            "oracles": list(one.oracles),
            "title": one.title,
            "system": one.environment.system,
            "category": one.category,
            "no_fault": one.no_fault,
            "predicates": list(one.verification.predicates()),
            "digest": one.digest(),
        }
        for one in map(load_scenario, names())
    ]
    if as_json:
        print_json("scenarios", items)
        return
    columns = ("id", "substrate", "complexity", "depth", "oracles", "title")
    rows = [
        (i["id"], i["substrate"], f"{i['complexity']:.2f}", i["committed_depth"], ", ".join(i["oracles"]), i["title"])
        for i in sorted(items, key=lambda i: (i["complexity"], i["id"]))
    ]
    print_table("Scenarios", columns, rows)


@command.command("check")
@click.argument("file")
@json_option
@click.pass_context
def check(context: click.Context, file: str, *, as_json: bool) -> None:
    """Validate the scenario in FILE (or of that name) and propose a depth from the layer of its fault (Table 6).

    Exits with 1 when something in it cannot be right.
    """
    from opsassay.bench.domains.sre.authoring import findings, layers, proposed_depth
    from opsassay.bench.domains.sre.controls import controls_of
    from opsassay.bench.domains.sre.heads import scenario_complexity
    from opsassay.model.files import where
    from opsassay.testbed.operations.tools import TOOLS
    from opsassay.testbed.scenarios import load_scenario, scenario_path, system_of

    path = Path(scenario_path(file))
    scenario = load_scenario(file)
    verbs = {tool.verb or name.replace("_", " "): tool.arguments for name, tool in TOOLS.items()}
    own_stage = scenario.environment.substrate == "compose"  # its services and verbs are known to its stage alone
    found = findings(scenario, None if own_stage else system_of(scenario), verbs)
    problems: list[dict[str, Any]] = [
        {"where": where(path, one.field), "message": one.message, "error": one.error} for one in found
    ]
    item: dict[str, Any] = {
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
    if as_json:
        print_json("scenarios check", [item])
    else:
        proposed = item["proposed_depth"] or "none (a false alarm)"
        echo(f"{scenario.id}: complexity {item['complexity']:.2f}, digest {scenario.digest()[:16]}")
        echo(f"Committed depth {item['committed_depth']}, proposed from the fault's layer: {proposed}.")
        for one in item["controls"]:
            why = f"not applicable: {one['why_not']}" if one["why_not"] else f"has to fail {one['fails']}"
            echo(f"{one['name']}: {why}.")
        for one in problems:
            echo(f"{'Error' if one['error'] else 'Note'}: {one['where']}: {one['message']}.")
        if not problems:
            echo("Everything fits.")
    context.exit(1 if any(one["error"] for one in problems) else 0)
