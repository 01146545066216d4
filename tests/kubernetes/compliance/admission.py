"""Kyverno itself judges: policies are put on a cluster, objects of worlds are tried out there, and nothing is made of them.

Everything is under a random prefix. The policies are about nothing else, so that a cluster that others use goes on.
"""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from tests.kubernetes.compliance.prefixes import prefixed
from tests.kubernetes.compliance.read_back import MARKED_KINDS, await_removal, lacks_account, refused, standing
from tests.kubernetes.compliance.read_worlds import sendable
from tests.kubernetes.compliance.renamed import renamed

from opsassay.core.errors import StartError
from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy, read_policies
from opsassay.evals.compliance.score import Admits
from opsassay.evals.compliance.tasks import ComplianceTask
from opsassay.testbed.substrates.kubernetes.api.client import Api, ApiError, DeniedError, Object

Objects = Sequence[Mapping[str, Any]]
KYVERNO = ("ClusterPolicy", *MARKED_KINDS)
"""What is made outside of namespaces where Kyverno judges, in the order in which it is removed."""
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
        self._about: list[Any] = []

    def admits(self, policies: Sequence[KyvernoPolicy], objects: Objects) -> bool:
        """Return whether all of *objects* may be created under *policies*, which stay there until others are asked about.

        Raises UnsupportedError for a policy that Kyverno refuses, and StartError when the cluster answers anything else
        than yes, or no by one of these policies.
        """
        sent = [prefixed(sendable(one), self._prefix) for one in objects]
        documents = [one.document for one in policies]
        if documents != self._about or not self._put:
            self.clear()
            self._put_there(policies)
            self._about = documents
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


@contextmanager
def asking_kyverno(api: Api, task: ComplianceTask) -> Iterator[Admits]:
    """Yield what asks the Kyverno of *api* about worlds of *task*; what is made for it is removed with the block."""
    worlds = [*task.judged(), *task.mutants(), *(one for some in task.others().values() for one in some)]
    with standing(api, [one for world in worlds for one in world.objects], KYVERNO) as prefix:
        kyverno = KyvernoOnCluster(api, prefix)
        yield kyverno.admits
        kyverno.clear()
    await_removal(api)


def has_kyverno(api: Api) -> bool:
    """Tell whether there is a Kyverno on the cluster of *api*."""
    try:
        listed = api.request("GET", "/apis/kyverno.io/v1")["resources"]
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return any(one["name"] == "clusterpolicies" for one in listed)


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
