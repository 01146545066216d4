"""Given objects behind a real API that the real kubectl reads: for tasks that ask for evidence of a cluster."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.untrusted import require_socket_path
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS, version_in
from opsassay.testbed.substrates.kubernetes.api.object_server import Key, ObjectServer
from opsassay.testbed.substrates.kubernetes.api.small_api import served

ALWAYS = ("default", "kube-system")
"""The namespaces that every cluster has and that are there whatever the objects name."""

CREATED = "2025-01-01T00:00:00Z"
"""When objects that do not say it were made: the same world reads the same whenever it is served."""

_IDS = uuid.UUID("5f0f4d3c-0f0e-4a6c-9a55-1c5d3c8f7b1a")


class ServedObjects:
    """Objects that are being served: ``url`` leads to them, and is None where a Unix socket does."""

    def __init__(self, server: ObjectServer) -> None:
        self._server = server
        self.url = server.url

    @property
    def asked(self) -> list[tuple[str, str, dict[str, str]]]:
        """The (method, path, query) of the last requests, at most 2,000."""
        return [(request.method, request.path, request.query) for request in list(self._server.asked)]


@contextmanager
def serving_objects(
    objects: Sequence[Mapping[str, Any]], *, socket: Path | None = None, read_only: bool = True
) -> Iterator[ServedObjects]:
    """Serve *objects* (dictionaries with apiVersion, kind and metadata) while the block runs.

    They are on a free port of 127.0.0.1, or at the Unix *socket*, which only this user may open and which is removed at the
    end. Namespaces that objects name are there too. What a server gives to every object (uid, resourceVersion,
    creationTimestamp) is added where it lacks, the same each time; no other default is filled in. A *read_only* server
    answers every write with 403. Raises UserError for objects of a kind or version that is not known here, two of one name,
    and a socket that cannot be made.
    """
    given = _keyed(objects)
    if socket is not None:
        require_socket_path(socket)
    with served(ObjectServer(socket=socket, read_only=read_only)) as server:
        for key, body in given.items():
            server.keep(key, body)
        yield ServedObjects(server)


def _keyed(objects: Sequence[Mapping[str, Any]]) -> dict[Key, dict[str, Any]]:
    """Return {(kind, namespace, name): object} of *objects* and their namespaces, with metadata that a server adds."""
    keyed: dict[Key, dict[str, Any]] = {}
    for number, one in enumerate(objects):
        key, body = _read(number, one)
        if key in keyed:
            raise UserError(f"There are two objects {_key_text(key)}; give each a name of its own.")
        keyed[key] = body
    for name in dict.fromkeys((*ALWAYS, *(namespace for _, namespace, _ in keyed if namespace))):
        keyed.setdefault(("Namespace", "", name), {"metadata": {"labels": {"kubernetes.io/metadata.name": name}}})
    for key, body in keyed.items():
        if key[0] == "Namespace":
            body.setdefault("spec", {"finalizers": ["kubernetes"]})
            body.setdefault("status", {"phase": "Active"})
        body["metadata"].setdefault("uid", str(uuid.uuid5(_IDS, _key_text(key))))
        body["metadata"].setdefault("creationTimestamp", CREATED)
    return keyed


def _read(position: int, manifest: Mapping[str, Any]) -> tuple[Key, dict[str, Any]]:
    """Return (key, body without kind and apiVersion) of *manifest*, number *position*; raises UserError."""
    try:
        body = json.loads(json.dumps(dict(manifest)))  # a copy, so that the caller's stay as they are
        kind, version, metadata = body.pop("kind"), body.pop("apiVersion"), body["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace")
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise UserError(
            f"Object {position} is none that an API server keeps ({error}); it needs apiVersion, kind and metadata.name."
        ) from error
    if not isinstance(kind, str) or kind not in KINDS:
        raise NotFoundError("kind of object", str(kind), KINDS)
    group, _, namespaced = KINDS[kind]
    for word in (name, namespace if namespace is not None else "default"):
        if not isinstance(word, str) or not word or "/" in word:
            raise UserError(
                f"Object {position} ({kind}) has {word!r} for a name or namespace; write a word without slashes."
            )
    if version != version_in(group):
        raise UserError(
            f"{kind} {name} has apiVersion {version!r}; the one that is served here is {version_in(group)}."
        )
    if not namespaced:
        metadata.pop("namespace", None)
    return (kind, (namespace or "default") if namespaced else "", name), body


def _key_text(key: Key) -> str:
    """Return *key* as "KIND NAMESPACE/NAME", or "KIND NAME" without a namespace."""
    kind, namespace, name = key
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
