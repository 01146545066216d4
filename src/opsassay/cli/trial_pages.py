"""The pages of trials, which `opsassay report` and `opsassay trials report` write."""

from __future__ import annotations

from pathlib import Path

from opsassay.cli.output import echo, say


def write_trial_pages(store: Path, output: Path) -> int:
    """Write one page per trial of *store* into *output*; return how many could not be written, which are said."""
    from opsassay.bench.core.store import RunStore, read_run
    from opsassay.bench.domains.sre.grading import (
        grade_trial,
        kept_scenario,
        read_recording,
        read_steps,
        recorded_trials,
    )
    from opsassay.errors import OpsAssayError
    from opsassay.web.run_page import write_run_page
    from opsassay.web.run_view import trial_view

    problems = 0
    for run_dir in recorded_trials(RunStore(store)):
        begun = read_run(run_dir)
        try:
            scenario = kept_scenario(store, begun.item_hash)
            verdict = grade_trial(run_dir, scenario)
            view = trial_view(begun, scenario, read_recording(run_dir), verdict, read_steps(run_dir))
            echo(write_run_page(view, output / f"{begun.item}-{begun.cell}.html"))
        except OpsAssayError as error:
            say(f"{run_dir}: {error}")
            problems += 1
    return problems
