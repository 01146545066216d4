"""opsassay task scenarios."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from opsassay.cli.output import echo, json_option, print_json, print_table


@click.command("scenarios")
@json_option
def command(*, as_json: bool) -> None:
    """List the remediation scenarios, shipped and generated, with their complexity (ITBench, Eq. 6)."""
    from opsassay.core.schema.task import level_of
    from opsassay.evals.remediation.tasks import scenario_complexity
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
    spread = _size_distributions(items)
    if as_json:
        print_json("task scenarios", items, complexity=spread)
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


def _size_distributions(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many of *items* have each size and level (ITBench, Figures 10, 11), and the range of complexity."""
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
