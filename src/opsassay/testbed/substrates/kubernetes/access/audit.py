"""Every write to the API as an action on the run's clock, whoever made it: from watches of objects, or an audit log.

A watch works everywhere and sees what was written by the field managers that the server notes; who removes a pod that has a
controller is concluded from what that controller wants (`removals.py`). An audit log, where the cluster writes one and this
machine can read it, tells who did what.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from opsassay.core.schema.cluster import LOOKING, AccessRule
from opsassay.core.schema.trajectory import Action
from opsassay.testbed.substrates.kubernetes.access.removals import by_somebody, siblings
from opsassay.testbed.substrates.kubernetes.api.client import Api, Object
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS
from opsassay.testbed.substrates.kubernetes.api.mirror import Mirror
from opsassay.testbed.substrates.kubernetes.api.readings import owner_of

TOOL = "api"
"""What such an action is called: no tool of the agent's."""
MACHINERY = ("kube-", "k3s", "kubelet", "Go-http-client", "cloud-controller", "before-first-apply")
"""What the field managers of the cluster itself begin with."""
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})
WATCHED = (
    "Pod", "Service", "ConfigMap", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "NetworkPolicy",
    "PersistentVolumeClaim", "ResourceQuota", "LimitRange", "PodDisruptionBudget", "Job",
    "HorizontalPodAutoscaler",
)  # fmt: skip
"""Whatever a scenario may let an agent write in the system's namespace, but for events and endpoints: those follow."""
CONTROLLERS = ("ReplicaSet", "StatefulSet", "DaemonSet")
"""What is followed wherever pods are: by what these desire it is known whether they removed a pod."""
READ_EVERY_S = 0.5
SETTLED_NS = 2_000_000_000
"""How long after a pod was removed what its controller wants is known: the two are reported by different watches."""

Elsewhere = Mapping[str, Mapping[str, frozenset[str]]]
"""Namespaces that are not the system's: what may be written there, verbs by kind."""


def writable_elsewhere(rules: Iterable[AccessRule]) -> dict[str, dict[str, frozenset[str]]]:
    """Return {namespace: {kind: write verbs}} that *rules* grant in namespaces that they name."""
    found: dict[str, dict[str, frozenset[str]]] = {}
    for rule in rules:
        writes = {"update" if verb == "patch" else str(verb) for verb in rule.verbs} - LOOKING
        for resource in rule.resources if rule.namespace is not None and writes else ():
            kinds, kind = found.setdefault(str(rule.namespace), {}), KIND_OF[resource]
            kinds[kind] = kinds.get(kind, frozenset()) | writes
    return found


class _Removal(NamedTuple):
    """A pod that a controller had and that was removed at *time_ns*, when *present* pods of it were there."""

    pod: Object
    present: int
    time_ns: int


