"""opsassay agent check."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.completion import AGENT, TASK
from opsassay.cli.output import echo, json_option, print_json, print_table, stages

if TYPE_CHECKING:
    from opsassay.evals.diagnosis.setups.agents import RunSettings
    from opsassay.evals.runner.rehearsal import Rehearsal


@click.command("check")
@click.argument("agent", type=AGENT)
@click.option("--task", type=TASK, help="A task of `opsassay task list` to rehearse; a made-up incident when left out.")
@click.option("--model", help="scripted:FILE, replayed:SESSION, or a model of OPENAI_BASE_URL; a script when left out.")
@click.option(
    "-c", "--change", "changes", multiple=True, metavar="KEY=VALUE", help="A setting, as in limits.seconds=60."
)
@json_option
@click.pass_context
def command(
    context: click.Context, agent: str, task: str | None, model: str | None, changes: tuple[str, ...], *, as_json: bool
) -> None:
    """Try AGENT (name or agent.yaml), with --model, on a practice incident or --task; report tools, rules it kept."""
    from opsassay.evals.diagnosis.setups.agents import read_settings

    settings = read_settings(changes)
    name, found = (_rehearse_on_incident if task is None else _rehearse_on_task)(agent, model, settings, task)
    passed = all(one.passed is not False for one in found.checks)
    if as_json:
        items = [{"check": one.name, "passed": one.passed, "said": one.said} for one in found.checks]
        tools = [one.model_dump(mode="json") for one in found.tools]
        print_json("agent check", items, agent=name, passed=passed, isolation=found.isolation, task=task, tools=tools)
    else:
        rows = [(one.name, ", ".join(one.parameters.get("properties", {})), one.description) for one in found.tools]
        print_table("Tools", ("tool", "takes", "does"), [(*r[:2], r[2].strip().splitlines()[0]) for r in rows])
        marks = {True: "kept", False: "BROKEN", None: ""}
        checks = [(c.name, marks[c.passed], c.said) for c in found.checks]
        print_table(f"Contract: {name}", ("check", "", "what was seen"), checks)
        suite = f"`opsassay run INCIDENTS -a {agent}`; `opsassay demo -o INCIDENTS` records one"
        echo(
            f"Next: {'`opsassay run PLAN -o STORE`' if task else suite}."
            if passed
            else "Put right what is broken, then check again."
        )
    context.exit(0 if passed else 1)


def _rehearse_on_incident(agent: str, model: str | None, settings: RunSettings, _: str | None) -> tuple[str, Rehearsal]:
    """Let *agent* with *model* diagnose a made-up incident; return (agent's name, result); UserError for a method."""
    from opsassay.core.errors import UserError
    from opsassay.evals.diagnosis.setups.agents import agent_setup
    from opsassay.evals.diagnosis.setups.dry_run import DRY_RUN_MODEL
    from opsassay.evals.diagnosis.setups.dry_run import check as dry_run
    from opsassay.evals.diagnosis.setups.sweeps import is_asked_method

    if is_asked_method(agent):
        raise UserError(f"{agent} is a method; run it with `opsassay run diagnose DIR -m {agent}`.")
    setup = agent_setup(agent, model or DRY_RUN_MODEL, settings)
    with stages() as shown:
        shown.started(f"{setup.agent.name} diagnoses a made-up incident of two services")
        return setup.agent.name, dry_run(setup)


def _rehearse_on_task(agent: str, model: str | None, settings: RunSettings, task: str | None) -> tuple[str, Rehearsal]:
    """Run *agent* with *model* on *task* for a few seconds; return (its name, what it did); raises UserError."""
    from opsassay.core.errors import NotFoundError, UserError
    from opsassay.evals.runner.domain import DOMAINS, domain_named
    from opsassay.evals.runner.ranking import ORACLE
    from opsassay.evals.runner.rehearsal import SECONDS, CanRehearse
    from opsassay.solvers.agents.ready import named_path

    if agent.startswith(ORACLE):
        raise UserError(f"{agent} answers by the truth; there is nothing to rehearse.")
    domains = {one.id: name for name in DOMAINS.names() for one in domain_named(name).tasks(())}
    if task not in domains:
        raise NotFoundError("task", str(task), domains, "All are listed by `opsassay task list`.")
    limits = {"seconds": SECONDS, **settings.limits.model_dump(exclude_unset=True)}
    domain = domain_named(domains[task])
    jobs = domain.jobs(
        _plan_part(domain.name, task, named_path(agent), model, settings, limits), Path(), f"task {task}"
    )
    if not isinstance(job := jobs[0], CanRehearse):
        raise UserError(f"{domain.name} tasks cannot be rehearsed. Run one with `opsassay run`.")
    name = jobs[0].cell.solver.name
    with stages() as shown:
        shown.started(f"{name} rehearses {task} for at most {limits['seconds']:g} s", limits["seconds"])
        return name, job.rehearse(limits["seconds"])


def _plan_part(
    domain: str, task: str, agent: str, model: str | None, settings: RunSettings, limits: dict[str, Any]
) -> dict[str, Any]:
    """Return a part of a run plan in the form of *domain*: *agent* with *model*, *task*, *limits* and *settings*."""
    further = settings.model_dump(mode="json", include={"price", "sealing", "temperature"})
    if domain != "sre":
        return {"tasks": [task], "agents": [{"name": agent, "model": model}], "settings": {**further, "limits": limits}}
    own: dict[str, Any] = {name: limits[name] for name in limits if name != "seconds"}
    if agent.endswith((".yaml", ".yml")):
        own = {"limits": own, "price": further["price"], "sealing": further["sealing"]}
    return {"scenarios": [task], "agents": [{"name": agent, "model": model, "settings": own}]}
