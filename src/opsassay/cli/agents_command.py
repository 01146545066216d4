"""opsassay agents."""

from __future__ import annotations

from typing import Any

import click

from opsassay.cli.default_group import DefaultGroup
from opsassay.cli.output import echo, json_option, print_json, print_table, say


@click.group("agents", cls=DefaultGroup, default="list", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the agents, or check one: a dry run of the contract on a made-up incident."""
    if context.invoked_subcommand is None:
        context.invoke(list_agents, as_json=False)


@command.command("list")
@json_option
def list_agents(*, as_json: bool) -> None:
    """List the agents that `opsassay run` knows by name, and whether this machine can seal external ones."""
    from opsassay.agents.base import AGENTS, agent_named
    from opsassay.agents.ready import described, ready_files
    from opsassay.bench.sealing import sealing_refusal

    refusal = sealing_refusal()
    agents = [agent_named(name) for name in AGENTS.names()]
    items: list[dict[str, Any]] = [
        {"agent": a.name, "source": a.source, "configuration": dict(a.configuration)} for a in agents
    ]
    ready = [described(name) for name in ready_files()]
    if as_json:
        print_json("agents", [*items, *ready], sealing={"possible": refusal is None, "reason": refusal})
        return
    print_table("Agents", ("agent", "source"), [(a.name, a.source) for a in agents])
    columns = ("agent", "program", "installed", "checked")
    print_table("Ready agents of others", columns, [tuple(one[column] for column in columns) for one in ready])
    echo("Any other command is an agent by its YAML file; see docs/agents.md.")
    echo("External agents run sealed here." if refusal is None else f"External agents run unsealed here: {refusal}")


@command.command("check")
@click.argument("agent")
@click.option("--model", help="scripted:FILE, replayed:SESSION, or a model of OPENAI_BASE_URL; a script when left out.")
@click.option(
    "-c", "--change", "changes", multiple=True, metavar="KEY=VALUE", help="A setting, as in limits.seconds=60."
)
@json_option
@click.pass_context
def check(context: click.Context, agent: str, model: str | None, changes: tuple[str, ...], *, as_json: bool) -> None:
    """Let AGENT (a name or an agent.yaml) diagnose a made-up incident and say what of the contract it kept."""
    from opsassay.bench.domains.diagnosis.dry_run import DRY_RUN_MODEL
    from opsassay.bench.domains.diagnosis.dry_run import check as dry_run
    from opsassay.bench.domains.diagnosis.exams import read_settings
    from opsassay.bench.domains.diagnosis.solvers import agent_setup, is_asked_method
    from opsassay.errors import UserError

    if is_asked_method(agent):
        raise UserError(f"{agent} is a method; run it with `opsassay diagnose DIR -m {agent}`.")
    setup = agent_setup(agent, model or DRY_RUN_MODEL, read_settings(changes))
    say(f"opsassay: {setup.agent.name} diagnoses a made-up incident of two services")
    found, run = dry_run(setup)
    passed = all(one.passed is not False for one in found)
    if as_json:
        items = [{"check": one.name, "passed": one.passed, "said": one.said} for one in found]
        print_json("agents check", items, agent=setup.agent.name, passed=passed, isolation=run.isolation)
    else:
        marks = {True: "kept", False: "BROKEN", None: ""}
        print_table(
            f"Contract: {setup.agent.name}",
            ("check", "", "what was seen"),
            [(c.name, marks[c.passed], c.said) for c in found],
        )
        echo(f"Next: `opsassay run SUITE -a {agent}`." if passed else "Put right what is broken, then check again.")
    context.exit(0 if passed else 1)
