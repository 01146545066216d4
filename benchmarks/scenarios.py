"""Every oracle and every control of every scenario: repairs certify, others fail as their file says, no control certifies.

Resumable: a store that is given again is gone on with, and no cell is run or scored twice. Hours on a small machine.

    python benchmarks/scenarios.py STORE [--repeats 5] [-j 1] [--only NAME ... | --generated] [--controls | --all]
        [--script NAME ...] [--sample 12 --seed 0] [--substrate local] [--cluster FILE] [--record FILE]

Controls run once each; a sample is drawn of all that would run, as pairs of a scenario and a script. `--cluster` takes the
`cluster` block of a plan, for scenarios on Kubernetes, `--record` a table that a line is added to for each run
(`benchmarks/scenario_record.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.progress import ProgressLines
from opsassay.evals.remediation.controls.scripts import ControlScript, applicable, controls_of, sampled, script_of
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.solve import TrialRun, run_trials
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.oracles import EVERY_ORACLE
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.scoring.rates import wilson
from opsassay.testbed.scenarios import generated_names, load_scenario, names
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings
from scenario_record import SeenRun, add

PROBED = ("slow-archive", "oracle:patient")
"""Rejected for the probe alone: with probes off the same repair is certified."""


def main() -> int:
    given = command_line()
    only = given.only or (generated_names if given.generated else names)(given.substrate)
    cells = cells_to_run(given, only)
    store = RunStore(given.store)
    run_trials(store, cells, given.jobs, progress=ProgressLines(lambda line: print(f"{line}\n", end="", flush=True)))
    right, seen, wanted = Counter[str](), Counter[str](), Counter[str]()
    recorded: list[SeenRun] = []
    for cell in cells:
        row = f"{cell.scenario.id:28} {cell.agent.name:34} {cell.cell.arm.label}"
        wanted[row] += 1
        if (folder := store.finished(cell.cell.hash)) is None:
            print(f"{row} no result")
            continue
        run, why = graded(cell, folder)
        seen[row] += 1
        right[row] += not why
        recorded.append(run)
        if why:
            print(f"{row} failed {why}")
    if given.record:
        print(f"{add(given.record, recorded)} runs added to {given.record}")
    for row in wanted:
        print(f"{row:85} {right[row]} of {seen[row]} as it should be")
    if given.controls or given.all:
        show_not_applicable(only)
    low, high = wilson(right.total(), seen.total())
    print(f"{right.total()} of {wanted.total()} runs as they should be (95% of the results: {low:.0%} to {high:.0%})")
    return 0 if right.total() == wanted.total() else 1


def command_line() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="folder of the runs")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each oracle")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="trials side by side")
    parser.add_argument("--substrate", choices=("local", "kubernetes"), default="local")
    parser.add_argument("--only", nargs="*", help="scenarios; all of the substrate that ship when left out")
    parser.add_argument("--generated", action="store_true", help="those that are generated instead of those that ship")
    parser.add_argument("--controls", action="store_true", help="the controls alone")
    parser.add_argument("--all", action="store_true", help="the oracles, then the controls")
    parser.add_argument("--script", nargs="*", help="of these scripts alone, such as a control that is new")
    parser.add_argument("--sample", type=int, help="so many pairs of a scenario and a script, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cluster", type=Path, help="YAML file that says which cluster")
    parser.add_argument("--record", type=Path, help="CSV file that a line is added to for each run")
    return parser.parse_args()


def cells_to_run(given: argparse.Namespace, only: list[str]) -> list[TrialRun]:
    """Return the cells of the scripts of the scenarios *only* that the command line *given* asks for."""
    cluster = load_yaml(given.cluster, ClusterSettings) if given.cluster else ClusterSettings()
    cells = [] if given.controls else oracles(only, given.repeats, cluster)
    if given.controls or given.all:
        cells += controls(only, cluster)
    if given.script is not None:
        cells = [cell for cell in cells if cell.agent.oracle in given.script]
    if given.sample is None:
        return cells
    pairs = {(cell.scenario.id, cell.agent.name) for cell in cells}
    chosen = set(sampled(sorted(pairs), given.sample, given.seed))
    return [cell for cell in cells if (cell.scenario.id, cell.agent.name) in chosen]


def graded(cell: TrialRun, folder: Path) -> tuple[SeenRun, str]:
    """Return the line of the record for the run of *cell* in *folder*, and what is wrong with it, empty when nothing is."""
    verdict = grade_trial(folder, cell.scenario)
    failed = {judged.predicate for judged in verdict.judgements if judged.failed} - {"certificate"}
    good = as_it_should_be(cell, failed, certified=verdict.judgement("certificate").passed)
    started = datetime.fromtimestamp(read_run(folder).started_ns // 10**9, UTC)
    run = SeenRun(
        started.strftime("%Y-%m-%dT%H:%M:%SZ"),
        cell.scenario.id,
        cell.scenario.digest()[:12],
        cell.agent.oracle or "",
        "on" if cell.probes else "off",
        "yes" if good else "no",
        " ".join(sorted(failed)),
    )
    return run, "" if good else f"{', '.join(sorted(failed)) or 'nothing'}: {verdict.judgement('certificate').reason}"


def show_not_applicable(only: list[str]) -> None:
    """Print each control that cannot be tried in one of the scenarios *only*, and why."""
    for name in only:
        for control in controls_of(load_scenario(name)):
            if control.why_not:
                print(f"{name:28} {control.name:27} not applicable: {control.why_not}")


def oracles(only: list[str], repeats: int, cluster: ClusterSettings) -> list[TrialRun]:
    """Return the cells of every oracle of the scenarios' files."""
    plan = TrialPlan(
        scenarios=tuple(only), agents=(TrialAgent(name=EVERY_ORACLE),), repeats=repeats, cluster=cluster, retries=2
    )
    cells = list(cells_of(plan))
    if PROBED[0] in only:
        off = TrialPlan(scenarios=PROBED[:1], agents=(TrialAgent(name=PROBED[1]),), probes=(False,), repeats=repeats)
        cells += cells_of(off)
    return cells


def controls(only: list[str], cluster: ClusterSettings) -> list[TrialRun]:
    """Return the cells of every control that can be carried out."""
    pairs = [(name, control.name) for name in only for control in applicable(load_scenario(name))]
    return [
        cell
        for name, control in pairs
        for cell in cells_of(
            TrialPlan(scenarios=(name,), agents=(TrialAgent(name=ORACLE + control),), cluster=cluster, retries=2)
        )
    ]


def as_it_should_be(cell: TrialRun, failed: set[str], *, certified: bool) -> bool:
    """Tell whether the run of *cell* failed what it had to: an oracle exactly that, a control that at least."""
    script = script_of(cell.scenario, cell.agent.oracle or "")
    if isinstance(script, ControlScript):
        return not certified and script.fails in failed
    return script.is_met(failed, probes=cell.probes) and certified == script.certified


if __name__ == "__main__":
    sys.exit(main())
