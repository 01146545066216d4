"""opsassay leaderboard."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import NewFile, echo, json_option, print_json, print_tables, say

_PATH = click.Path(path_type=Path)


@click.command("leaderboard")
@click.argument("stores", nargs=-1, required=True, type=_PATH, metavar="STORE...")
@click.option("--cases", type=_PATH, help="Tree with incidents and truth; the runs' own stores when left out.")
@click.option("--domain", help="Show the leaderboard of this domain alone.")
@click.option(
    "--profile", default="default", show_default=True, help="default, lenient, openrca2 or compat, for incidents."
)
@click.option("--html", type=NewFile(), help="HTML file to write the leaderboards to.")
@json_option
@click.pass_context
def command(
    context: click.Context, stores: tuple[Path, ...], cases: Path | None, domain: str | None, profile: str,
    html: Path | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Rank the solvers in STORES of runs, domain by domain; solvers whose difference is not significant share a rank."""
    from opsassay.analysis.leaderboard.board import make_board
    from opsassay.analysis.leaderboard.tables import board_tables
    from opsassay.evals.runner.domain import domain_named
    from opsassay.evals.runner.grading import GradeSettings, choose_stores, grade_stores, problem_lines
    from opsassay.scoring.profiles import profile_named

    profile_named(profile)
    if domain is not None:
        domain_named(domain)
    graded = grade_stores(choose_stores(stores), GradeSettings(cases, profile, say=say))
    problems = problem_lines(graded)
    for problem in problems:
        say(f"opsassay: not graded: {problem}")
    boards = [make_board(one) for one in graded if one.graded and domain in (None, one.domain.name)]
    if html is not None:
        from opsassay.ui.leaderboards import write_boards

        say(f"opsassay: leaderboards: {write_boards(boards, html)}")
    if as_json:
        items = [{"domain": board.domain, **row.as_item()} for board in boards for row in board.rows]
        warnings = {board.domain: list(board.warnings) for board in boards}
        print_json("leaderboard", items, warnings=warnings, problems=problems)
    else:
        print_tables(board_tables(boards))
        for board in boards:
            for warning in board.warnings:
                echo(warning)
    context.exit(1 if problems else 0)
