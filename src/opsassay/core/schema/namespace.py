"""ExistingNamespace: a cluster's namespace with a team's own deployments, as a system file names it."""

from __future__ import annotations

from pydantic import Field

from opsassay.core.schema.base import Written


class ExistingNamespace(Written):
    """The namespace whose deployments are the services; OpsAssay neither deploys nor removes them."""

    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", description="the namespace")
    probes: dict[str, str] = Field(
        default_factory=dict, description="by deployment, a URL in the cluster whose GET it answers with 200"
    )
    context: str | None = Field(default=None, description="the context of the kubeconfig; the current one if left out")
    unlimited: tuple[str, ...] = Field(default=(), description="services whose containers have no limits")
    readiness: dict[str, str] = Field(
        default_factory=dict, description="by deployment, the container that has a readiness probe"
    )
