"""The cluster of a plan: whether it can do what is asked of it, and the worlds of each task, made on it once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from opsassay.core.errors import RefusedError, UserError
from opsassay.evals.compliance.on_cluster.read_worlds import WORLDS, ReadBackWorlds, read_back_worlds
from opsassay.evals.compliance.tasks import ComplianceTask
from opsassay.evals.runner.generated_tasks import keep_body, kept_body
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError
from opsassay.testbed.substrates.kubernetes.api.read_back import MARKED_KINDS, await_removal, clear_left_behind

KYVERNO = ("ClusterPolicy", *MARKED_KINDS)
"""What is made outside of namespaces where Kyverno judges, in the order in which it is removed."""


class ClusterPlace:
    """The cluster that *kubeconfig* and *context* lead to, kubectl's own choice when they are None."""

    def __init__(self, kubeconfig: Path | None = None, context: str | None = None, *, kyverno: bool = False) -> None:
        self.kubeconfig, self._context, self._kyverno = kubeconfig, context, kyverno
        self._one_at_a_time, self._cleared = threading.Lock(), False

    @cached_property
    def api(self) -> Api:
        """The connection, made on first use."""
        return Api.connect(self.kubeconfig, self._context)

    @cached_property
    def version(self) -> str:
        """The server's version; raises StartError when it is not ready."""
        return self.api.require()

    def require(self) -> None:
        """Raise what keeps this cluster from doing what is asked of it; RefusedError when it lacks Kyverno."""
        assert self.version
        if not self._kyverno:
            return
        try:
            listed = self.api.request("GET", "/apis/kyverno.io/v1")["resources"]
        except ApiError as error:
            if error.status != 404:
                raise
            listed = []
        if not any(one["name"] == "clusterpolicies" for one in listed):
            raise RefusedError(
                f"There is no Kyverno on {self.api.context}: it has no clusterpolicies.kyverno.io; install Kyverno there, "
                "or leave `engine: cluster` out of the plan."
            )

    def clear(self) -> None:
        """Remove what killed runs left on the cluster, once."""
        if not self._cleared:
            clear_left_behind(self.api, KYVERNO if self._kyverno else MARKED_KINDS)
            self._cleared = True

    def bring(self, task: ComplianceTask, root: Path, given_up: Callable[[], bool], say: Callable[[str], None]) -> None:
        """Have the store at *root* hold the worlds of *task* as this cluster has them, made on it if need be.

        Raises UserError when another cluster's are there, and as `read_back_worlds`; nothing is left on the cluster.
        """
        with self._one_at_a_time:
            if (root / WORLDS / f"{task.commitment}.json").exists():
                self._require_same(kept_body(root / WORLDS, task.commitment, ReadBackWorlds), root)
                return
            self.clear()
            say(f"its worlds are made on {self.api.context}")
            keep_body(root / WORLDS, task.commitment, read_back_worlds(self.api, self.version, task, given_up))
            await_removal(self.api)

    def _require_same(self, kept: ReadBackWorlds, root: Path) -> None:
        if (kept.context, kept.version) != (self.api.context, self.version):
            raise UserError(
                f"{root / WORLDS} holds worlds as {kept.context} ({kept.version}) has them, and the plan is for "
                f"{self.api.context} ({self.version}); run it into another store."
            )
