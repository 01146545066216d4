"""Shell completion of option values: agents, methods, tasks, faults, systems; names are looked up on demand."""

from __future__ import annotations

from collections.abc import Iterable
from pkgutil import resolve_name
from typing import Any

import click
from click.shell_completion import CompletionItem

from opsassay.core.errors import OpsAssayError


class Named(click.ParamType[Any]):
    """A text whose completions are the names that the functions at *places* ("module:function") return, or files."""

    name = "text"

    def __init__(self, *places: str) -> None:
        self._places = places

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the known names that start with *incomplete*; if there are none, ask the shell to complete file names."""
        del ctx, param
        try:
            names = sorted(name for place in self._places for name in resolve_name(place)())
        except (ImportError, OSError, OpsAssayError):  # a package that is not installed, a folder that cannot be read
            names = []
        return [CompletionItem(one) for one in names if one.startswith(incomplete)] or [
            CompletionItem(incomplete, "file")
        ]


def task_ids() -> Iterable[str]:
    """Return the ids of the tasks that ship with OpsAssay, for shell completion."""
    from opsassay.evals.runner.domain import DOMAINS, domain_named

    return (task.id for name in DOMAINS.names() for task in domain_named(name).tasks(()))


def running_systems() -> Iterable[str]:
    """Return the names of the systems that OpsAssay runs on this machine, for shell completion."""
    from opsassay.cli.substrates import HERE, substrate_of

    return substrate_of(HERE).names()


_AGENTS = ("opsassay.solvers.agents.base:AGENTS.names", "opsassay.solvers.agents.ready:ready_files")
_METHODS = "opsassay.solvers.methods.base:METHODS.names"
AGENT, METHOD, SOLVER = Named(*_AGENTS), Named(_METHODS), Named(*_AGENTS, _METHODS)
TASK = Named("opsassay.cli.completion:task_ids")
FAULT = Named("opsassay.core.schema.faults:CATALOGUE.keys")
SYSTEM = Named("opsassay.testbed.apps:names")
SCENARIO = Named("opsassay.testbed.scenarios:names", "opsassay.testbed.scenarios:generated_names")
RUNNING = Named("opsassay.cli.completion:running_systems")