class WatchedWrites:
    """Turns the events of watches into actions: what is written from the first event of an object on.

    In a namespace of *elsewhere* only what is granted there counts; in any other one everything does.
    """

    def __init__(self, record: Callable[[Action], None], elsewhere: Elsewhere | None = None) -> None:
        self._record, self._elsewhere = record, elsewhere or {}
        self._known: dict[tuple[str, str, str], Object] = {}
        self._removals: list[_Removal] = []
        self._lock = threading.Lock()
        self._open = False

    def begin(self) -> None:
        """Attribute all writes to the agent from now on; earlier ones are not recorded."""
        self._open = True

    def end(self) -> None:
        """Record the removals seen so far that were the agent's, and stop attributing writes to it."""
        with self._lock:
            self._conclude(None)
            self._open = False

    @property
    def is_open(self) -> bool:
        """Whether writes are attributed to the agent now."""
        return self._open

    def note(self, kind: str, event_type: str, item: Object, now_ns: int) -> None:
        """Record the watch event *event_type* (ADDED, MODIFIED, DELETED) of *item*, a *kind*, seen at *now_ns*."""
        with self._lock:
            self._take_in(kind, event_type, item, now_ns)
            self._conclude(now_ns - SETTLED_NS)

    def _take_in(self, kind: str, event_type: str, item: Object, now_ns: int) -> None:
        """Record one watch event on *item* of *kind*, seen at *now_ns*; the caller holds the lock."""
        metadata = item["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        former = self._known.get(key)
        stood = former is not None and "deletionTimestamp" not in former["metadata"]
        if stood and (event_type == "DELETED" or "deletionTimestamp" in metadata):
            self._note_removal(kind, item, now_ns)
        if event_type == "DELETED":
            self._known.pop(key, None)
            return
        self._known[key] = item
        if "deletionTimestamp" in metadata:
            return
        if former is None or former["metadata"].get("uid") != metadata.get("uid"):
            self._note_write(kind, "create", item, now_ns)
        elif _written_fields(former) != _written_fields(item):
            self._note_write(kind, "update", item, now_ns)

    def _note_removal(self, kind: str, item: Object, now_ns: int) -> None:
        """Record that *item* was deleted at *now_ns*; for a pod of a controller `_conclude` decides later."""
        if owner_of(item) is None:
            self._note_write(kind, "delete", item, now_ns)
        elif kind == "Pod" and self._open:
            self._removals.append(_Removal(item, siblings(item, self._known), now_ns))

    def _conclude(self, until_ns: int | None) -> None:
        """Record as the agent's those pod removals before *until_ns* (None: all) that no controller made."""
        waiting = []
        for removal in self._removals:
            if until_ns is not None and removal.time_ns > until_ns:
                waiting.append(removal)
            elif by_somebody(removal.pod, removal.present, self._known):
                self._note_write("Pod", "delete", removal.pod, removal.time_ns)
        self._removals = waiting

    def _note_write(self, kind: str, verb: str, item: Object, now_ns: int) -> None:
        """Record that the agent did *verb* to *item*, unless outside its time or rights, or by a controller."""
        metadata, manager = item["metadata"], last_manager(item) if verb != "delete" else ""
        granted = self._elsewhere.get(metadata.get("namespace", ""))
        if granted is not None and verb not in granted.get(kind, ()):
            return
        if not self._open or manager.startswith(MACHINERY) or (owner_of(item) is not None and verb == "create"):
            return
        payload = {"verb": verb, "kind": kind, "name": metadata["name"], "namespace": metadata.get("namespace")}
        self._record(
            Action(
                tool=TOOL,
                arguments={**payload, **({"manager": manager} if manager else {})},
                started_ns=now_ns,
                ended_ns=now_ns,
                mutating=True,
                touched=(metadata["name"],),
            )
        )


def last_manager(item: Object) -> str:
    """Return the field manager of the last write to *item*, '' when unknown; writes of the status do not count."""
    entries = [e for e in item["metadata"].get("managedFields") or () if not _is_status(e)]
    if not entries:
        return ""
    return str(max(entries, key=lambda entry: entry.get("time") or "").get("manager", ""))


def _is_status(entry: Mapping[str, Any]) -> bool:
    """Return whether the managedFields *entry* is of the status subresource."""
    fields = entry.get("fieldsV1") or {}
    return entry.get("subresource") == "status" or set(fields) == {"f:status"}


def _written_fields(item: Object) -> Any:
    """Return *item* without its status and the metadata that the server sets, to compare what users wrote."""
    metadata = item["metadata"]
    kept = {"labels": metadata.get("labels"), "annotations": _own_annotations(metadata)}
    return kept, {key: value for key, value in item.items() if key not in {"metadata", "status", "kind", "apiVersion"}}


def _own_annotations(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations in *metadata* except those that controllers set."""
    given: Mapping[str, str] = metadata.get("annotations") or {}
    return {key: value for key, value in given.items() if not key.startswith(("deployment.kubernetes.io/", "volumes."))}


KIND_OF = {plural: kind for kind, (_, plural, _) in KINDS.items()}


def logged_action(line: Mapping[str, Any], user: str) -> Action | None:
    """Return the action for the audit event *line* if it is a write by *user*, else None."""
    about = line.get("objectRef") or {}
    if line.get("verb") not in WRITES or line.get("stage") != "ResponseComplete":
        return None
    if (line.get("user") or {}).get("username") != user:
        return None
    code = int((line.get("responseStatus") or {}).get("code", 0))
    resource = about.get("resource", "")
    name = about.get("name") or ((line.get("requestObject") or {}).get("metadata") or {}).get("name") or ""
    part = about.get("subresource")
    arguments = {
        "verb": line["verb"],
        "kind": KIND_OF.get(resource, resource) + (f"/{part}" if part else ""),
        "name": name,
        "namespace": about.get("namespace"),
        "code": code,
    }
    done = 200 <= code < 300
    return Action(
        tool=TOOL,
        arguments=arguments,
        started_ns=_parse_timestamp_ns(line["requestReceivedTimestamp"]),
        ended_ns=_parse_timestamp_ns(line["stageTimestamp"]),
        status="ok" if done else "error",
        mutating=done,
        touched=(name,) if done and name else (),
    )


def _parse_timestamp_ns(stamp: str) -> int:
    """Return the ISO 8601 time *stamp* in UTC ns since the epoch."""
    moment = datetime.fromisoformat(stamp.replace("Z", "+00:00")).astimezone(UTC)
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000


class Audit:
    """Records, while the block runs, what is written to a system, as soon as `begin` has been called.

    With *log* it is what *user* wrote by that file, wherever; else what watches see in *namespace*, of nodes, and elsewhere
    of what *rules* grant there.
    """

    def __init__(
        self,
        api: Api,
        namespace: str,
        record: Callable[[Action], None],
        *,
        rules: Iterable[AccessRule] = (),
        log: Path | None = None,
        user: str = "",
    ) -> None:
        self._record, self._log, self._user = record, log, user
        elsewhere = writable_elsewhere(rules)
        self._writes = WatchedWrites(record, elsewhere)
        self._stopping = threading.Event()
        self._reader = threading.Thread(target=self._read_log, name="audit", daemon=True)
        self._from = 0
        places: list[tuple[str, str | None]] = [("Node", None), *((kind, namespace) for kind in WATCHED)]
        for place, kinds in elsewhere.items():
            places += [(kind, place) for kind in dict.fromkeys([*kinds, *(CONTROLLERS if "Pod" in kinds else ())])]
        self._mirrors = [] if log else [self._make_mirror(api, kind, place) for kind, place in places]

    def __enter__(self) -> Self:
        for mirror in self._mirrors:
            mirror.start()
        for mirror in self._mirrors:
            mirror.wait()
        return self

    def begin(self) -> None:
        """Attribute all writes to the agent (with a log: to the user) from now on."""
        self._writes.begin()
        if self._log is not None:
            self._from = self._log.stat().st_size
            self._reader.start()

    def end(self) -> None:
        """Record the agent's last writes, then stop attributing writes to it."""
        if self._writes.is_open:
            self._stopping.wait(READ_EVERY_S)  # what was written last is still on its way here
        self._writes.end()
        self._stopping.set()
        if self._reader.is_alive():
            self._reader.join()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        for mirror in self._mirrors:
            mirror.stop()

    def _make_mirror(self, api: Api, kind: str, namespace: str | None) -> Mirror:
        """Return a mirror of *kind* in *namespace* (None: all) that records each change as a write."""
        return Mirror(api, kind, namespace, lambda what, item: self._writes.note(kind, what, item, time.time_ns()))

    def _read_log(self) -> None:
        """Record the user's actions from the audit log as it grows, until `end`, to the log's end."""
        assert self._log is not None
        with self._log.open("rb") as stream:
            stream.seek(self._from)
            pending = b""
            while True:
                last = self._stopping.is_set()
                *lines, pending = (pending + stream.read()).split(b"\n")
                self._record_lines(lines)
                if last:
                    return
                self._stopping.wait(READ_EVERY_S)

    def _record_lines(self, lines: Iterable[bytes]) -> None:
        """Record the actions of the watched user in *lines* of the audit log."""
        for line in lines:
            if line and (action := logged_action(json.loads(line), self._user)) is not None:
                self._record(action)
