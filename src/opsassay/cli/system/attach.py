"""opsassay system attach."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsassay.cli.output import echo, json_option, print_json, print_table, say

if TYPE_CHECKING:
    from opsassay.core.schema.backends import TeamBackends

KINDS = {"traces": ("tempo", "jaeger"), "metrics": ("prometheus",), "logs": ("loki",)}
"""The backends that each option may name."""


@click.command("attach")
@click.option("--compose", "project", required=True, metavar="PROJECT", help="Compose project whose containers run.")
@click.option(
    "--entry", "entries", required=True, multiple=True, metavar="URL",
    help="Page that users get, at a published port: http://127.0.0.1:8080/; several times for several pages.",
)  # fmt: skip
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default="system.yaml",
    show_default=True,
    help="File of the system, which must not exist.",
)
@click.option("--traces", metavar="tempo=URL", help="Tempo or Jaeger that holds spans of the project; jaeger=URL.")
@click.option("--metrics", metavar="prometheus=URL", help="Prometheus that holds its metrics.")
@click.option("--logs", metavar="loki=URL", help="Loki that holds its logs.")
@json_option
def command(project: str, entries: tuple[str, ...], output: Path, *, as_json: bool, **backends: str | None) -> None:
    """Write a system file of a compose project that runs: its own containers are broken and put back, no copy is made.

    Nothing is changed by this command. It lists what a check, a recording or a trial does to the containers. Recordings
    take from backends what these hold of their window.
    """
    import yaml

    from opsassay.core.errors import UserError
    from opsassay.core.schema.compose import ComposeService
    from opsassay.core.schema.system import ComposeSystem, Load, LoadMix
    from opsassay.testbed.apps.attached import LISTED, AttachedProject, page_at

    read = _backends({option: text for option, text in backends.items() if text is not None})
    pages = [page_at(url) for url in entries]
    if output.exists():
        raise UserError(f"{output} exists; remove it, or name another file with -o.")
    found = AttachedProject(project, {})
    services = found.services()
    ports = {name: one.program.port for name, one in services.items() if one.program is not None}
    system = ComposeSystem(
        system=project,
        attach=project,
        services={name: ComposeService(port=port) for name, port in ports.items() if port},
        load=Load(mix=tuple(LoadMix(request=found.request_of(page)) for page in pages)),
        backends=read,
    )
    content = system.model_dump(mode="json", exclude_defaults=True)
    try:
        output.write_text(yaml.safe_dump(content, sort_keys=False, width=120), encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot write {output}: {error.strerror}; choose another file with -o.") from error
    items = [
        {"service": name, "containers": len(found.containers[name]), "port": port or None,
         "limited": name not in found.unlimited}
        for name, port in ports.items()
    ]  # fmt: skip
    if as_json:
        print_json("system attach", items, file=str(output), changes=list(LISTED))
        return
    rows = [(*list(one.values())[:3], "yes" if one["limited"] else "no") for one in items]
    print_table(f"The compose project {project}", ("service", "containers", "port", "has limits"), rows)
    for one in LISTED:
        echo(f"A check, a recording or a trial {one}.")
    say(f"Nothing was changed. Next: `opsassay system check {output}`.")


def _backends(options: Mapping[str, str]) -> TeamBackends | None:
    """Return the backends that *options* name as NAME=URL, None without any; raises UserError."""
    from pydantic import ValidationError

    from opsassay.core.errors import UserError
    from opsassay.core.schema.backends import Backend, TeamBackends

    named: dict[str, Backend] = {}
    for option, text in options.items():
        name, _, url = text.partition("=")
        try:
            if name not in KINDS[option] or not url:
                raise ValueError(f"write {' or '.join(f'{kind}=URL' for kind in KINDS[option])}")
            named[name] = Backend(url=url)
        except ValidationError as error:
            raise UserError(f"--{option} {text}: {error.errors()[0]['ctx']['error']}.") from error
        except ValueError as error:
            raise UserError(f"--{option} {text}: {error}.") from error
    return TeamBackends.model_validate(named) if named else None
