"""opsassay demo: from a running system to a report."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from opsassay.cli.completion import FAULT, SYSTEM
from opsassay.cli.output import (
    FOLDER,
    NumberRange,
    Stages,
    echo,
    isolation_option,
    json_option,
    print_json,
    print_table,
    say,
    stages,
    window_options,
)
from opsassay.evals.runner.tables import percent

if TYPE_CHECKING:
    from opsassay.core.schema.system import IsolationLevel, System

HALVINGS = 2
"""How often the demo halves the load on a machine that is too slow before it fails."""
METRICS = ("exact_match", "any_service", "f1", "path_reachability", "node_f1", "edge_f1")


@click.command("demo")
@click.option("-o", "--output", type=FOLDER, help="Folder; opsassay-out/demo-TIME when left out.")
@click.option("--seed", type=int, default=0, show_default=True, help="Chooses the fault.")
@click.option(
    "--system", type=SYSTEM, default="shop", show_default=True, help="The system to break: a name, or a YAML file."
)
@click.option("--fault", "fault_name", type=FAULT, help="Fault type to inject instead of the seed's.")
@window_options(30.0)
@click.option(
    "--rate", "rate_rps", type=NumberRange(min=1, max=1000), help="User requests a second; the system's own (30)."
)
@isolation_option
@json_option
@click.pass_context
def command(
    context: click.Context, output: Path | None, seed: int, system: str, fault_name: str | None, normal_s: float,
    abnormal_s: float, rate_rps: float | None, isolation: IsolationLevel | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Break --system by --fault (else drawn by --seed), record it, run and grade every method, write a report."""
    from opsassay.core.schema.incident import FaultPlan
    from opsassay.testbed.apps import load_system
    from opsassay.testbed.recording.record import Schedule

    app = load_system(system)
    shipped = system == "shop"
    fault, service, parameters = choose_fault(seed, fault_name) if shipped else draw_fault(app, seed, fault_name)
    plan = FaultPlan.model_validate({"fault": fault, "target": {"service": service}, "parameters": parameters})
    root = output or Path("opsassay-out") / time.strftime("demo-%Y%m%d-%H%M%S")
    with stages() as shown:
        schedule = Schedule(8.0, normal_s, abnormal_s)
        id_ = record_incident(root, app, plan, schedule, rate_rps, isolation, shown)
        result = explain_and_grade(root, id_, seed, shown)
    if as_json:
        print_json("demo", result.pop("items"), **result)
    else:
        _print_result(result)
    context.exit(1 if result["void"] else 0)


def drawn_faults(part: str) -> dict[str, dict[str, Any]]:
    """Return fault type to settings in the section *part* of demo.yaml: "shop" (own system) or "own" (the user's)."""
    parts: dict[str, dict[str, dict[str, Any]]]
    parts = yaml.safe_load(Path(__file__).with_name("demo.yaml").read_text(encoding="utf-8"))
    return parts[part]


def choose_fault(seed: int, name: str | None) -> tuple[str, str, dict[str, Any]]:
    """Return (type, service, parameters) of the demo's fault *name*, else of one drawn by *seed*; raises NotFoundError."""
    from opsassay.core.errors import NotFoundError

    by_name = {fault: (fault, one["service"], one["parameters"]) for fault, one in drawn_faults("shop").items()}
    if name is not None:
        if name not in by_name:
            raise NotFoundError("fault of the demo", name, by_name, "Others: `opsassay incident record`.")
        return by_name[name]
    faults = list(by_name.values())
    return faults[0] if seed == 0 else random.Random(seed).choice(faults)  # noqa: S311


def draw_fault(app: System, seed: int, name: str | None) -> tuple[str, str, dict[str, Any]]:
    """Return (type, service, parameters) of a fault on a called service of *app*: the type *name*, or drawn by *seed*.

    Raises NotFoundError for a type that the demo does not use.
    """
    from opsassay.core.errors import NotFoundError
    from opsassay.testbed.injection.preconditions import exhausts

    known = drawn_faults("own")
    if name is not None and name not in known:
        raise NotFoundError("fault of the demo", name, known, "Others: `opsassay incident record`.")
    chance = random.Random(seed)  # noqa: S311
    called = sorted({callee for _, callee in app.calls()} or app.services)
    unlimited = app.compose is not None and not set(called).isdisjoint(app.compose.unlimited)
    fault = name or chance.choice(sorted(one for one in known if not (unlimited and exhausts(one))))
    return fault, chance.choice(called), known[fault]


