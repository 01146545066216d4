"""assay diagnose."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from assay.cli.output import json_option, print_json, print_table, say


@click.command("diagnose")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-m", "--method", "methods", multiple=True, help="Method to run; repeat for more, all when left out.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Folder of the run store; PATH itself when left out."
)
@click.option("--seed", type=int, default=0, show_default=True, help="Part of what names a run.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=1), default=120.0, show_default=True, help="Limit per run, s."
)
@click.option("--again", is_flag=True, help="Run also what has a result already; the new attempt is kept beside it.")
@json_option
@click.pass_context
def command(
    context: click.Context, path: Path, methods: tuple[str, ...], output: Path | None, seed: int, timeout_s: float,
    *, again: bool, as_json: bool,
) -> None:  # fmt: skip
    """Run methods on the incidents at PATH; each sees telemetry and nothing else, in a process of its own."""
    import os
    from concurrent.futures import ThreadPoolExecutor

    from assay.bench.runner import run_method
    from assay.bench.store import RunStore, read_diagnosis, read_run
    from assay.methods.base import METHODS, method_named
    from assay.telemetry.tree import resolve

    chosen = methods or tuple(METHODS.names())
    for name in chosen:
        method_named(name)  # an unknown one is refused before anything runs
    cases = resolve(path)
    store = RunStore(output or path)
    items = []

    def run(pair: tuple[Any, str]) -> Path:
        return run_method(store, pair[0].datapack, pair[1], seed=seed, timeout_s=timeout_s, again=again)

    pairs = [(case, name) for case in cases for name in chosen]
    pool = ThreadPoolExecutor(os.cpu_count())  # each run is a process; a thread only waits for it
    try:
        for (case, name), run_dir in zip(pairs, pool.map(run, pairs), strict=True):
            item = _item(case, read_run(run_dir), read_diagnosis(run_dir), run_dir)
            say(f"assay: {item['case']}: {name}: {item['answer']}")
            items.append(item)
    finally:
        pool.shutdown(cancel_futures=True)
    if as_json:
        print_json("diagnose", items)
    else:
        rows = [
            (i["case"], i["method"], i["answer"], _yes(i["correct"]), f"{i['seconds']:.2f}", i["run"]) for i in items
        ]
        print_table("Diagnoses", ("incident", "method", "answer", "correct", "seconds", "run"), rows)
        click.echo(f"Next: `assay grade {store.root}`.")
    context.exit(1 if any(item["status"] != "done" for item in items) else 0)


def _item(case: Any, run: Any, diagnosis: Any, run_dir: Path) -> dict[str, Any]:
    claims = [claim.service for claim in diagnosis.root_causes] if diagnosis else []
    answer = ", ".join(claims) or "nothing is wrong"
    return {
        "case": case.name,
        "system": run.system,
        "method": run.solver.name,
        "ranking": [row.model_dump() for row in diagnosis.ranking] if diagnosis else [],
        "answer": answer if diagnosis else f"{run.status.value}: {run.error}",
        "correct": _correct(case, claims) if diagnosis else None,
        "status": run.status.value,
        "seconds": round(((run.ended_ns or run.started_ns) - run.started_ns) / 1e9, 3),
        "run": str(run_dir),
    }


def _correct(case: Any, claims: list[str]) -> bool | None:
    """Return whether a named service is a true root, or nothing was claimed where nothing was broken."""
    if case.truth is None:
        return None
    broken = {service for _, services, _ in case.truth.struck() for service in services}
    return bool(broken & set(claims)) if broken else not claims


def _yes(value: bool | None) -> str | None:
    return None if value is None else "yes" if value else "no"
