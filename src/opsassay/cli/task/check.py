"""opsassay task check."""

from __future__ import annotations

from typing import Any

import click

from opsassay.cli.output import echo, json_option, print_json


@click.command("check")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@json_option
@click.pass_context
def command(context: click.Context, files: tuple[str, ...], *, as_json: bool) -> None:
    """Validate the scenarios FILES (paths or names; all if none) and propose how deep each is to be verified (Table 6).

    The depth (D1, D2, ...) is proposed from the layer of the fault. Exits with 1 when a scenario has an error.
    """
    from opsassay.testbed.scenarios import generated_names, names

    items = [_check_scenario(file) for file in files or (*names(), *generated_names())]
    if as_json:
        print_json("task check", items)
    else:
        for item in items:
            _print_scenario(item, controls=bool(files))
    context.exit(1 if any(one["error"] for item in items for one in item["findings"]) else 0)


def _check_scenario(file: str) -> dict[str, Any]:
    """Return the properties of the scenario *file* (a path or a name) and, under "findings", what is wrong with it."""
    from opsassay.evals.remediation.authoring.checks import findings_here, has_own_stage, layers, proposed_depth
    from opsassay.evals.remediation.controls.scripts import controls_of
    from opsassay.evals.remediation.tasks import scenario_complexity
    from opsassay.testbed.scenarios import load_scenario, place_of

    scenario = load_scenario(file)
    problems: list[dict[str, Any]] = [
        {"where": place_of(file, one.field), "message": one.message, "error": one.error}
        for one in findings_here(scenario)
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
            for one in (() if has_own_stage(scenario) else controls_of(scenario))
        ],
        "findings": problems,
    }


def _print_scenario(item: dict[str, Any], *, controls: bool) -> None:
    """Print *item*, the result of `_check_scenario`; *controls* adds the control scripts and the check each has to fail."""
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
