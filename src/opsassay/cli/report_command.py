"""opsassay report."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsassay.cli.output import FOLDER, cases_apart, echo, say
from opsassay.cli.trial_pages import write_trial_pages

if TYPE_CHECKING:
    from opsassay.bench.core.store import RunStore
    from opsassay.errors import OpsAssayError


@click.command("report")
@click.argument("store", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder; report.html is written into it.")
@click.option(
    "--cases", type=click.Path(path_type=Path), help="Tree with incidents and truth; STORE itself when left out."
)
@click.option("--profile", default="default", show_default=True, help="Grading profile of the verdicts that are shown.")
@click.option("--title", default="OpsAssay report", show_default=True, help="Title of the page.")
@click.pass_context
def command(context: click.Context, store: Path, output: Path, cases: Path | None, profile: str, title: str) -> None:
    """Write HTML about the runs of STORE that opens from disk without network: one file, and a page per trial."""
    from opsassay.bench.core.store import RunStore

    domains = RunStore(store).domains()
    failed = write_trial_pages(store, output) if "sre" in domains else 0
    if domains == {"sre"}:
        context.exit(1 if failed else 0)
    from opsassay.bench.core.store import RunStore
    from opsassay.bench.domains.diagnosis.grades import cases_of
    from opsassay.bench.domains.diagnosis.judging import JUDGED
    from opsassay.errors import UserError
    from opsassay.grading.profiles import profile_named
    from opsassay.web.report import write_report
    from opsassay.web.runs import case_reports, solver_summaries

    profile_named(profile.removesuffix(JUDGED))
    problems: list[str] = []

    def unread(_: Path, error: OpsAssayError) -> None:
        problems.append(str(error))

    known, runs = cases_of(store, cases, unread), RunStore(store)
    reports = case_reports(runs, known, profile, _commands(runs, cases, output), unread)
    for problem in problems:
        say(f"opsassay: left out: {problem}")
    if not reports:
        raise UserError(f"{store} holds no finished runs of these incidents; make some with `opsassay diagnose`.")
    output.mkdir(parents=True, exist_ok=True)
    solvers = solver_summaries(reports, known)
    if len(reports) == 1 and all(set(summary.pass_at) <= {1} for summary in solvers):
        solvers = []  # the table of grades says the same
    echo(str(write_report(reports, output / "report.html", title=title, solvers=solvers)))
    context.exit(1 if problems or failed else 0)


def _commands(store: RunStore, cases: Path | None, output: Path) -> list[str]:
    """Return the commands that make such a report: agents have names and files of their own, which a run does not tell."""
    from opsassay.bench.core.store import read_run
    from opsassay.errors import OpsAssayError

    kinds = set()
    for run_dir in store.runs():
        with suppress(OpsAssayError):  # what cannot be read is reported by the report itself
            kinds.add(read_run(run_dir).solver.kind)
    made = {"method": "opsassay diagnose {}", "agent": "opsassay run {} -a AGENT"}
    apart = f" -o {store.root}" if cases else ""
    asked = cases_apart(cases, store.root)
    return [
        *(command.format(cases or store.root) + apart for kind, command in made.items() if kind in kinds),
        f"opsassay grade {store.root}{asked}",
        f"opsassay report {store.root} -o {output}{asked}",
    ]
