"""assay report."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("store", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, type=click.Path(path_type=Path), help="Folder; report.html is written into it."
)
@click.option(
    "--cases", type=click.Path(path_type=Path), help="Tree with incidents and truth; STORE itself when left out."
)
@click.option("--profile", default="default", show_default=True, help="Grading profile of the verdicts that are shown.")
@click.option("--title", default="Assay report", show_default=True, help="Title of the page.")
def command(store: Path, output: Path, cases: Path | None, profile: str, title: str) -> None:
    """Write one HTML file about the runs of STORE that opens from disk without network."""
    from assay.bench.store import RunStore
    from assay.errors import NotFoundError, UserError
    from assay.grading.profiles import PROFILES
    from assay.telemetry.tree import resolve
    from assay.web.report import write_report
    from assay.web.runs import case_reports

    if profile not in PROFILES:
        raise NotFoundError("grading profile", profile, PROFILES)
    reports = case_reports(
        RunStore(store), resolve(cases or store), profile, reproduce=[f"assay diagnose {cases or store}"]
    )
    if not reports:
        raise UserError(f"{store} holds no finished runs of these incidents; make some with `assay diagnose`.")
    output.mkdir(parents=True, exist_ok=True)
    click.echo(str(write_report(reports, output / "report.html", title=title)))
