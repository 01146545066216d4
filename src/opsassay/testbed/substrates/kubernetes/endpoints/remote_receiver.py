"""Recording sessions of a cluster's receiver: opened and closed through its endpoint, their spools fetched as they grow."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from opsassay.core.errors import LostError, OperationError, OpsAssayError, RefusedError
from opsassay.telemetry.otlp.counts import SessionStats
from opsassay.testbed.substrates.kubernetes.api.client import TRIES, Api, ApiError
from opsassay.testbed.substrates.kubernetes.api.readings import is_ready
from opsassay.testbed.substrates.kubernetes.endpoints.pod_endpoint import TIMEOUT_S, PodEndpoints
from opsassay.testbed.substrates.kubernetes.endpoints.pod_logs import PodLogs
from opsassay.testbed.substrates.kubernetes.manifests.system import RECEIVER

PIECE_BYTES = 4 << 20
CLOSE_TIMEOUT_S = 120.0
REFRESH_TIMEOUT_S, REFRESH_TRIES = 5.0, 2
"""Whoever reads while it is recorded asks again soon: nobody is kept waiting by an API that is away."""


class Session(NamedTuple):
    """One recording: where its spool is to lie, the *pod* that records it, bytes *fetched* by file."""

    folder: Path
    pod: str
    pod_endpoints: PodEndpoints
    fetched: dict[str, int]


class RemoteReceiver:
    """Controls the receiver in the namespace *watch_namespace* as `ReceiverControl` does one of this machine."""

    def __init__(self, api: Api, watch_namespace: str, pod_logs: Callable[[], PodLogs] | None = None) -> None:
        """*pod_logs* begins to follow pods that send nothing to the receiver; what they say is added to a session."""
        self._api, self._namespace = api, watch_namespace
        self._sessions: dict[str, Session] = {}
        self._begin_logs, self._logs = pod_logs, dict[str, PodLogs]()

    def open_session(self, directory: Path, name: str) -> None:
        """Start to record all telemetry as session *name*; `refresh` and `close_session` copy it to *directory*."""
        session = Session(directory, self._find_pod(), PodEndpoints.for_namespace(self._api, self._namespace), {})
        session.pod_endpoints.request(session.pod, "PUT", f"sessions/{name}")
        self._sessions[name] = session
        if self._begin_logs is not None:
            self._logs[name] = self._begin_logs()

    def refresh(self, name: str) -> None:
        """Append to session *name*'s folder its records since the last copy; LostError if the receiver was replaced."""
        session = self._sessions[name]
        try:
            _fetch_new(session, name, REFRESH_TIMEOUT_S, REFRESH_TRIES)
        except ApiError:
            self._require_same(session)
            raise

    def close_session(self, name: str) -> SessionStats:
        """Stop session *name*, copy the rest of its spool, return its statistics; raises LostError as `refresh`."""
        session = self._sessions[name]
        self._require_same(session)
        stats = session.pod_endpoints.request(session.pod, "POST", f"sessions/{name}/close", timeout_s=CLOSE_TIMEOUT_S)
        del self._sessions[name]
        _fetch_new(session, name, TIMEOUT_S, TRIES)
        if (pod_logs := self._logs.pop(name, None)) is not None:
            pod_logs.write(session.folder)
        with suppress(OpsAssayError):  # it goes with the pod at the latest
            session.pod_endpoints.request(session.pod, "DELETE", f"sessions/{name}")
        return SessionStats.model_validate(stats)

    def _require_same(self, session: Session) -> None:
        """Raise LostError when the receiver's pod is not the one that *session* was opened in."""
        if session.pod != self._find_pod():
            raise LostError(
                f"The receiver of {self._namespace} was replaced: what {session.pod} had recorded went with it."
            )

    def _find_pod(self) -> str:
        """Return the name of the receiver's pod; raises RefusedError when none is ready."""
        pods = [pod for pod in self._api.list("Pod", self._namespace, f"app={RECEIVER}") if is_ready(pod)]
        if not pods:
            raise RefusedError(
                f"The namespace {self._namespace} has no receiver that is ready; a system with a collector of its own "
                "(--endpoint) cannot be recorded."
            )
        return str(pods[0]["metadata"]["name"])


def _fetch_new(session: Session, name: str, timeout_s: float, tries: int) -> None:
    """Append what the receiver's spool files of session *name* have got since the last call to those of *session*."""

    def request_path(path: str, *, raw_answer: bool = False) -> Any:
        return session.pod_endpoints.request(
            session.pod, "GET", path, timeout_s=timeout_s, tries=tries, raw_answer=raw_answer
        )

    sizes = request_path(f"sessions/{name}")
    session.folder.mkdir(parents=True, exist_ok=True)
    for file, size in sizes.items():
        target, begun = session.folder / file, session.fetched.get(file, 0)
        with target.open("ab" if begun else "wb") as copy:
            for offset in range(begun, size, PIECE_BYTES):
                desired = min(PIECE_BYTES, size - offset)
                piece = request_path(f"sessions/{name}/{file}?offset={offset}&size={desired}", raw_answer=True)
                if len(piece) != desired:
                    raise OperationError(
                        f"{session.pod} gave {len(piece)} of {desired} bytes of {target.name}; record again."
                    )
                copy.write(piece)
                session.fetched[file] = offset + desired
