"""What is done at a node itself: by a command that the user has written down, on contexts that the user has listed.

A cluster's API cannot stop a kubelet. Who runs the cluster can: ``docker exec NODE systemctl stop kubelet`` on kind, ssh
elsewhere. Every operation that breaks something has one that takes it back; a guard, a process of its own, sees to that
when this one is killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from opsassay.core.errors import OperationError, RefusedError
from opsassay.core.schema.cluster import UNDO_OF_NODE_OP, NodeOp
from opsassay.testbed.substrates.kubernetes.actuators.offers import require_nodes

COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class NodeCommand:
    """The *command* of the user, an argument list in which ``{node}`` and ``{op}`` are filled in; good for *context*."""

    command: tuple[str, ...]
    context: str

    def require(self) -> None:
        """Raise RefusedError unless a node command is set and nodes of the kubeconfig context may be broken."""
        if not self.command:
            raise RefusedError(
                "This scenario breaks a node, and no command for nodes is known; give `node_command` in the plan's cluster "
                "block."
            )
        require_nodes(self.context, "What this scenario breaks")

    def words(self, node: str, op: NodeOp) -> list[str]:
        """Return the command line of the operation *op* on *node*."""
        return [word.replace("{node}", node).replace("{op}", op) for word in self.command]

    def do(self, node: str, op: NodeOp) -> str:
        """Run the command for *op* on *node* and return its output; raises OperationError when it fails."""
        try:
            done = subprocess.run(
                self.words(node, op), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                timeout=COMMAND_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OperationError(f"The command for nodes failed at {op} of {node}: {error}.") from error
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-500:]
            raise OperationError(f"The command for nodes ended with {done.returncode} at {op} of {node}: {said}")
        return done.stdout.strip()

    @contextmanager
    def broken(self, node: str, op: NodeOp, limit_s: float) -> Iterator[None]:
        """Do *op* on *node* for the block; it is undone at its end, after *limit_s*, or when this process dies.

        Raises OperationError when the undo fails.
        """
        self.require()
        guard = _guard(self.words(node, UNDO_OF_NODE_OP[op]), limit_s)
        try:
            self.do(node, op)
            yield
        finally:
            assert guard.stdin is not None
            guard.stdin.close()  # its sign to undo
            try:
                undone = guard.wait(COMMAND_TIMEOUT_S + 10) == 0
            except subprocess.TimeoutExpired:
                undone = False
            if not undone:
                raise OperationError(f"{op} of {node} could not be taken back; do it by hand: {UNDO_OF_NODE_OP[op]}.")


def _guard(undo_command: Sequence[str], limit_s: float) -> subprocess.Popen[bytes]:
    """Start and return the guard process, which runs *undo_command* when its stdin is closed or after *limit_s*."""
    order = json.dumps({"undo": list(undo_command), "limit_s": limit_s})
    return subprocess.Popen(
        [sys.executable, "-m", "opsassay.testbed.substrates.kubernetes.actuators.node_command", order],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


def _stand_guard(order: str) -> int:
    """Be the guard process: wait as *order* (JSON: undo, limit_s) says, run the undo; return its exit status."""
    import select

    payload = json.loads(order)
    select.select([sys.stdin], [], [], payload["limit_s"])
    return subprocess.run(payload["undo"], stdin=subprocess.DEVNULL, check=False, timeout=COMMAND_TIMEOUT_S).returncode


if __name__ == "__main__":
    sys.exit(_stand_guard(sys.argv[1]))
