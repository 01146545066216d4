"""Which cluster, and what may be done with it: the `cluster` block of a plan."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from opsassay.core.schema.base import Written
from opsassay.testbed.substrates.kubernetes.manifests.image import IMAGE


class ClusterSettings(Written):
    """The cluster that scenarios for Kubernetes happen on; kubectl's own choice when nothing is said."""

    kubeconfig: Path | None = Field(default=None, description="an administrator's; kubectl's own when left out")
    context: str | None = Field(default=None, description="the current one when left out")
    image: str = Field(default=IMAGE, description="what everything of ours runs")
    kubectl: str = Field(default="kubectl", description="the program, by name or path")
    node_command: tuple[str, ...] = Field(
        default=(), description="what does {op} at {node}: stop, start, partition, restore, delay, undelay"
    )
    audit_log: Path | None = Field(
        default=None, description="the API server's audit log, where this machine can read it"
    )
    open_nodes: bool = Field(
        default=False, description="let agents in although the cluster admits pods that are a way to its nodes"
    )

    def where(self) -> dict[str, str]:
        """Return kubeconfig and context, as far as they are set, as settings of the substrate."""
        given = {"kubeconfig": self.kubeconfig, "context": self.context}
        return {name: str(value) for name, value in given.items() if value is not None}
