"""opsassay system attach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from opsassay.cli.output import echo, json_option, print_json, print_table, say

if TYPE_CHECKING:
    from opsassay.core.schema.backends import TeamBackends
    from opsassay.core.schema.base import Written

KINDS = {"traces": ("tempo", "jaeger"), "metrics": ("prometheus",), "logs": ("loki",)}
"""The backends that each option may name."""


@click.command("attach")
@click.option("--compose", "project", metavar="PROJECT", help="Compose project whose containers run.")
@click.option("--namespace", metavar="NAME", help="Kubernetes namespace whose deployments run.")
@click.option(
    "--context",
    "kube_context",
    metavar="NAME",
    help="Kubernetes context of --namespace; the current one when left out.",
)
@click.option(
    "--entry", "entries", required=True, multiple=True, metavar="URL",
    help="Page that users get: at a published port (http://127.0.0.1:8080/), or of a Service (http://front/); repeatable.",
)  # fmt: skip
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default="system.yaml",
    show_default=True,
    help="File of the system, which must not exist.",
)
@click.option("--traces", metavar="tempo=URL", help="Tempo or Jaeger that holds its spans; jaeger=URL.")
@click.option("--metrics", metavar="prometheus=URL", help="Prometheus that holds its metrics.")
@click.option(
    "--logs",
    metavar="loki=URL",
    help="Loki that holds its logs; with --namespace pod logs are read without it (kubectl).",
)
@json_option
def command(
    project: str | None, namespace: str | None, kube_context: str | None, entries: tuple[str, ...], output: Path, *,
    as_json: bool, **backends: str | None,
) -> None:  # fmt: skip
    """Write a system file for what already runs: a compose project, or a Kubernetes namespace. No copy is made.

    This command changes nothing. It lists what a check, a recording or a trial changes and later undoes. Recordings read
    the telemetry of their window from the backends that you name.
    """
    from opsassay.core.errors import UserError

    if (project is None) == (namespace is None):
        raise UserError("Give either --compose PROJECT or --namespace NAME.")
    if namespace is None and kube_context is not None:
        raise UserError("--context goes with --namespace; leave it out.")
    if namespace is not None and backends["logs"] == "kubectl":
        backends["logs"] = None
    read = _backends({option: text for option, text in backends.items() if text is not None})
    if output.exists():
        raise UserError(f"{output} exists; remove it, or name another file with -o.")
    if namespace is not None:
        _attach_namespace(namespace, kube_context, entries, output, read, as_json=as_json)
    else:
        assert project is not None
        _attach_project(project, entries, output, read, as_json=as_json)


def _attach_project(
    project: str, entries: tuple[str, ...], output: Path, backends: TeamBackends | None, *, as_json: bool
) -> None:
    """Write the system file *output* of the compose *project*, and print its services."""
    from opsassay.core.schema.compose import ComposeService
    from opsassay.core.schema.system import ComposeSystem, Load, LoadMix
    from opsassay.testbed.apps.attached import LISTED, AttachedProject, page_at

    pages = [page_at(url) for url in entries]
    found = AttachedProject(project, {})
    services = found.services()
    ports = {name: one.program.port for name, one in services.items() if one.program is not None}
    system = ComposeSystem(
        system=project,
        attach=project,
        services={name: ComposeService(port=port) for name, port in ports.items() if port},
        load=Load(mix=tuple(LoadMix(request=found.request_of(page)) for page in pages)),
        backends=backends,
    )
    _write(system, output)
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
    _show_changes(LISTED, output)


def _attach_namespace(
    name: str,
    context: str | None,
    entries: tuple[str, ...],
    output: Path,
    backends: TeamBackends | None,
    *,
    as_json: bool,
) -> None:
    """Write the system file *output* of the Kubernetes namespace *name*, and print its services."""
    from opsassay.testbed.substrates.kubernetes.api.client import Api
    from opsassay.testbed.substrates.kubernetes.attaching import attach, changes_of

    found = attach(Api.connect(None, context), name, entries, backends)
    namespace = found.system.namespace
    assert namespace is not None
    _write(found.system, output)
    items = [
        {"service": service, "replicas": one.replicas, "port": one.program.port or None if one.program else None,
         "limited": service not in namespace.unlimited, "asked_at": namespace.probes.get(service)}
        for service, one in found.system.services.items()
    ]  # fmt: skip
    changes = changes_of(name)
    if as_json:
        print_json("system attach", items, file=str(output), changes=changes, left_out=dict(found.left_out))
        return
    rows = [(*list(one.values())[:3], "yes" if one["limited"] else "no", one["asked_at"]) for one in items]
    titles = ("service", "replicas", "port", "has limits", "asked at")
    print_table(f"The namespace {name} of {namespace.context}", titles, rows)
    for workload, reason in found.left_out.items():
        echo(f"{workload} is left out: {reason}.")
    _show_changes(changes, output)


def _write(system: Written, output: Path) -> None:
    """Write *system* as YAML to *output*; raises UserError."""
    import yaml

    from opsassay.core.errors import UserError

    content = system.model_dump(mode="json", exclude_defaults=True)
    try:
        output.write_text(yaml.safe_dump(content, sort_keys=False, width=120), encoding="utf-8")
    except OSError as error:
        raise UserError(f"Cannot write {output}: {error.strerror}; choose another file with -o.") from error


def _show_changes(changes: Sequence[str], output: Path) -> None:
    """Print what commands on the system file *output* change, and which comes next."""
    for one in changes:
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
