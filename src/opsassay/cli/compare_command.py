"""opsassay compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import FILE, NumberRange, echo, json_option, print_json, print_table, say
from opsassay.evals.runner.tables import percent

if TYPE_CHECKING:
    from opsassay.analysis.audit.compare import Comparison, Difference


@click.command("compare")
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
@click.option("--metric", help="Which grade is the score, for a folder of runs; one defined on all when left out.")
@click.option("--margin", type=NumberRange(0, 100), help="Fail unless B is shown to lose less than this many points.")
@click.option(
    "--missing",
    type=NumberRange(0, 100),
    default=10.0,
    show_default=True,
    help="Fail when one side lacks more than this share of all cases, in percent.",
)
@click.option("--junit", type=FILE, help="Write the verdicts as JUnit XML, for a CI gate.")
@click.option("--markdown", type=FILE, help="Write a summary as Markdown, for the page of a CI job.")
@click.option(
    "--allow-unsealed", is_flag=True, help="Compare runs that were not sealed too, marked in all that is written."
)
@click.option("-c", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, as in -c columns.score=acc.")
@json_option
@click.pass_context
def command(
    context: click.Context,
    before: Path,
    after: Path,
    metric: str | None,
    margin: float | None,
    missing: float,
    junit: Path | None,
    markdown: Path | None,
    overrides: tuple[str, ...],
    *,
    allow_unsealed: bool,
    as_json: bool,
) -> None:
    """Compare B with A, two score tables or stores of graded runs, on the cases that both have; exit 1 when B is worse.

    It also exits with 1 unless B is shown to lose less than --margin points, and when one side lacks more than
    --missing percent of the cases.
    """
    from opsassay.analysis.audit import compare, compare_report
    from opsassay.analysis.audit.settings import read_settings
    from opsassay.cli.score_input import scores_of

    settings = read_settings(None, overrides)
    a, b = scores_of([before, after], settings, metric, by_protocol=False, allow_unsealed=allow_unsealed)
    accepted = None if margin is None else margin / 100
    found = [
        replace(
            compare.compare(a.table, b.table, names, settings, accepted, missing / 100),
            unsealed_before=a.unsealed.get(names[0], 0),
            unsealed_after=b.unsealed.get(names[1], 0),
        )
        for names in compare.methods_to_compare(a.table, b.table)
    ]
    for one in found:
        if one.left_out:
            say(f"opsassay: {one.method}: {one.left_out}")
    if junit:
        _write_file(junit, compare_report.junit(found))
    if markdown:
        _write_file(markdown, compare_report.markdown(found, str(before), str(after)))
    if as_json:
        print_json("compare", [_comparison_as_json(one) for one in found], passed=all(one.passed for one in found))
    else:
        columns = ("method", "system", "cases", "A", "B", "B - A, pp [interval]", "detectable", "verdict")
        print_table("B against A, paired", columns, [row for one in found for row in _format_comparison(one)])
        for one in found:
            echo(f"{one.method}: {compare.sentence(one.overall)}.")
            if one.unsealed:
                echo(f"{one.method}: {one.unsealed}.")
    context.exit(0 if all(one.passed for one in found) else 1)


def _write_file(path: Path, text: str) -> None:
    """Write *text* to *path*, and make its folder."""
    from opsassay.analysis.audit.export import write_text

    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def _comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """Return *comparison* of one method as an item of JSON; the earlier results are "a", the later ones "b"."""
    from opsassay.analysis.audit.export import finite

    return {
        "method": comparison.method,
        "passed": comparison.passed,
        "weighted_difference": comparison.weighted,
        "missing": comparison.missing,
        "only_a": list(comparison.only_before),
        "only_b": list(comparison.only_after),
        "unsealed_a": comparison.unsealed_before,
        "unsealed_b": comparison.unsealed_after,
        **_difference_as_json(finite(comparison.overall)),
        "systems": [_difference_as_json(finite(system)) for system in comparison.systems],
    }


def _difference_as_json(difference: dict[str, Any]) -> dict[str, Any]:
    """Return *difference* with its keys before and after as "a" and "b", and low and high as one "interval"."""
    fields = {key: value for key, value in difference.items() if key not in {"before", "after", "low", "high"}}
    return fields | {
        "a": difference["before"],
        "b": difference["after"],
        "interval": [difference["low"], difference["high"]],
    }


def _format_comparison(comparison: Comparison) -> list[tuple[str | None, ...]]:
    """Return the table's rows of *comparison*: first the mean over all systems, then each system."""

    def row(difference: Difference, system: str) -> tuple[str | None, ...]:
        ends = f"[{100 * difference.low:+.1f}, {100 * difference.high:+.1f}]"
        return (
            comparison.method,
            system,
            str(difference.cases),
            percent(difference.before),
            percent(difference.after),
            f"{100 * difference.difference:+.1f} {ends}",
            None if difference.detectable is None else f"{100 * difference.detectable:.1f} pp",
            difference.outcome.value + (" (unsealed)" if comparison.unsealed else ""),
        )

    return [
        row(comparison.overall, "all (mean of systems)"),
        *(row(system, system.system) for system in comparison.systems),
    ]
