"""opsassay agent list."""

from __future__ import annotations

import importlib
from typing import Any

import click

from opsassay.cli.output import echo, json_option, print_json, print_table


@click.command("list")
@json_option
def command(*, as_json: bool) -> None:
    """List the built-in agents, with the tasks that each works on; say whether this machine can sandbox other agents."""
    from opsassay.analysis.leaderboard.entries import BASELINES
    from opsassay.solvers.agents.base import AGENTS, agent_named
    from opsassay.solvers.agents.ready import described, ready_files
    from opsassay.solvers.sandbox import sealing_refusal

    refusal = sealing_refusal()
    agents = [agent_named(name) for name in AGENTS.names()]
    items: list[dict[str, Any]] = [
        {"agent": a.name, "domain": "diagnosis", "source": a.source, "configuration": dict(a.configuration)}
        for a in agents
    ]
    items += _task_agents()
    ready = [described(name) for name in ready_files()]
    if as_json:
        print_json("agent list", [*items, *ready], sealing={"possible": refusal is None, "reason": refusal})
        return
    print_table("Agents", ("agent", "domain", "source"), [(i["agent"], i["domain"], i["source"]) for i in items])
    columns = ("agent", "program", "installed", "checked")
    print_table("Ready agents of others", columns, [tuple(one[column] for column in columns) for one in ready])
    echo(f"Baselines without a model: {', '.join(sorted(BASELINES))}; `opsassay agent methods` lists the methods.")
    echo("Any other command is an agent by its YAML file; see docs/agents.md.")
    echo("External agents run sealed here." if refusal is None else f"External agents run unsealed here: {refusal}")


def _task_agents() -> list[dict[str, Any]]:
    """Return agent, domain, source and configuration of each built-in agent for a domain other than diagnosis."""
    from opsassay.solvers.agents.base import TASK_AGENTS

    found = []
    for domain, place in TASK_AGENTS.items():
        module, _, name = place.partition(":")
        agent = getattr(importlib.import_module(module), name)
        found.append({"agent": agent.name, "domain": domain, "source": agent.source, "configuration": {}})
    return found
