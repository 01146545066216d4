"""Values that a shell completes: agents, methods, tasks, faults, systems; names are looked up when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click
from click.shell_completion import CompletionItem

from opsassay.core.errors import OpsAssayError


class Named(click.ParamType):
    """A text that is one of *names*, or of a file: the shell completes both."""

    name = "text"

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return *value* as it is: the command looks it up."""
        return click.STRING.convert(value, param, ctx)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin like *incomplete*; where there are none the shell offers files."""
        del ctx, param
        try:
            found = sorted(name for name in self._names() if name.startswith(incomplete))
        except (ImportError, OSError, OpsAssayError):  # a package that is not installed, a folder that cannot be read
            found = []
        return [CompletionItem(name) for name in found] or [CompletionItem(incomplete, type="file")]


def _methods() -> Iterable[str]:
    from opsassay.solvers.methods.base import METHODS

    return METHODS.names()


def _agents() -> Iterable[str]:
    from opsassay.solvers.agents.base import AGENTS
    from opsassay.solvers.agents.ready import ready_files

    return (*AGENTS.names(), *ready_files())


def _tasks() -> Iterable[str]:
    from opsassay.evals.runner.domain import DOMAINS, domain_named

    return (task.id for name in DOMAINS.names() for task in domain_named(name).tasks(()))


def _faults() -> Iterable[str]:
    from opsassay.core.schema.faults import CATALOGUE

    return CATALOGUE


def _systems() -> Iterable[str]:
    from opsassay.testbed.apps import names

    return names()


def _scenarios() -> Iterable[str]:
    from opsassay.testbed.scenarios import generated_names, names

    return (*names(), *generated_names())


def _running() -> Iterable[str]:
    from opsassay.cli.substrates import HERE, substrate_of

    return substrate_of(HERE).names()


AGENT = Named(_agents)
METHOD = Named(_methods)
SOLVER = Named(lambda: (*_agents(), *_methods()))
TASK = Named(_tasks)
FAULT = Named(_faults)
SYSTEM = Named(_systems)
SCENARIO = Named(_scenarios)
RUNNING = Named(_running)
