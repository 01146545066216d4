"""Options of commands that start or find systems: the substrate and its isolation level."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from opsassay.core.schema.system import System
    from opsassay.testbed.core.substrate import Substrate

HERE = "local"
substrate_option = click.option(
    "--substrate",
    default=HERE,
    show_default=True,
    help="What runs the system: local is this machine, kubernetes is kubectl's cluster; packages may add others.",
)
fresh_option = click.option(
    "--substrate",
    metavar="NAME[:LEVEL]",
    default=HERE,
    show_default=True,
    help="What runs the system, and its isolation level: local, local:namespaced, local:plain, kubernetes, or a package's.",
)


def split_level(substrate: str) -> tuple[str, str | None]:
    """Split "NAME:LEVEL" into (substrate, isolation level); without a level it is None: the best available one."""
    name, _, level = substrate.partition(":")
    return name, level or None


def substrate_for(system: System, given: str) -> tuple[Substrate, str | None]:
    """Return (substrate, isolation level) by *given*, "NAME:LEVEL"; a *system* in a namespace defaults to Kubernetes."""
    name, level = split_level(given)
    if system.namespace is not None and name == HERE:
        return substrate_of("kubernetes", context=system.namespace.context), level
    return substrate_of(name), level


def there(substrate: str) -> str:
    """Return " --substrate NAME" for a suggested command, '' for the default substrate."""
    return "" if substrate == HERE else f" --substrate {substrate}"


def substrate_of(name: str, **settings: str | None) -> Substrate:
    """Return the substrate *name* (local, kubernetes, ...) made with *settings*; raises NotFoundError, UserError."""
    from opsassay.testbed.core.substrate import load_substrate

    given: Mapping[str, str] = {key: value for key, value in settings.items() if value is not None}
    return load_substrate(name, given)
