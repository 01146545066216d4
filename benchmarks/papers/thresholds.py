"""Score trials again under the paper's 144 settings of four thresholds.

Run: ``python -m benchmarks.papers.thresholds STORE``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from opsassay.cli.output import echo, json_option, print_json, print_table, say
from opsassay.core.errors import UserError
from opsassay.evals.remediation.report import Trials

from .running import run
from .sweep import main_slice, sweep


@click.command("thresholds")
@click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--all-arms", is_flag=True, help="Every trial, not only the baseline prompt with probes on.")
@json_option
@click.pass_context
def command(context: click.Context, store: Path, *, all_arms: bool, as_json: bool) -> None:
    """Score the trials of STORE again under the paper's 144 settings of four thresholds, without a new run."""
    trials = _trials(store)
    chosen = trials.recorded if all_arms else main_slice(trials)
    if not chosen and trials.recorded:
        raise UserError(f"{store} holds no trial of the main slice (baseline prompt, probes on); --all-arms takes all.")
    swept = sweep(chosen)
    items = [
        {**one.setting._asdict(), **{name: value for name, value in vars(one).items() if name != "setting"}}
        for one in swept
    ]
    hidden = sorted(one.hidden for one in swept)
    p_values = [one.p_value for one in swept if one.p_value is not None]
    summary: dict[str, Any] = {
        "settings": len(swept),
        "hidden": [hidden[0], hidden[-1]],
        "outcome": [min(s.outcome for s in swept), max(s.outcome for s in swept)],
        "largest_p": max(p_values, default=None),
    }
    if as_json:
        print_json("thresholds", items, summary=summary, problems=trials.problems)
    else:
        columns = (
            "floor",
            "stall (s)",
            "window (s)",
            "cadence",
            "outcome",
            "conj.",
            "hidden",
            "D1-check",
            "deeper-check",
        )
        rows = [
            (f"{i['floor_availability']:.2f}", i["probe_latency_limit_s"], i["probe_attribution_s"],
             f"x{i['cadence_factor']:g}", f"{i['outcome']}/{i['runs']}", f"{i['conjunction']}/{i['runs']}",
             f"{i['hidden']}/{i['outcome']}", f"{i['d1_hidden']}/{i['d1_outcome']}",
             f"{i['deeper_hidden']}/{i['deeper_outcome']}")
            for i in items
        ]  # fmt: skip
        print_table("Sweep", columns, rows)
        largest = summary["largest_p"]
        said = "no test is defined" if largest is None else f"largest Fisher exact p {largest:.2g}"
        echo(f"{len(swept)} settings: hidden failures from {hidden[0]} to {hidden[-1]}; {said}.")
    context.exit(1 if trials.problems else 0)


def _trials(store: Path) -> Trials:
    trials = Trials(store)
    for folder, problem in trials.problems.items():
        say(f"{folder}: {problem}")
    return trials


if __name__ == "__main__":
    sys.exit(run(command))
