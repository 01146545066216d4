"""Where commands run systems: this machine, or the cluster that kubectl would speak to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from opsassay.errors import UserError

if TYPE_CHECKING:
    from opsassay.model.system import Setting
    from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate
    from opsassay.testbed.substrates.local.substrate import LocalSubstrate

KUBERNETES = "kubernetes"
setting_option = click.option(
    "--isolation",
    type=click.Choice(["auto", "namespaced", "plain", KUBERNETES]),
    default="auto",
    show_default=True,
    callback=lambda _context, _option, value: None if value == "auto" else value,
    help="Isolation level of the system; auto is the best that this machine has, kubernetes is kubectl's cluster.",
)


cluster_option = click.option(
    "--isolation", type=click.Choice([KUBERNETES]), help="For systems on a cluster: that of kubectl."
)


def where(setting: Setting | None) -> str:
    """Return what further commands on a system in *setting* need to be told."""
    return f" --isolation {KUBERNETES}" if setting == KUBERNETES else ""


def substrate_of(setting: Setting | None, image: str | None = None) -> LocalSubstrate | KubernetesSubstrate:
    """Return what runs systems in *setting*: this machine, or for ``kubernetes`` the cluster of kubectl's own choice.

    There every pod runs *image*. Raises UserError for one elsewhere.
    """
    if setting != KUBERNETES:
        if image is not None:
            raise UserError(f"Only pods run an image: give --image with --isolation {KUBERNETES}.")
        from opsassay.testbed.substrates.local.substrate import LocalSubstrate

        return LocalSubstrate()
    from opsassay.testbed.substrates.kubernetes.substrate import KubernetesSubstrate

    return KubernetesSubstrate(image=image) if image else KubernetesSubstrate()
