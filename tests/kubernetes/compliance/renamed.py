"""Kyverno policies for a cluster that others use too: under a prefix, and about objects under that prefix alone."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.kubernetes.compliance.prefixes import ours

from opsassay.evals.compliance.kyverno.documents import UnsupportedError
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy, filters_of, read_policies
from opsassay.evals.compliance.kyverno.values import wildcard
from opsassay.testbed.substrates.kubernetes.api.kinds import KINDS

_EXPRESSION = re.compile(r"\{\{.*?\}\}|request\.\S*", re.DOTALL)


def renamed(policy: KyvernoPolicy, prefix: str) -> dict[str, Any]:
    """Return *policy* as it is put on a cluster where the objects that it is asked about are under *prefix*.

    It says of them what it says of the originals, and nothing of any other object. Raises UnsupportedError for a policy of
    one namespace, and for one that reads namespaces other than in match and exclude, since these have other names there.
    """
    if policy.kind != "ClusterPolicy":
        raise UnsupportedError(f"{policy.name}: a cluster is asked about ClusterPolicies alone.")
    document: dict[str, Any] = json.loads(json.dumps(policy.document))
    metadata = document["metadata"]
    marks = ours(prefix)
    annotations = {**(metadata.get("annotations") or {}), **marks["annotations"]}
    labels = {**(metadata.get("labels") or {}), **marks["labels"]}
    document["metadata"] = {"name": f"{prefix}-{policy.name}", "labels": labels, "annotations": annotations}
    for rule in document["spec"]["rules"]:
        where = f"{policy.name}: {rule['name']}"
        if _reads_namespaces({key: value for key, value in rule.items() if key not in ("match", "exclude")}):
            raise UnsupportedError(f"{where} reads namespaces, which are called otherwise on the cluster that judges.")
        rule["match"] = _block(rule["match"], prefix, where, restrict=True)
        if rule.get("exclude"):
            rule["exclude"] = _block(rule["exclude"], prefix, where, restrict=False)
    (there,) = read_policies([(policy.name, json.dumps(document).encode())])
    if [rule.controllers for rule in there.rules] != [rule.controllers for rule in policy.rules]:
        raise UnsupportedError(
            f"{policy.name} is for controllers of pods, and for kinds that lie in no namespace; a cluster is asked about "
            "policies of one or the other."
        )
    return document


def _block(given: Mapping[str, Any], prefix: str, where: str, *, restrict: bool) -> dict[str, Any]:
    how, filters = filters_of(given, where)
    parts = [list(_filters(one, prefix, restrict=restrict)) for one in filters]
    if how == "all" and len(parts) > 1:
        if any(len(some) != 1 for some in parts):
            raise UnsupportedError(
                f"{where}: `all` of several filters, of kinds in namespaces and of others, is not put there."
            )
        return {"all": [{"resources": some[0]} for some in parts]}
    return {"any": [{"resources": one} for some in parts for one in some]}


def _filters(given: Mapping[str, Any], prefix: str, *, restrict: bool) -> Iterator[dict[str, Any]]:
    """Yield what stands for one filter: one about kinds in namespaces, one about kinds that lie in none."""
    rest = {key: value for key, value in given.items() if key not in ("kinds", "name", "names", "namespaces")}
    names = [*given.get("names", []), *([given["name"]] if "name" in given else [])]
    spaces, kinds = given.get("namespaces", []), given.get("kinds", [])
    inside = [kind for kind in kinds if _lives(kind, namespaced=True)]
    outside = [kind for kind in kinds if _lives(kind, namespaced=False) or kind not in inside]
    if inside or not kinds:
        places = {"namespaces": [f"{prefix}-{one}" for one in spaces or ["*"]]} if spaces or restrict else {}
        called = {"names": names} if names else {}
        yield {**rest, **({"kinds": inside} if inside else {}), **called, **places}
    if (outside or not kinds) and (not spaces or any(wildcard(one, "") for one in spaces)):
        called = {"names": [f"{prefix}-{one}" for one in names or ["*"]]} if names or restrict else {}
        yield {**rest, **({"kinds": outside} if outside else {}), **called}


def _lives(pattern: str, *, namespaced: bool) -> bool:
    kind = pattern.rpartition("/")[2]
    return any(wildcard(kind, known) for known, (_, _, inside) in KINDS.items() if inside is namespaced)


def _reads_namespaces(value: Any) -> bool:
    if isinstance(value, str):
        return any("namespace" in one.lower() for one in _EXPRESSION.findall(value))
    if isinstance(value, Mapping):
        keys = any("namespace" in str(key).lower() for key in value)
        return keys or any(_reads_namespaces(one) for key, one in value.items() if key != "message")
    return isinstance(value, list) and any(map(_reads_namespaces, value))
