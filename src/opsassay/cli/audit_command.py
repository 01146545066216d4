"""opsassay audit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import FOLDER, NumberRange, echo, json_option, print_json, print_table, say, stages
from opsassay.evals.runner.tables import percent

if TYPE_CHECKING:
    from opsassay.analysis.audit.audit import AuditReport
    from opsassay.analysis.audit.settings import AuditSettings
    from opsassay.analysis.audit.verify import Checked

_FILE = click.Path(path_type=Path)
_settings_option = click.option("--settings", "file", type=_FILE, help="YAML file of settings.")
_override_option = click.option(
    "-c", "overrides", multiple=True, metavar="KEY=VALUE", help="One setting, as in -c columns.score=acc."
)
_metric_option = click.option(
    "--metric", help="Which grade is the score, for a folder of runs; one defined on all when left out."
)


@click.command("audit")
@click.argument("path", metavar="SCORES", type=_FILE)
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder of the report.")
@_settings_option
@_override_option
@_metric_option
@json_option
def command(
    path: Path, output: Path, file: Path | None, overrides: tuple[str, ...], metric: str | None, *, as_json: bool
) -> None:
    """Audit SCORES, a table or a store of graded runs, and write report.html, report.md, tables and figures.

    The table is CSV or parquet with the columns family, system, case, method and score (0 to 1). --metric: the score of
    a store, else one that all its runs have. -c sets one setting over the file --settings.
    """
    from opsassay.analysis.audit.settings import read_settings

    result = _audit_scores(path, read_settings(file, overrides), metric)
    _write_report(result, output)
    _print_report(result, output, as_json=as_json)


@click.command("verify")
@click.argument("printed", type=_FILE)
@click.argument("source", metavar="[SCORES]", required=False, type=_FILE)
@click.option("--tolerance", type=NumberRange(min=0), help="Exit 1 where a figure differs by more than this.")
@_settings_option
@_override_option
@_metric_option
@json_option
@click.pass_context
def verify(
    context: click.Context,
    printed: Path,
    source: Path | None,
    tolerance: float | None,
    file: Path | None,
    overrides: tuple[str, ...],
    metric: str | None,
    *,
    as_json: bool,
) -> None:
    """Recompute each figure of PRINTED from SCORES, else from PRINTED; exit 1 if one differs by over --tolerance."""
    from opsassay.analysis.audit.export import finite
    from opsassay.analysis.audit.settings import read_settings

    checked = _check_printed(printed, source, read_settings(file, overrides), metric)
    if as_json:
        print_json("audit", [finite(c) for c in checked], verified=str(printed))
    else:
        columns = ("figure", "of", "system", "printed", "recomputed", "difference")
        print_table(str(printed), columns, [_format_figure(c) for c in checked])
    differing = [
        c for c in checked if tolerance is not None and (c.difference is None or abs(c.difference) > tolerance)
    ]
    context.exit(1 if any(c.printed is not None for c in differing) else 0)


def _audit_scores(path: Path, settings: AuditSettings, metric: str | None) -> AuditReport:
    """Read the scores at *path*, keep the cases that all methods have, and audit them; *metric* is the score of a store."""
    from opsassay.analysis.audit.audit import audit_matched
    from opsassay.analysis.audit.matched import match
    from opsassay.cli.score_input import scores_of

    with stages() as shown:
        shown.started("reading scores")
        inclusion = match(scores_of([path], settings, metric)[0].table, settings, str(path))
        return audit_matched(inclusion.matched, settings, inclusion.ledger, inclusion.remarks, shown.started)


def _write_report(result: AuditReport, output: Path) -> None:
    """Write report.html, report.md, tables and figures of *result* into *output*; raises UserError when that is a file."""
    from opsassay.core.errors import UserError
    from opsassay.ui.audit_report import write_audit

    if output.exists() and not output.is_dir():
        raise UserError(f"{output} is a file; give the folder of the report.")
    write_audit(result, output)


def _print_report(result: AuditReport, output: Path, *, as_json: bool) -> None:
    """Print *result* as tables, or as one JSON object with *as_json*, with the path of its page in *output*."""
    from opsassay.analysis.audit.export import as_json as whole_object

    whole = whole_object(result)
    if as_json:
        items = whole.pop("items")
        print_json("audit", items, **whole, report=str(output / "report.html"))
        return
    for row in whole["excluded"]:
        say(f"opsassay: left out: {row['method']}: {row['reason']}")
    for remark in whole["remarks"]:
        say(f"opsassay: {remark}")
    rows = [_format_pair(item) for item in whole["items"]]
    columns = (
        "pair",
        "+/-/0",
        "I2",
        "prediction interval, pp",
        "reversals",
        "mean regret",
        "max regret",
        "p interaction",
    )
    print_table("Stability of each pair over systems (macro pooling)", columns, rows[:30])
    if len(rows) > 30:
        echo(f"{len(rows) - 30} more pairs are in {output / 'tables' / 'pairs.csv'}.")
    for recommendation in result.recommendations[:30]:
        echo(recommendation.text)
    echo(f"\n{result.claim}\n\n{output / 'report.html'}")


def _format_pair(pair: dict[str, Any]) -> tuple[str | None, ...]:
    """Return the cells of one *pair* of methods in the table on stability of ranks; None for a missing value."""
    macro, ends, p = pair["loso"]["macro"], pair["prediction_interval"], pair["interaction"]["p"]
    return (
        " - ".join(pair["pair"]),
        "/".join(str(n) for n in pair["signs"].values()),
        percent(pair["i2"]),
        f"[{100 * ends[0]:+.1f}, {100 * ends[1]:+.1f}]" if ends else None,
        f"{macro['reversals']}/{len(pair['effects'])}" if macro else None,
        percent(macro["mean_regret"]) if macro else None,
        percent(macro["max_regret"]) if macro else None,
        None if p is None else f"{p:.3g}",
    )


def _format_figure(checked: Checked) -> tuple[str | None, ...]:
    """Return the cells of one figure: name, methods, system, printed value, recomputed value, difference."""
    of = " - ".join(name for name in (checked.first, checked.second) if name)
    difference = None if checked.difference is None else f"{checked.difference:+.4f}"
    return (
        checked.figure,
        of,
        checked.system,
        _format_number(checked.printed),
        _format_number(checked.recomputed),
        difference,
    )


def _format_number(value: float | None) -> str | None:
    """Return *value* with six significant digits, None for None."""
    return None if value is None else f"{value:.6g}"


def _check_printed(printed: Path, source: Path | None, settings: AuditSettings, metric: str | None) -> list[Checked]:
    """Recompute each figure in the file *printed* from *source*, or from *printed* itself; raises UserError."""
    from opsassay.analysis.audit import verify
    from opsassay.analysis.audit.table import read_table
    from opsassay.core.errors import UserError

    table = read_table(printed)
    if verify.is_ledger(table):
        ledger = verify.read_ledger(table, str(printed))
        if source is None:
            return verify.check_ledger(ledger, verify.ledger_figures(ledger), same=True)
        return verify.check_ledger(ledger, _read_figures(source, settings, metric), same=False)
    if not verify.is_printed_list(table):
        raise UserError(
            f"{printed} is neither a per-system ledger (system, n, means, or method and mean, delta_A_B_pp, ci_low, "
            f"ci_high where they are printed) nor a list of "
            f"figures ({', '.join(verify.PRINTED_COLUMNS)}); it has {', '.join(table.columns[:12])}."
        )
    if source is None:
        raise UserError(f"{printed} lists figures without what they come from; add the scores or the ledger after it.")
    return verify.check_list(table, _read_figures(source, settings, metric), str(printed))


def _read_figures(source: Path, settings: AuditSettings, metric: str | None) -> dict[tuple[str, str, str, str], float]:
    """Return the figures printed in *source*, or made from its scores, by (figure, method, second method, system)."""
    from opsassay.analysis.audit import verify
    from opsassay.analysis.audit.table import read_table

    if source.is_file() and verify.is_ledger(table := read_table(source)):
        return verify.ledger_figures(verify.read_ledger(table, str(source)))
    return verify.audit_figures(_audit_scores(source, settings, metric))
