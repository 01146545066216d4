"""The names that a scenario leaves open, and what stands in their place once a trial has begun."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opsassay.core.errors import NotFoundError, RefusedError
from opsassay.core.schema.cluster import CONTROL_PLANE
from opsassay.testbed.substrates.kubernetes.api.client import Object
from opsassay.testbed.substrates.kubernetes.api.readings import is_ready

ROLE = "node-role.kubernetes.io/"
_OPEN = re.compile(r"\{(namespace|watch|image|worker\d+)\}")


@dataclass(frozen=True)
class OpenNames:
    """What ``{namespace}``, ``{watch}``, ``{image}`` and ``{worker1}`` ... stand for."""

    namespace: str
    watch: str
    image: str
    workers: tuple[str, ...]

    def fill(self, value: Any) -> Any:
        """Return *value* with placeholders such as {worker1} in its texts replaced; raises RefusedError."""
        if isinstance(value, str):
            return _OPEN.sub(lambda match: self._resolve_name(match[1]), value)
        if isinstance(value, Mapping):
            return {self.fill(key): self.fill(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.fill(one) for one in value]
        return value

    def node(self, name: str) -> str:
        """Return the node name for *name*, which may be a placeholder or the control plane."""
        return CONTROL_PLANE if name == CONTROL_PLANE else str(self.fill(name))

    def known_node(self, name: str) -> str:
        """Return *name* if it is a worker node or "control-plane", else raise NotFoundError."""
        if name not in (*self.workers, CONTROL_PLANE):
            raise NotFoundError("node", name[:63], (*self.workers, CONTROL_PLANE))
        return name

    def _resolve_name(self, name: str) -> str:
        """Return the value of the placeholder *name* without braces; raises RefusedError for a missing worker."""
        if not name.startswith("worker"):
            return str(getattr(self, name))
        number = int(name.removeprefix("worker"))
        if not 1 <= number <= len(self.workers):
            raise RefusedError(f"{{{name}}} is not there: this cluster has {len(self.workers)} nodes to work on.")
        return self.workers[number - 1]


def workers(nodes: Iterable[Object]) -> tuple[str, ...]:
    """Return the names of the worker *nodes* in order: those without a taint that reserves them for a role."""
    return tuple(
        sorted(
            node["metadata"]["name"]
            for node in nodes
            if not any(taint["key"].startswith(ROLE) for taint in node["spec"].get("taints") or ())
        )
    )


def takes_pods(node: Object) -> bool:
    """Return whether *node* is ready and accepts any pod now."""
    taints = node["spec"].get("taints") or ()
    return (
        is_ready(node)
        and not node["spec"].get("unschedulable")
        and not any(taint["effect"] in {"NoSchedule", "NoExecute"} for taint in taints)
    )
