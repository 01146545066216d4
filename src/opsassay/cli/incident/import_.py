"""opsassay incident import, and of a past incident from backends."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import FOLDER, echo, json_option, print_json, print_table, say
from opsassay.core.errors import UserError

if TYPE_CHECKING:
    from opsassay.telemetry.importers.backends.settings import PastIncident
    from opsassay.telemetry.importers.cases import ImportReport


@click.command("import")
@click.argument("format_", metavar="FORMAT")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder of the incident tree.")
@click.option("--root", multiple=True, metavar="SERVICE[:KIND]", help="otlp: a root cause that you state; repeatable.")
@click.option("--alerts", type=click.Path(path_type=Path, dir_okay=False), help="otlp: file of alerts that fired.")
@click.option("--boundary", metavar="TIME", help="otlp: when the normal window ends, of files in one folder.")
@click.option("--update-truth", is_flag=True, help="otlp: replace the truth of a case that is there already.")
@json_option
@click.pass_context
def command(
    context: click.Context, format_: str, path: Path, output: Path, root: tuple[str, ...], alerts: Path | None,
    boundary: str | None, *, update_truth: bool, as_json: bool,
) -> None:  # fmt: skip
    """Import the data at PATH, in a public FORMAT, into a tree of datapacks, with the truth in a folder of its own.

    A case that is there already is skipped; one that cannot be read is reported, and the rest goes on (exit 1). For
    otlp, --root, --alerts and --boundary win over the incident.yaml of the case.
    """
    from opsassay.telemetry.importers import IMPORTERS

    importer = IMPORTERS.load(format_)
    stated: dict[str, Any] = {"root": root, "boundary": boundary}
    if alerts is not None:
        from opsassay.telemetry.importers.stated import read_alerts

        stated["alerts"] = read_alerts(alerts)
    if stated := {key: value for key, value in stated.items() if value}:
        importer = partial(importer, stated=stated)
    if stated or update_truth:
        if format_ != "otlp":
            raise UserError(f"--root, --alerts, --boundary and --update-truth are for otlp, not for {format_}.")
        importer = partial(importer, update_truth=update_truth)
    report = importer(path, output, lambda name, became: say(f"opsassay: {name}: {became}"))
    _print_report(report, f"{format_} into {output}", as_json=as_json)
    context.exit(1 if report.failed else 0)


@click.command("backends")
@click.argument("file", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--prometheus", metavar="URL", help="Metrics are read from here.")
@click.option("--loki", metavar="URL", help="Logs are read from here.")
@click.option("--tempo", metavar="URL", help="Traces are read from here.")
@click.option("--jaeger", metavar="URL", help="Traces are read from here, instead of Tempo.")
@click.option("--normal", metavar="FROM..TO", help="The window before the incident, ISO 8601.")
@click.option("--abnormal", metavar="FROM..TO", help="The window while it lasts.")
@click.option("--root", metavar="SERVICE[:KIND]", help="The root cause that you state; nothing verifies it.")
@click.option("--postmortem", metavar="FILE", help="A text that is kept with the truth.")
@click.option(
    "-c", "changes", multiple=True, metavar="KEY=VALUE", help="One setting, as in -c limits.requests_per_s=20."
)
@click.option("-o", "--output", required=True, type=FOLDER, help="Folder of the incident tree.")
@json_option
@click.pass_context
def backends(
    context: click.Context,
    /,
    file: Path | None,
    changes: tuple[str, ...],
    output: Path,
    *,
    as_json: bool,
    **options: str | None,
) -> None:
    """Import a past incident from your observability backends as a datapack; FILE is an incident.yaml with settings.

    Other options win over -c KEY=VALUE, and both over FILE. Tokens are in the environment: OPSASSAY_PROMETHEUS_TOKEN,
    OPSASSAY_LOKI_TOKEN, and so on. An import that was cut off goes on when the same command is run again.
    """
    from opsassay.telemetry.importers.backends.importing import import_backends

    settings = _merge_settings(file, changes, {name: value for name, value in options.items() if value is not None})
    report = import_backends(settings, output, lambda name, became: say(f"opsassay: {name}: {became}"))
    for _, sentences in report.failed:
        for sentence in sentences.splitlines():
            say(f"opsassay: {sentence}")
    if as_json or not report.failed:
        _print_report(report, f"backends into {output}", as_json=as_json)
    if not report.failed and not as_json:
        echo(f"Next: `opsassay incident annotate {output} --explain`.")
    context.exit(1 if report.failed else 0)


def _merge_settings(file: Path | None, changes: tuple[str, ...], options: dict[str, str]) -> PastIncident:
    """Return the settings of *file*, then *changes* (KEY=VALUE), then *options* on top; paths are relative to the file."""
    import yaml

    from opsassay.core.schema.backends import NAMES
    from opsassay.core.schema.files import load_yaml, parse_yaml
    from opsassay.core.schema.overrides import merge_layers, with_changes
    from opsassay.telemetry.importers.backends.settings import PastIncident

    given: dict[str, Any] = {}
    if file is not None:
        read = load_yaml(file, PastIncident)
        given = read.model_dump(mode="json", exclude_unset=True)
        if read.postmortem is not None:
            given["postmortem"] = str(file.parent / read.postmortem)
    changed = with_changes(PastIncident, given, changes, example="limits.traces=100")
    whole = changed.model_dump(mode="json", exclude_unset=True)
    for name, value in options.items():
        whole = merge_layers(whole, {name: {"url": value} if name in NAMES else value})
        parse_yaml(yaml.safe_dump(whole), PastIncident, f"--{name}", lines=False)
    return PastIncident.model_validate(whole)


def _print_report(report: ImportReport, title: str, *, as_json: bool) -> None:
    """Print the outcome of each imported case under *title*, and the notes; with *as_json* as JSON."""
    groups = (("imported", report.imported), ("skipped", report.skipped), ("failed", report.failed))
    items = [{"case": name, "status": status, "detail": detail} for status, cases in groups for name, detail in cases]
    if as_json:
        notes = [{"case": name, "note": note} for name, note in report.notes]
        print_json("incident import", items, notes=notes)
    else:
        print_table(title, ("case", "status", "id or reason"), [tuple(item.values()) for item in items])
        for name, note in report.notes:
            say(f"opsassay: {name}: {note}")
