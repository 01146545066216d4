"""opsassay system attach."""

from __future__ import annotations

from pathlib import Path

import click

from opsassay.cli.output import echo, json_option, print_json, print_table, say


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
@json_option
def command(project: str, entries: tuple[str, ...], output: Path, *, as_json: bool) -> None:
    """Write a system file of a compose project that runs: its own containers are broken and put back, no copy is made.

    Nothing is changed by this command. It lists what a check, a recording or a trial does to the containers.
    """
    import yaml

    from opsassay.core.errors import UserError
    from opsassay.core.schema.compose import ComposeService
    from opsassay.core.schema.system import ComposeSystem, Load, LoadMix
    from opsassay.testbed.apps.attached import LISTED, AttachedProject, page_at

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
