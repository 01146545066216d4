"""Kyverno itself judges: policies are put on a cluster, objects of worlds are tried out there, and nothing is made of them.

Everything is under a random prefix. The policies are about nothing else, so that a cluster that others use goes on.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opsassay.core.errors import DatapackError, StartError
from opsassay.core.schema.run import Run
from opsassay.core.schema.task import Arm
from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.judge import admitted
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy, read_policies
from opsassay.evals.compliance.on_cluster.place import KYVERNO, ClusterPlace
from opsassay.evals.compliance.on_cluster.read_worlds import CLUSTER, ENGINE, sendable
from opsassay.evals.compliance.on_cluster.renamed import renamed
from opsassay.evals.compliance.score import Admits
from opsassay.evals.compliance.tasks import ComplianceTask
from opsassay.telemetry.content import whole_file
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, DeniedError, Object
from opsassay.testbed.substrates.kubernetes.api.prefixes import prefixed
from opsassay.testbed.substrates.kubernetes.api.read_back import await_removal, lacks_account, refused, standing

Objects = Sequence[Mapping[str, Any]]
ADMITTED = "admitted.json"
"""File of a run with what the cluster let in, by digests of policies and objects."""
READY_TIMEOUT_S = 90.0
"""How long Kyverno may take until a policy that was put there, or taken away, counts."""
LOOK_EVERY_S = 0.5
_CANARY = "opsassay-canary"
"""Name of a policy beside those that are asked about, and of the one label that it keeps out."""


class KyvernoOnCluster:
    """Asks the cluster of *api* what its Kyverno lets in; namespaces under *prefix* are there already."""

    def __init__(self, api: Api, prefix: str) -> None:
        self._api, self._prefix = api, prefix
        self._put: list[Object] = []
        self._seen: set[str] = set()
        self._of = ""

    def admits(self, policies: Sequence[KyvernoPolicy], objects: Objects) -> bool:
        """Return whether all of *objects* may be created under *policies*, which stay there until others are asked about.

        Raises UnsupportedError for a policy that Kyverno refuses, and StartError when the cluster answers anything else
        than yes, or no by one of these policies.
        """
        sent = [prefixed(sendable(one), self._prefix) for one in objects]
        if (digest := _digest(policies, ())) != self._of or not self._put:
            self.clear()
            self._put_there(policies)
            self._of = digest
        for one in sent:
            self._await_canary(one)
        return not any(self._kept_out(one) for one in sent)

    def clear(self) -> None:
        """Take the policies away that were put there."""
        while self._put:
            self._api.delete("ClusterPolicy", self._put[-1]["metadata"]["name"])
            self._put.pop()
        self._seen.clear()

    def _put_there(self, policies: Sequence[KyvernoPolicy]) -> None:
        for document in [renamed(one, self._prefix) for one in (*policies, _canary())]:
            document["apiVersion"] = self._api.version_of("ClusterPolicy")
            self._put.append(document)  # before it is there: an answer may be lost
            try:
                self._api.create(document)
            except DeniedError as error:
                raise refused(self._api, document, error) from error
            except ApiError as error:
                if error.status in (400, 422):
                    said = " ".join(str(error).split())[:300]
                    raise UnsupportedError(
                        f"Kyverno refuses the policy {document['metadata']['name']}: {said}"
                    ) from error
                raise refused(self._api, document, error) from error
        for document in self._put:
            self._await_ready(document["metadata"]["name"])

    def _await_ready(self, name: str) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            status = (self._api.get("ClusterPolicy", name) or {}).get("status") or {}
            conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
            if status.get("ready") is True or conditions.get("Ready") == "True":
                return
            time.sleep(LOOK_EVERY_S)
        raise StartError(
            f"Kyverno on {self._api.context} has not taken up the policy {name} after {READY_TIMEOUT_S:g} s."
        )

    def _await_canary(self, one: Object) -> None:
        """Wait until the canary keeps out what it should of the kind of *one*: then Kyverno is asked about such objects."""
        if one["kind"] in self._seen:
            return
        marked = copy.deepcopy(one)
        marked["metadata"].setdefault("labels", {})[_CANARY] = "true"
        deadline = time.monotonic() + READY_TIMEOUT_S
        while _CANARY not in self._blamed(self._tried(marked)):
            if time.monotonic() > deadline:
                raise StartError(
                    f"Kyverno on {self._api.context} is not asked about {one['kind']} objects, so nothing is graded; see "
                    "its resource filters and webhooks."
                )
            time.sleep(LOOK_EVERY_S)
        self._seen.add(one["kind"])

    def _kept_out(self, one: Object) -> bool:
        said = self._tried(one)
        if not said:
            return False
        if not self._blamed(said):
            raise refused(self._api, one, StartError(said))
        return True

    def _tried(self, one: Object) -> str:
        """Return why the server would not create *one*; a namespace gets the account of its pods a moment after itself."""
        body = {**one, "apiVersion": self._api.version_of(one["kind"])}
        deadline = time.monotonic() + READY_TIMEOUT_S
        while lacks_account(said := self._api.try_out(body) or "") and time.monotonic() < deadline:
            time.sleep(LOOK_EVERY_S)
        return said

    def _blamed(self, said: str) -> list[str]:
        """Return the names, without the prefix, of our policies by which an object is refused with these words."""
        if "denied the request" not in said:
            return []
        names = [one["metadata"]["name"] for one in self._put]
        found = [name for name in names if re.search(rf"(?m)(^|\s){re.escape(name)}:", said)]
        return [name.removeprefix(f"{self._prefix}-") for name in found]


class KeptAdmissions:
    """What was let in, in the file *path*; *ask* is asked about what is not there, None for nobody."""

    def __init__(self, path: Path, ask: Admits | None = None) -> None:
        self._path, self._ask = path, ask
        self._kept: dict[str, bool] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def admits(self, policies: Sequence[KyvernoPolicy], objects: Objects) -> bool:
        """Return whether all of *objects* may be created under *policies*; raises DatapackError when nobody knows."""
        key = _digest(policies, objects)
        if key not in self._kept:
            if self._ask is None:
                raise DatapackError(f"{self._path} lacks what Kyverno said of this; run the plan again, which asks it.")
            self._kept[key] = self._ask(policies, objects)
        return self._kept[key]

    def write(self) -> None:
        """Keep what was said in the file."""
        with whole_file(self._path) as partial:
            partial.write_text(json.dumps(self._kept, indent=1) + "\n", encoding="utf-8")


@contextmanager
def asking_kyverno(place: ClusterPlace, task: ComplianceTask, path: Path) -> Iterator[Admits]:
    """Yield what asks the Kyverno of *place* about worlds of *task*, once for each; it is kept in the file *path*.

    What is made for it is removed with the block. Raises UserError when there is no Kyverno.
    """
    kept = KeptAdmissions(path)
    if path.is_file():
        yield kept.admits
        return
    place.require()
    place.clear()
    worlds = [*task.judged(), *task.mutants(), *(one for some in task.others().values() for one in some)]
    with standing(place.api, [one for world in worlds for one in world.objects], KYVERNO) as prefix:
        kyverno = KyvernoOnCluster(place.api, prefix)
        kept = KeptAdmissions(path, kyverno.admits)
        yield kept.admits
        kyverno.clear()
    await_removal(place.api)
    kept.write()


def admissions_of(run: Run, run_dir: Path) -> Admits:
    """Return what judges the policies of *run* without a cluster: what one said before, where one was to judge."""
    if Arm.parse(run.arm).knob(ENGINE) != CLUSTER:
        return admitted
    return KeptAdmissions(run_dir / ADMITTED).admits


def _canary() -> KyvernoPolicy:
    """Return a policy that keeps out what has its label, of all kinds that worlds have."""
    kinds = ("Pod", "Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Role", "ClusterRole")
    rule = {
        "name": "canary",
        "match": {"any": [{"resources": {"kinds": list(kinds), "selector": {"matchLabels": {_CANARY: "true"}}}}]},
        "validate": {
            "message": "a canary",
            "failureAction": "Enforce",
            "deny": {"conditions": {"all": [{"key": "a", "operator": "Equals", "value": "a"}]}},
        },
    }
    document = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": _CANARY},
        "spec": {"background": False, "rules": [rule]},
    }
    return read_policies([("canary.yaml", json.dumps(document).encode())])[0]


def _digest(policies: Sequence[KyvernoPolicy], objects: Objects) -> str:
    parts = [[one.document for one in policies], [dict(one) for one in objects]]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
