"""An API server that keeps objects and runs no controller: what is written is read back, patches are merged."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from opsassay.core.http.one_request import header
from opsassay.testbed.substrates.kubernetes.api.client import PATCH_TYPES, Object
from opsassay.testbed.substrates.kubernetes.api.discovery import discovery
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS, version_in
from opsassay.testbed.substrates.kubernetes.api.merging import merge_patch, strategic
from opsassay.testbed.substrates.kubernetes.api.selecting import by_fields, by_labels
from opsassay.testbed.substrates.kubernetes.api.small_api import SmallApi
from opsassay.testbed.substrates.kubernetes.api.statuses import NO_RESOURCE, Outcome, StatusError, failure, success
from opsassay.testbed.substrates.kubernetes.api.tables import table

Key = tuple[str, str, str]
"""Kind, namespace ('' for none) and name."""

PLACES = {(group, plural): kind for kind, (group, plural, _) in KINDS.items()}
OPTIONAL_GROUPS = ("apis/chaos-mesh.org/", "apis/kyverno.io/")
"""Where the kinds are that a server names only when it has objects of them."""


class ApiPlace(NamedTuple):
    """What a path of the API leads to: an object, or the collection of a kind when *name* is ''."""

    kind: str
    namespace: str
    name: str


class ObjectServer(SmallApi):
    """Holds ``objects`` by (kind, namespace, name); *react* is called after every write and may change them.

    ``texts`` are answers by path, before all others. A *read_only* server refuses every write and does not read it.
    """

    def __init__(
        self,
        react: Callable[[ObjectServer], None] = lambda _: None,
        *,
        socket: Path | None = None,
        read_only: bool = False,
    ) -> None:
        self.objects: dict[Key, Object] = {}
        self.texts: dict[str, Any] = {}
        self._react, self._versions = react, itertools.count(1)
        self._read_only, self._lock = read_only, threading.RLock()
        super().__init__(self.answer, socket)

    def put(self, kind: str, namespace: str, name: str, **body: Any) -> Object:
        """Store an object of *kind* with *body* and return it with a new resourceVersion."""
        return self.keep((kind, namespace, name), body)

    def keep(self, key: Key, body: Mapping[str, Any]) -> Object:
        """Store *body* under *key* (kind, namespace, name), which sets its metadata; return the stored object."""
        _, namespace, name = key
        inside = {"namespace": namespace} if namespace else {}
        rest = {field: value for field, value in body.items() if field not in ("kind", "apiVersion", "metadata")}
        with self._lock:
            version = {"resourceVersion": str(next(self._versions))}
            self.objects[key] = {"metadata": {**body.get("metadata", {}), "name": name, **version, **inside}, **rest}
            return self.objects[key]

    def refused(self, method: str, path: str) -> Outcome | None:
        """Return a 403 response for a write if this server is read-only, else None."""
        if method in ("GET", "HEAD", "OPTIONS") or not self._read_only:
            return None
        return failure(403, f"{path} is forbidden: this server is read-only and takes no {method}")

    def answer(self, method: str, path: str, query: Mapping[str, str]) -> Outcome | None:
        """Return the (status, body) with which an API server answers a request; None closes the connection."""
        if path in self.texts:
            return 200, self.texts[path]
        with self._lock:
            if method == "GET" and (said := discovery(path, self._list_kinds())) is not None:
                return 200, said
            try:
                at = parse_path(path)
                if method == "GET":
                    return self._read_objects(at, query)
                dry = "dryRun" in query
                outcome = self._write_object(method, at, self.request.body, dry=dry)
            except StatusError as error:
                return error.outcome
            if not dry:
                self._react(self)
            return outcome

    def _list_kinds(self) -> list[str]:
        """Return the served kinds; optional API groups are served only if objects of them exist."""
        there = {kind for kind, _, _ in self.objects}
        return [kind for kind, (group, *_) in KINDS.items() if kind in there or not group.startswith(OPTIONAL_GROUPS)]

    def _read_objects(self, place: ApiPlace, query: Mapping[str, str]) -> Outcome:
        """Return the response to a GET of one object, a list or a watch, as objects or as a table."""
        as_table = "as=Table" in header(self.request.headers, "Accept")
        if place.name:
            item = self._whole_object(self._existing(place))
            return 200, table(place.kind, [item], "") if as_table else item
        has_labels = by_labels(query.get("labelSelector", ""))
        has_fields = by_fields(query.get("fieldSelector", ""), place.kind)
        keys = sorted(key for key in self.objects if key[0] == place.kind and place.namespace in ("", key[1]))
        items = [
            self._whole_object(key) for key in keys if has_labels(self.objects[key]) and has_fields(self.objects[key])
        ]
        if query.get("watch") in ("1", "true"):
            new = query.get("resourceVersion", "") in ("", "0")
            return 200, [{"type": "ADDED", "object": item} for item in items] if new else []
        version = str(max((int(item["metadata"]["resourceVersion"]) for item in items), default=1))
        if as_table:
            return 200, table(place.kind, items, version)
        listed = {"kind": f"{place.kind}List", "apiVersion": version_in(KINDS[place.kind][0])}
        return 200, {**listed, "metadata": {"resourceVersion": version}, "items": items}

    def _whole_object(self, key: Key) -> Object:
        """Return the stored object *key* with its kind and apiVersion."""
        kind = key[0]
        return {"kind": kind, "apiVersion": version_in(KINDS[kind][0]), **self.objects[key]}

    def _existing(self, place: ApiPlace) -> Key:
        """Return the key of the object at *place*; raises StatusError (404) without one."""
        key = (place.kind, place.namespace, place.name)
        if key in self.objects:
            return key
        plural, group = KINDS[place.kind][1], _group_of_kind(place.kind)
        details = {"name": place.name, "kind": plural} | ({"group": group} if group else {})
        raise StatusError(failure(404, f'{_group_plural(place.kind)} "{place.name}" not found', details=details))

    def _write_object(self, method: str, place: ApiPlace, body: Any, *, dry: bool) -> Outcome:
        """Create, replace, patch or delete the object at *place*; *dry* stores nothing; return the response."""
        if method not in ("POST", "PUT", "PATCH", "DELETE"):
            raise StatusError(failure(405, "the server does not allow this method on the requested resource"))
        if method != "DELETE":
            _require_metadata_map(body)
        if method == "POST":
            return self._create_object(place, body, dry)
        key = self._existing(place)
        if method == "DELETE":
            if not dry:
                del self.objects[key]
            return success({"name": place.name, "kind": KINDS[place.kind][1]})
        named = body.get("metadata", {}).get("resourceVersion")
        if named not in (None, self.objects[key]["metadata"]["resourceVersion"]):
            subject = f'{_group_plural(place.kind)} "{place.name}"'
            raise StatusError(failure(409, f"Operation cannot be fulfilled on {subject}: the object has been modified"))
        if method == "PATCH":
            merge = merge_patch if header(self.request.headers, "Content-Type") == PATCH_TYPES["merge"] else strategic
            _require_metadata_map(body := merge(self.objects[key], body))
        if dry:
            return 200, {**self._whole_object(key), **body}
        self.keep(key, body)
        return 200, self._whole_object(key)

    def _create_object(self, place: ApiPlace, body: Object, dry: bool) -> Outcome:
        """Create the object *body* and return the response; raises StatusError if it exists or has no name."""
        name = place.name or body.get("metadata", {}).get("name")
        if not name or not isinstance(name, str):
            raise StatusError(failure(400, "metadata.name is missing"))
        key = (place.kind, place.namespace, name)
        if key in self.objects and not dry:
            raise StatusError(failure(409, f'{_group_plural(place.kind)} "{name}" already exists', "AlreadyExists"))
        if dry:
            return 201, body
        self.keep(key, body)
        return 201, self._whole_object(key)


def parse_path(path: str) -> ApiPlace:
    """Return kind, namespace and name in the API *path*; raises StatusError (404) for an unknown kind."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    depth = 2 if parts[0] == "api" else 3
    group, rest = "/".join(parts[:depth]), parts[depth:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and (group, rest[2]) in PLACES:
        namespace, rest = rest[1], rest[2:]
    kind = PLACES.get((group, rest[0])) if rest else None
    part = "/".join(rest[2:])
    if kind is None or part not in ("", "status") or (namespace and not KINDS[kind][2]):
        raise StatusError(failure(404, NO_RESOURCE))
    return ApiPlace(kind, namespace, rest[1] if len(rest) > 1 else "")


def _group_of_kind(kind: str) -> str:
    """Return the API group of *kind* without its version, "" for the core group."""
    return version_in(KINDS[kind][0]).rpartition("/")[0]


def _group_plural(kind: str) -> str:
    """Return "PLURAL.GROUP" of *kind* as servers write it in messages; PLURAL for the core group."""
    return ".".join(filter(None, (KINDS[kind][1], _group_of_kind(kind))))


def _require_metadata_map(body: Any) -> None:
    """Raise StatusError (400) unless *body* is an object whose metadata is an object."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata", {}), dict):
        raise StatusError(failure(400, "the body is no object with metadata"))
