"""The endpoints of a system's pods, as an injector reaches them: through the API server, with the key of the system."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opsassay.core.errors import LostError
from opsassay.core.schema.system import System
from opsassay.testbed.substrates.kubernetes.api.client import TRIES, Api
from opsassay.testbed.substrates.kubernetes.api.readings import is_ready
from opsassay.testbed.substrates.kubernetes.endpoints.desired import AGENT_PORT, KEY_HEADER, DesiredState
from opsassay.testbed.substrates.kubernetes.manifests.system import KEY_SECRET

if TYPE_CHECKING:
    import polars as pl

TIMEOUT_S = 30.0


@dataclass(frozen=True)
class PodEndpoints:
    """The endpoints of the pods in *namespace*."""

    api: Api
    namespace: str
    key: str

    @classmethod
    def for_namespace(cls, api: Api, namespace: str) -> PodEndpoints:
        """Return the endpoints of the pods in *namespace*, with its endpoint key; raises LostError without one."""
        secret = api.get("Secret", KEY_SECRET, namespace)
        if secret is None:
            raise LostError(
                f"The namespace {namespace} of {api.context} has no secret {KEY_SECRET!r}; start the system anew."
            )
        return cls(api, namespace, base64.b64decode(secret["data"]["key"]).decode())

    def request(
        self,
        pod: str,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        port: int = AGENT_PORT,
        timeout_s: float = TIMEOUT_S,
        tries: int = TRIES,
        raw_answer: bool = False,
    ) -> Any:
        """Send a request to the agent of *pod* by the API server; other parameters and errors are as `Api.request`."""
        proxied = f"{self.api.path_of('Pod', self.namespace, f'{pod}:{port}')}/proxy/{path}"
        headers = {KEY_HEADER: self.key}
        return self.api.request(
            method, proxied, body, headers=headers, timeout_s=timeout_s, tries=tries, raw_answer=raw_answer
        )  # fmt: skip

    def counters(self, pod: str, timeout_s: float = 5.0) -> dict[str, Any]:
        """Return the counters of *pod*'s process and the pod's desired state, by one request without a retry."""
        answer: dict[str, Any] = self.request(pod, "GET", "", timeout_s=timeout_s, tries=1)
        return answer

    def set_desired(self, pod: str, desired: DesiredState) -> None:
        """Send *pod* its *desired* state (faults and the like) and wait until that is reached."""
        self.request(pod, "PUT", "desired", desired.model_dump(mode="json"))

    def ledger(self, pod: str) -> bytes:
        """Return the ledger of *pod*: a JSON line for each effect of a fault in its processes."""
        lines: bytes = self.request(pod, "GET", "ledger", raw_answer=True)
        return lines


def ledger_of(
    pod_endpoints: PodEndpoints, system: System, saved_ledgers: Mapping[str, bytes], since_ns: int
) -> pl.DataFrame:
    """Return each effect of a fault in *system* since *since_ns* (UTC), with the columns of `read_ledger`.

    They are read from the pods that run, and from *saved_ledgers*, {file name: JSON lines}, of pods that are gone.
    """
    from opsassay.testbed.recording.ledger import read_ledger

    with tempfile.TemporaryDirectory(prefix="opsassay-ledger-") as name:
        folder = Path(name)
        for file, lines in saved_ledgers.items():
            (folder / file).write_bytes(lines)
        for pod in pod_endpoints.api.list("Pod", pod_endpoints.namespace):
            metadata = pod["metadata"]
            if metadata["labels"].get("app") in system.services and is_ready(pod):
                (folder / f"{metadata['name']}.jsonl").write_bytes(pod_endpoints.ledger(metadata["name"]))
        return read_ledger(folder, since_ns)
