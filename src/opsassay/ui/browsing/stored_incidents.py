"""The incidents in the stores, and their display names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.incident import Incident
from opsassay.telemetry.content import INCIDENT
from opsassay.telemetry.datapack import Datapack
from opsassay.telemetry.tree import Case, Tree, read_noun
from opsassay.ui.browsing.catalogue import slug
from opsassay.ui.plain import plain

if TYPE_CHECKING:
    from opsassay.ui.browsing.rows import Shown

DOMAIN = "diagnosis"
"""The domain whose tasks are incidents."""


@dataclass(frozen=True, eq=False)
class StoredIncident:
    """The incident *id* of the *tree* that is called *store*."""

    store: str
    tree: Tree
    id: str

    @property
    def key(self) -> str:
        """The id of the incident in URLs."""
        return f"{slug(self.store)}.{slug(self.id)}"

    def incident(self) -> Incident:
        """Return the incident's description and alerts, as a solver sees them; raises DatapackError."""
        path = self.tree.incident_path(self.id) / INCIDENT
        return _read_incident(path, path.stat().st_mtime_ns)

    def datapack(self) -> Datapack:
        """Return the incident's tables; raises DatapackError."""
        return self.tree.datapack(self.id)

    def case(self) -> Case:
        """Return the incident with its truth, if recorded; raises DatapackError."""
        pack, tree = self.datapack(), self.tree
        return Case(pack, tree.truth(self.id), tree.annotation(self.id), tree.truth_path(self.id), self.id)


@lru_cache(20_000)
def _read_incident(path: Path, changed: int) -> Incident:
    """Return the incident in *path*; cached until *changed*, its modification time, differs."""
    del changed  # a file that was replaced is read anew
    return read_noun(Incident, path)


def incident_page(store: str, id_: str) -> str:
    """Return the URL of the page of the incident *id_* in *store*."""
    return f"incidents/{slug(store)}.{slug(id_)}.html"


def stored_incidents(state: Shown) -> Iterator[StoredIncident]:
    """Yield the incidents in the folder that the user named, else those of every store."""
    for name, tree in trees_of(state).items():
        with suppress(OSError):
            yield from (StoredIncident(name, tree, id_) for id_ in tree.ids())


def incident_named(state: Shown, key: str) -> StoredIncident | None:
    """Return the incident with the id *key* in URLs, None when it does not exist."""
    return next((one for one in stored_incidents(state) if one.key == key), None)


def trees_of(state: Shown) -> dict[str, Tree]:
    """Return the folders of incidents by name: the one that the user named, else that of every store."""
    roots = {"cases": state.cases} if state.cases else {store.name: store.root for store in state.catalogue.stores}
    return {name: Tree(root) for name, root in roots.items()}


def incident_of_task(state: Shown, domain: str, task: str) -> StoredIncident | None:
    """Return the incident that *task* of *domain* asks about, None when there is none or it is not stored."""
    if domain != DOMAIN or Path(task).name != task or task.startswith("."):  # a record may name anything
        return None
    stored = (StoredIncident(name, tree, task) for name, tree in trees_of(state).items())
    with suppress(OSError):
        return next((one for one in stored if (one.tree.incident_path(task) / INCIDENT).is_file()), None)
    return None


def page_of_task(state: Shown, domain: str, task: str) -> str | None:
    """Return the URL of the incident that *task* of *domain* asks about, None without one."""
    one = incident_of_task(state, domain, task)
    return None if one is None else incident_page(one.store, one.id)


def task_name(state: Shown, domain: str, task: str) -> str:
    """Return the display name of *task*: system and first alert of its incident, else the task's id."""
    with suppress(OpsAssayError, OSError):
        if one := incident_of_task(state, domain, task):
            return name_of(one.incident())
    return plain(task, 120)


def name_of(incident: Incident) -> str:
    """Return the display name of an incident: its system and its first alert."""
    first = min(incident.alerts, key=lambda alert: alert.time_ns, default=None)
    what = f"{first.service} {first.signal.replace('_', ' ')}" if first else "no alert"
    return plain(f"{incident.system}, {what}", 120)
