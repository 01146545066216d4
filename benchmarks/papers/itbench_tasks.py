"""The tables by which ITBench describes its compliance and cost tasks, of the tasks that ship: 22, 23 and 26 to 29."""

from __future__ import annotations

from opsassay.cli.output import print_tables
from opsassay.evals.compliance.tasks import ANSIBLE
from opsassay.evals.compliance.tasks import published as compliance_tasks
from opsassay.evals.cost.anomaly.task import ANOMALY_TASKS
from opsassay.evals.cost.insight.keys import QUESTIONS
from opsassay.evals.cost.live.tasks import live_task
from opsassay.evals.cost.tasks import published as cost_tasks
from opsassay.evals.runner.tables import ResultTable


def task_tables() -> list[ResultTable]:
    """Return Tables 22, 23 and 26 to 29 of ITBench."""
    return [
        _controls(22, "Kubernetes"),
        _controls(23, "hosts"),
        _questions(),
        _anomalies(),
        _use_case("cost-growth", 28),
        _use_case("cost-autoscaler", 29),
    ]


def _controls(number: int, about: str) -> ResultTable:
    found = tuple(
        (one.section, one.name, one.task_info.stratum, one.any_control.goal)
        for one in compliance_tasks()
        if (one.task_class == ANSIBLE) == (about == "hosts")
    )
    note = "Sections of the CIS benchmarks that are named, in our own words."
    return ResultTable(
        f"Controls of {about}", ("section", "task", "stratum", "what is asked"), found, note, number=number
    )


def _questions() -> ResultTable:
    heads = {one.name: one.task_info for one in cost_tasks()}
    found = tuple(
        (name, one.paper or "E.1.1", one.stratum, heads[name].goal.split("\n\n")[0], one.kpi)
        for name, one in QUESTIONS.items()
    )
    return ResultTable(
        "Questions", ("task", "scenario", "stratum", "question, published seed", "KPI"), found, number=26
    )


def _anomalies() -> ResultTable:
    heads = {one.name: one.task_info for one in cost_tasks()}
    found = tuple(
        (name, heads[name].stratum, heads[name].goal.split("\n")[0], heads[name].description) for name in ANOMALY_TASKS
    )
    return ResultTable("Anomaly tasks", ("task", "stratum", "asked, published seed", "about"), found, number=27)


def _use_case(name: str, number: int) -> ResultTable:
    task = live_task(name)
    scenario, block = task.scenario, task.cost
    steps = [step for step in scenario.oracles["right"].steps if step.verb is not None]
    found = (
        ("triggering alert", scenario.alert),
        ("summary", scenario.title),
        ("event type", "an alert on more than 20% over the same hour of last week, and beyond the budget"),
        ("cause", f"{block.cause} of {block.service}"),
        ("resolution", scenario.desired_outcome),
        ("steps of the right oracle", "; ".join(f"{step.verb} {step.arguments or ''}".strip() for step in steps)),
    )
    return ResultTable(f"Use case {name}", ("", "details"), found, number=number)


if __name__ == "__main__":
    print_tables(task_tables())