def record_incident(
    root: Path,
    app: System,
    plan: Any,
    schedule: Any,
    rate_rps: float | None,
    isolation: IsolationLevel | None,
    stages: Stages,
) -> str:
    """Record *app*, broken by *plan*, into *root* by *schedule* (windows); return the id; raises NotNormalError."""
    from opsassay.annotation.evidence.baseline import drift_objection
    from opsassay.core.draws import derived_seed, new_secret
    from opsassay.telemetry.tree import Tree
    from opsassay.testbed.recording.record import record
    from opsassay.testbed.substrates.local.substrate import LocalSubstrate

    substrate, name = LocalSubstrate(), f"demo-{os.getpid()}"
    secret = new_secret()
    stages.started(f"starting {app.system}")
    seed = derived_seed(secret, "system")
    with substrate.deployed(app, name, seed=seed, rate_rps=rate_rps, isolation=isolation) as running:
        spool = running.state.dir / "recording"  # goes with the system, however this process ends
        id_ = record(
            running, app, plan, Tree(root), schedule,
            secret=secret, halvings=HALVINGS, steady=drift_objection, spool=spool, progress=stages,
        )  # fmt: skip
        stages.started(f"stopping {app.system}")
    return id_


def explain_and_grade(root: Path, id_: str, seed: int, stages: Stages) -> dict[str, Any]:
    """Annotate the incident *id_*, run and grade all methods on it, write report.html; return the demo's output as JSON."""
    from opsassay.annotation.job import annotate_path
    from opsassay.evals.diagnosis.score import grade_run
    from opsassay.evals.diagnosis.solve import run_method
    from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run
    from opsassay.scoring.void import void_reason
    from opsassay.solvers.methods.base import METHODS
    from opsassay.telemetry.tree import Tree, resolve
    from opsassay.ui.report import case_reports, write_report

    tree, store = Tree(root), RunStore(root)
    stages.started("explaining the cascade")
    annotated = annotate_path(tree.incident_path(id_))
    (case,) = resolve(tree.incident_path(id_))
    truth = tree.truth(id_)
    void = void_reason(truth, case.annotation)
    items = []
    stages.started("diagnosing and grading")
    for method in () if void else METHODS.names():
        run_dir = run_method(store, case.datapack, method, seed=seed)
        items.append(_answer_as_json(read_run(run_dir), read_diagnosis(run_dir), grade_run(run_dir, case)))
    stages.started("writing the report")
    reproduce = [f"opsassay run diagnose {root}", f"opsassay score run {root}", f"opsassay report {root} -o {root}"]
    report = write_report(case_reports(store, [case], reproduce=reproduce), root / "report.html", title="OpsAssay demo")
    return {
        "incident": str(case.datapack.path),
        "fault": " + ".join(fault.type for fault in truth.faults),
        "label": annotated.annotation.label.value if annotated.annotation else None,
        "reason": annotated.annotation.reason if annotated.annotation else annotated.error,
        "truth_roots": sorted(frozenset().union(*truth.root_services())),
        "truth_edges": sorted(annotated.annotation.graph.service_edges()) if annotated.annotation else [],
        "report": str(report),
        "notes": list(truth.notes),
        "void": void,
        "items": items,
    }


def _answer_as_json(run: Any, diagnosis: Any, verdict: Any) -> dict[str, Any]:
    """Return one method's answer to the demo's incident: method, top service, answer, correct, metrics, seconds."""
    metrics = {name: verdict.metrics[name].value for name in METRICS}
    return {
        "method": run.solver.name,
        "top1": diagnosis.ranking[0].service if diagnosis and diagnosis.ranking else None,
        "answer": [claim.service for claim in diagnosis.root_causes] if diagnosis else None,
        "correct": None if metrics["any_service"] is None else metrics["any_service"] == 1.0,
        **metrics,
        "seconds": round(((run.ended_ns or run.started_ns) - run.started_ns) / 1e9, 3),
    }


def _print_result(result: dict[str, Any]) -> None:
    """Print the demo's fault, its true cascade, and a table of the methods' grades."""
    from opsassay.core.schema.metric_words import word

    roots = ", ".join(result["truth_roots"]) or "nothing"
    echo(f"Broken: {result['fault']} on {roots}. Label: {result['label']}. {result['reason']}")
    if result["truth_edges"]:
        echo("True cascade: " + ", ".join(f"{cause} -> {effect}" for cause, effect in result["truth_edges"]))
    for note in result["notes"]:
        echo(f"note: {note}")
    if result["void"]:
        echo(f"Report: {result['report']}.")
        say(f"Error: {result['void']}; free the machine or give it less to do with --rate, and run the demo again.")
        return
    rows = [
        (
            item["method"],
            ", ".join(item["answer"] or []) or "nothing is wrong",
            *(percent(item[name]) or "n/a" for name in METRICS),
            f"{item['seconds']:.2f}",
        )
        for item in result["items"]
    ]
    titles = [word(name).title for name in METRICS]
    print_table("Grades of this one incident", ("method", "answer", *titles, "seconds"), rows)
    echo(f"Report: {result['report']}. Next: an agent of your own, `opsassay new agent my-agent`.")
