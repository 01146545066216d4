"""Test clusters ("worlds"): a few objects that all comply with a control, or one of which violates it at one place.

Names, namespaces, kinds and shapes are drawn alike for both, so that only the violation distinguishes them. Violations
rotate over places that policies forget: init containers, controllers' templates, scheduled jobs, other namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from opsassay.evals.compliance.clusters.controls import ComplianceControl
from opsassay.evals.runner.draws import Draws

NAMES = (
    "ledger",
    "basket",
    "search",
    "mailer",
    "gateway",
    "report",
    "rates",
    "stock",
    "crawler",
    "login",
    "archive",
    "relay",
)
NAMESPACES = ("shop", "billing", "legacy", "default", "kube-system")
IMAGES = ("registry.test/app:1.4", "registry.test/worker:2.0", "registry.test/side:0.9")
CONTROLLERS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1"}
Object = dict[str, Any]


@dataclass(frozen=True)
class ViolationPlace:
    """The place of a violation: *kind* of object, *namespace* if that matters, and group of containers."""

    kind: str
    containers: str = "containers"
    namespace: str | None = None


POD_PLACES = (
    ViolationPlace("Pod"),
    ViolationPlace("Deployment"),
    ViolationPlace("Pod", "initContainers"),
    ViolationPlace("CronJob"),
    ViolationPlace("Pod", namespace="legacy"),
    ViolationPlace("StatefulSet", "initContainers", "legacy"),
    ViolationPlace("DaemonSet"),
    ViolationPlace("Job", "initContainers"),
    ViolationPlace("Pod", namespace="kube-system"),
)
ROLE_PLACES = (
    ViolationPlace("Role"),
    ViolationPlace("ClusterRole"),
    ViolationPlace("Role", namespace="legacy"),
    ViolationPlace("Role", namespace="kube-system"),
)


@dataclass(frozen=True)
class ComplianceWorld:
    """The objects of a test cluster, and whether all of them comply."""

    objects: tuple[Object, ...]
    compliant: bool


@dataclass(frozen=True)
class _WorldDraft:
    """A test cluster whose label is open: its kinds, names, and the place of a possible violation."""

    control: ComplianceControl
    seed: int
    purpose: str
    number: int

    @property
    def place(self) -> ViolationPlace:
        """The kind, container group and namespace in which the violating version has its violation."""
        places = ROLE_PLACES if self.control.scope == "role" else POD_PLACES
        return places[self.number % len(places)]

    def make_world(self, *, compliant: bool) -> ComplianceWorld:
        """Return the compliant or the violating version of the test cluster; they differ in one field group only."""
        draws = Draws(self.seed, "world", self.purpose, str(self.number))
        place, count = self.place, draws.integer(2, 4)
        at = draws.integer(0, count - 1)
        kinds = ROLE_PLACES if self.control.scope == "role" else POD_PLACES
        objects = []
        for n, name in enumerate(draws.sample(NAMES, count)):
            here = place if n == at else replace(draws.choice(kinds), containers="containers")
            objects.append(self._draw_object(here, name, draws, violates=n == at and not compliant))
        return ComplianceWorld(tuple(objects), compliant)

    def _draw_object(self, place: ViolationPlace, name: str, draws: Draws, *, violates: bool) -> Object:
        """Return a random object *name*-NN of the kind of *place*; with *violates* it violates the control."""
        namespace = draws.choice(NAMESPACES)
        metadata = {
            "name": f"{name}-{draws.integer(10, 99)}",
            "namespace": place.namespace or namespace,
            "labels": {"app": name, "tier": draws.choice(("front", "back"))},
        }
        if self.control.scope == "role":
            return self._draw_role(place, metadata, draws, violates=violates)
        spec = self._draw_pod(place, draws, violates=violates)
        if place.kind == "Pod":
            return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        template = {"metadata": {"labels": metadata["labels"]}, "spec": spec}
        if place.kind == "CronJob":
            job = {"schedule": "0 4 * * *", "jobTemplate": {"spec": {"template": template}}}
            return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": job}
        body = {"selector": {"matchLabels": {"app": name}}, "template": template}
        return {"apiVersion": CONTROLLERS[place.kind], "kind": place.kind, "metadata": metadata, "spec": body}

    def _draw_pod(self, place: ViolationPlace, draws: Draws, *, violates: bool) -> Object:
        """Return a random pod spec; with *violates* the last container of the container group of *place* violates."""
        counts = {"containers": draws.integer(1, 3), "initContainers": draws.integer(0, 1)}
        counts[place.containers] = max(counts[place.containers], 1)
        last = counts[place.containers] - 1
        spec: Object = {}
        for group, count in counts.items():
            made = [
                self._draw_container(
                    f"{group[:4]}-{n}", draws, violates=violates and (group, n) == (place.containers, last)
                )
                for n in range(count)
            ]
            if made:
                spec[group] = made
        if self.control.scope == "pod":
            spec = merge_maps(spec, self._draw_fragment(draws, violates=violates))
        return spec

    def _draw_container(self, name: str, draws: Draws, *, violates: bool) -> Object:
        """Return a random container called *name*, which violates a control about containers if *violates*."""
        container = {"name": name, "image": draws.choice(IMAGES)}
        if self.control.scope != "container":
            return container
        made: Object = merge_maps(container, self._draw_fragment(draws, violates=violates))
        return made

    def _draw_role(self, place: ViolationPlace, metadata: Object, draws: Draws, *, violates: bool) -> Object:
        """Return a random role of the kind of *place* with *metadata*; if *violates* its last rule does."""
        rules = [self._draw_fragment(draws, violates=violates and n == 0) for n in range(draws.integer(1, 3))]
        if place.kind == "ClusterRole":
            metadata = {key: value for key, value in metadata.items() if key != "namespace"}
        kept = rules[1:] + rules[:1]  # what violates stands last
        return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": place.kind, "metadata": metadata, "rules": kept}

    def _draw_fragment(self, draws: Draws, *, violates: bool) -> Object:
        """Return a random fragment of the control, violating or (not *violates*) compliant, by one draw of *draws*."""
        chance = draws.integer(0, 719)  # one draw whatever is chosen: both worlds of a draft go on alike
        choices = self.control.violating if violates else self.control.compliant
        return choices[chance % len(choices)]


def merge_maps(base: Any, overlay: Any) -> Any:
    """Return *base* with the maps of *overlay* merged in recursively; lists and values are replaced."""
    if not (isinstance(base, dict) and isinstance(overlay, dict)):
        return overlay
    return {**base, **{key: merge_maps(base[key], value) if key in base else value for key, value in overlay.items()}}


def worlds(control: ComplianceControl, seed: int, purpose: str, count: int) -> list[ComplianceWorld]:
    """Return *count* violating, then *count* compliant clusters for *control*, drawn by *seed* and *purpose* (text)."""
    drafts = [_WorldDraft(control, seed, purpose, n) for n in range(2 * count)]
    return [draft.make_world(compliant=n >= count) for n, draft in enumerate(drafts)]


def mutants(control: ComplianceControl, seed: int, purpose: str, count: int) -> Iterator[ComplianceWorld]:
    """Yield for each cluster of `worlds` with the same arguments its counterpart: the violation added or removed."""
    for n in range(2 * count):
        yield _WorldDraft(control, seed, purpose, n).make_world(compliant=n < count)
