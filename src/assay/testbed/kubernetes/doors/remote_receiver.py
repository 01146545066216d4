"""Recording sessions of a cluster's receiver: opened and closed through its door, their spools fetched at the end."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.errors import AssayError, LostError, OperationError, RefusedError
from assay.telemetry.otlp.counts import SessionStats
from assay.testbed.kubernetes.api.client import Api
from assay.testbed.kubernetes.api.readings import is_ready
from assay.testbed.kubernetes.doors.door import Doors
from assay.testbed.kubernetes.manifests.system import RECEIVER

PIECE_BYTES = 4 << 20
CLOSE_TIMEOUT_S = 120.0


class RemoteReceiver:
    """Controls the receiver in the namespace *watch_namespace* as `ReceiverControl` does one of this machine."""

    def __init__(self, api: Api, watch_namespace: str) -> None:
        self._api, self._namespace = api, watch_namespace
        self._folders: dict[str, Path] = {}
        self._pods: dict[str, str] = {}

    def open_session(self, directory: Path, name: str) -> None:
        """Start to record everything that arrives; it will lie in *directory* when the session is closed."""
        pod = self._pod()
        self._doors().request(pod, "PUT", f"sessions/{name}")
        self._folders[name], self._pods[name] = directory, pod

    def close_session(self, name: str) -> SessionStats:
        """Stop the session and fetch its spool; raises LostError when the receiver's pod is another one by now."""
        doors, pod = self._doors(), self._pods[name]
        if pod != self._pod():
            raise LostError(f"The receiver of {self._namespace} was replaced: what {pod} had recorded went with it.")
        stats = doors.request(pod, "POST", f"sessions/{name}/close", timeout_s=CLOSE_TIMEOUT_S)
        folder = self._folders.pop(name)
        folder.mkdir(parents=True, exist_ok=True)
        for file, size in doors.request(pod, "GET", f"sessions/{name}").items():
            self._fetch(doors, pod, f"sessions/{name}/{file}", folder / file, size)
        with suppress(AssayError):  # it goes with the pod at the latest
            doors.request(pod, "DELETE", f"sessions/{name}")
        return SessionStats.model_validate(stats)

    def _fetch(self, doors: Doors, pod: str, path: str, target: Path, size: int) -> None:
        with target.open("wb") as copy:
            for offset in range(0, size, PIECE_BYTES):
                wanted = min(PIECE_BYTES, size - offset)
                piece: Any = doors.request(pod, "GET", f"{path}?offset={offset}&size={wanted}", raw_answer=True)
                if len(piece) != wanted:
                    raise OperationError(f"{pod} gave {len(piece)} of {wanted} bytes of {target.name}; record again.")
                copy.write(piece)

    def _doors(self) -> Doors:
        return Doors.of(self._api, self._namespace)

    def _pod(self) -> str:
        pods = [pod for pod in self._api.list("Pod", self._namespace, f"app={RECEIVER}") if is_ready(pod)]
        if not pods:
            raise RefusedError(
                f"The namespace {self._namespace} has no receiver that is ready; a system with a collector of its own "
                "(--endpoint) cannot be recorded."
            )
        return str(pods[0]["metadata"]["name"])
