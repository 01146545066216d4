"""The tools of an agent that operates a cluster: kubectl, what it may do at nodes, and those that look at telemetry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Written
from opsassay.core.schema.cluster import NodeOp
from opsassay.core.schema.trajectory import Action
from opsassay.testbed.operations.arguments import Wait
from opsassay.testbed.operations.telemetry_view import LOOKS, Look, TelemetryView
from opsassay.testbed.operations.tool_session import Done, OperatorToolSession, Tool
from opsassay.testbed.substrates.kubernetes.access.executed import touched_by
from opsassay.testbed.substrates.kubernetes.access.kubectl import Kubectl, parse_kubectl
from opsassay.testbed.substrates.kubernetes.actuators.node_command import NodeCommand
from opsassay.testbed.substrates.kubernetes.scenario.names import OpenNames

Word = Annotated[str, Field(max_length=16_384)]


class KubectlRead(Written):
    """Look at the cluster by kubectl (get, describe, logs, ...): the arguments after the word kubectl, one by one."""

    args: list[Word] = Field(min_length=1, max_length=60, description='such as ["get", "pods", "-o", "wide"]')


class KubectlCall(Written):
    """Run kubectl: the arguments after the word kubectl, one by one; no shell. Manifests: -f - and *input*."""

    args: list[Word] = Field(
        min_length=1, max_length=60, description='such as ["rollout", "restart", "deployment/web"]'
    )
    input: str | None = Field(default=None, max_length=65_536, description="what -f - reads")
    timeout_s: float = Field(default=30.0, gt=0, le=300)


class NodeCall(Written):
    """Do something at a node: stop or start its kubelet, partition or restore its network, delay or undelay it."""

    node: str = Field(max_length=63, description="name of a node, or control-plane")
    op: Literal["stop", "start", "partition", "restore", "delay", "undelay"]


TOOLS: Mapping[str, Tool] = {
    **LOOKS,
    "kubectl_read": Tool(KubectlRead),
    "kubectl": Tool(KubectlCall, mutating=True),
    "node": Tool(NodeCall, mutating=True),
    "wait": Tool(Wait),
}
"""Every tool by its name; `node` only where the scenario grants something at nodes, looks where there is telemetry."""


class ClusterToolSession(OperatorToolSession):
    """kubectl as the agent's own user, and of *nodes* the *granted* operations; every call is reported to *record*.

    What the system's telemetry tells comes by *view*; stand-ins send none, and then the tools for it are not there.
    """

    def __init__(
        self,
        kubectl: Kubectl,
        nodes: NodeCommand,
        granted: Sequence[NodeOp],
        names: OpenNames,
        record: Callable[[Action], None],
        view: TelemetryView | None = None,
    ) -> None:
        absent = {*(() if granted else ("node",)), *(() if view else LOOKS)}
        super().__init__({name: tool for name, tool in TOOLS.items() if name not in absent}, record, view)
        self._kubectl, self._nodes, self._granted, self._names = kubectl, nodes, granted, names

    def fill(self, value: Any) -> Any:
        """Return *value* with placeholders such as {worker1} replaced by names of nodes and namespaces."""
        return self._names.fill(value)

    def carry_out(self, tool: Tool, arguments: Written) -> Done:
        """Carry out kubectl, a node command, a telemetry query or a wait; return output, status, changed entities."""
        del tool
        if isinstance(arguments, Wait):
            return Done(self.pause(arguments.seconds))
        if isinstance(arguments, Look):
            assert self.view is not None
            return Done(self.view.answer_query(arguments))
        if isinstance(arguments, NodeCall):
            if arguments.op not in self._granted:
                raise UserError(f"{arguments.op} is not granted; there are {', '.join(self._granted)}.")
            node = self._names.known_node(arguments.node)
            return Done(self._nodes.do(node, arguments.op) or f"{arguments.op} of {node}: done.", (node,))
        if isinstance(arguments, KubectlRead):
            request = parse_kubectl(arguments.args)
            if request.changes:
                raise UserError(f"kubectl {request.verb} may change something; use the tool kubectl for that.")
            return Done(self._kubectl.run(request))
        assert isinstance(arguments, KubectlCall)
        request = parse_kubectl(arguments.args, has_input=arguments.input is not None)
        touched = touched_by(request.arguments) if request.verb == "exec" else ()
        return Done(self._kubectl.run(request, arguments.input, arguments.timeout_s), touched)

    def changes(self, tool: Tool, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call of *tool* may change something; for kubectl its verb decides."""
        if tool.arguments is not KubectlCall:
            return tool.mutating
        try:
            request = parse_kubectl([str(word) for word in arguments.get("args") or ()], has_input=True)
            return bool(touched_by(request.arguments)) if request.verb == "exec" else request.changes
        except (UserError, TypeError):
            return False  # refused: nothing was run
