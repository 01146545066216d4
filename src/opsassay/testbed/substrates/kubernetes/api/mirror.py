"""A mirror of the objects of one kind: listed once, then kept up to date by a watch that survives what watches die of."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from opsassay.core.errors import LostError, OpsAssayError, StartError
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, Object

RETRY_S, RETRY_LIMIT_S = 0.5, 10.0
GONE = 410


class Mirror:
    """Keeps the objects of *kind* in ``objects`` by (namespace, name); *changed* is called after every change.

    What changed while no watch stood is reported once it is known. ``lists`` and ``drops`` count how often it had to
    list, and how often a watch ended; ``error`` says what is wrong while something is.
    """

    def __init__(
        self, api: Api, kind: str, namespace: str | None = None, changed: Callable[[str, Object], None] | None = None
    ) -> None:
        self.api, self.kind, self.namespace = api, kind, namespace
        self.objects: dict[tuple[str, str], Object] = {}
        self.lists = self.drops = 0
        self.error: OpsAssayError | None = None
        self._changed = changed
        self._version = ""
        self._synced, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._follow_until_stopped, name=f"mirror-{kind}", daemon=True)

    def start(self) -> Mirror:
        """Start the thread that lists and watches the objects; return this mirror at once."""
        self._thread.start()
        return self

    def wait(self, timeout_s: float = 20.0) -> None:
        """Wait until the objects have been listed once; raises the error that prevents it, or StartError when late."""
        if not self._synced.wait(timeout_s):
            raise self.error or StartError(f"{self.kind} objects were not listed within {timeout_s:g} s.")

    def stop(self) -> None:
        """Stop following the objects; the thread ends with its present wait."""
        self._stopping.set()

    @property
    def fresh(self) -> bool:
        """Whether the objects are up to date: listed, and the watch is not interrupted."""
        return self._synced.is_set() and self.error is None

    def all(self) -> list[Object]:
        """Return the present objects as a new list."""
        return list(self.objects.values())

    def _follow_until_stopped(self) -> None:
        """Watch the objects until `stop`; after a lost watch, list them anew, with growing pauses."""
        pause = RETRY_S
        while not self._stopping.is_set():
            try:
                if not self._version:
                    self._list_anew()
                began = time.monotonic()
                self._follow()
                self.drops += 1
                if time.monotonic() - began > RETRY_S:
                    pause = RETRY_S
                    continue
            except ApiError as error:
                self._version = "" if error.status == GONE else self._version
                self.error = error
            except OpsAssayError as error:
                self.drops += isinstance(error, LostError)
                self.error = error
            self._stopping.wait(pause)
            pause = min(pause * 2, RETRY_LIMIT_S)

    def _list_anew(self) -> None:
        """List all objects, then report those that are gone as DELETED and all others as ADDED."""
        answer = self.api.request("GET", self.api.path_of(self.kind, self.namespace))
        self.lists += 1
        found = {_key_of_item(item): item for item in answer["items"]}
        gone = [item for key, item in self.objects.items() if key not in found]
        self.objects = found
        self._version = answer["metadata"]["resourceVersion"]
        self._well()
        self._synced.set()
        for item in gone:
            self._notify_change("DELETED", item)
        for item in found.values():
            self._notify_change("ADDED", item)

    def _follow(self) -> None:
        """Watch the objects and apply each event, until the server ends the watch; raises ApiError."""
        for event in self.api.watch(self.kind, self._version, self.namespace, on_start=self._well):
            if self._stopping.is_set():
                return
            item, what = event["object"], event["type"]
            if what == "ERROR":
                raise ApiError(int(item.get("code", 500)), f"The watch of {self.kind} ended: {item.get('message')}")
            self._version = item["metadata"]["resourceVersion"]
            if what == "BOOKMARK":
                continue
            if what == "DELETED":
                self.objects.pop(_key_of_item(item), None)
            else:
                self.objects[_key_of_item(item)] = item
            self._notify_change(what, item)

    def _well(self) -> None:
        """Reset `error`, since the server has answered."""
        self.error = None

    def _notify_change(self, event_type: str, item: Object) -> None:
        """Call the listener, if there is one."""
        if self._changed is not None:
            self._changed(event_type, item)


def _key_of_item(item: Object) -> tuple[str, str]:
    """Return (namespace, name) of *item*; the namespace is "" for a cluster-wide object."""
    metadata = item["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
