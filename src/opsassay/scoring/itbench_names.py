"""Reads names of Kubernetes objects, as agents write them, as namespace, kind and name.

ITBench mandates NAMESPACE/KIND/NAME. Agents also write ``deploy/cart -n shop``, ``cart (Deployment)``, the path of an
API, a name in DNS, short and plural kinds, capitals and quotation marks. `readings_of` lists what a text can mean.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from typing import NamedTuple

from opsassay.telemetry.importers.itbench_objects import workload_of

SHORT = {
    "cj": "cronjob", "cm": "configmap", "crb": "clusterrolebinding", "deploy": "deployment", "ds": "daemonset",
    "ep": "endpoint", "hpa": "horizontalpodautoscaler", "ing": "ingress", "limits": "limitrange",
    "netpol": "networkpolicy", "no": "node", "ns": "namespace", "pdb": "poddisruptionbudget", "po": "pod",
    "pv": "persistentvolume", "pvc": "persistentvolumeclaim", "quota": "resourcequota", "rs": "replicaset",
    "sa": "serviceaccount", "sc": "storageclass", "sts": "statefulset", "svc": "service",
}  # fmt: skip
"""Kinds by the short names of kubectl."""
KINDS = frozenset(SHORT.values()) | {"clusterrole", "container", "job", "persistentvolume", "role", "secret"}
OWNERS = {
    "pod": ("replicaset", "deployment", "statefulset", "daemonset", "job", "cronjob"),
    "container": ("pod", "replicaset", "deployment", "statefulset", "daemonset", "job", "cronjob"),
    "replicaset": ("deployment",),
    "job": ("cronjob",),
}
"""By kind, the kinds of objects that can own it, the nearest first."""
_NO_NAMESPACE = frozenset({"none", "null", "nil", "n", "a", "-", "_", "cluster", "cluster-scoped", "clusterscoped"})
_FILLERS = frozenset({"the", "in", "of", "name", "kind", "namespace", "namespaces", "api", "apis", "k8s", "kubernetes"})
_DNS = re.compile(r"(.+?)\.([a-z0-9-]+)\.svc(?:\.cluster\.local)?\.?")
_HASH = r"-[0-9a-f]{6,10}"
"""The suffix that a Deployment adds to the name of its replica set."""


class EntityName(NamedTuple):
    """One reading of a text: namespace and kind in lower case, the kind in singular, each "" if not stated."""

    namespace: str
    kind: str
    name: str


def readings_of(text: str, kinds: Collection[str], namespaces: Collection[str]) -> list[EntityName]:
    """Return the distinct readings of *text*, likeliest first; *kinds* and *namespaces* are those of the truth."""
    known = KINDS | {singular_kind(kind) for kind in kinds}
    clean = _clean(text)
    found = [_split(text.split("/"))]
    found += _by_slashes([part.strip() for part in clean.split("/") if part.strip()], known)
    for between in (r"[/\\:|>=,;\s()\[\]@]+", r"[/\\:|>=,;\s()\[\]@.]+"):
        found += _by_words([word for word in re.split(between, clean) if word], known, namespaces)
    found += [_split_suffix(one, known) for one in found]
    found += [EntityName(one.namespace, one.kind, one.name.lower()) for one in found]
    found += [EntityName(one.namespace, one.kind, one.name.replace("_", "-")) for one in found]
    return list(dict.fromkeys(one for one in found if one.name))


def owners_of(reading: EntityName) -> Iterator[EntityName]:
    """Yield the possible owners of the object of *reading*, nearest first, their names without generated suffixes."""
    for kind in OWNERS.get(reading.kind, ()):
        yield EntityName(reading.namespace, kind, re.sub(f"{_HASH}$", "", workload_of(reading.name)))


def singular_kind(kind: str) -> str:
    """Return *kind* in lower case, singular, without API group, short names in full: ``Pods`` as ``pod``."""
    small = re.sub(r"[\s_-]", "", kind.lower().split(".", 1)[0])
    small = SHORT.get(small, small)
    if small.endswith("ies"):
        return f"{small[:-3]}y"
    return small if small.endswith("ss") else small.removesuffix("es" if small.endswith("sses") else "s")


def _clean(text: str) -> str:
    """Return *text* in plain ASCII signs, without list marks, quotes, brackets and final punctuation."""
    plain = unicodedata.normalize("NFKC", text).translate({0x2010: "-", 0x2013: "-", 0xFEFF: None, 0x200B: None})
    plain = re.sub(r"^(?:[-*•]\s+|[a-z0-9]+://)", "", plain.strip())
    for opening, closing in ("**", '""', "''", "``", "[]", "<>", "()", "{}", "**"):
        if plain.startswith(opening) and plain.endswith(closing) and len(plain) > 2:
            plain = plain[1:-1].strip()
    return plain.rstrip(".,; ")


def _split(parts: list[str]) -> EntityName:
    """Return the reading of *parts* [..., NAMESPACE, KIND, NAME], of which all but the name may be missing."""
    *before, name = parts
    namespace = before[-2].strip().lower() if len(before) > 1 else ""
    return EntityName(
        "" if namespace in _NO_NAMESPACE else namespace, singular_kind(before[-1]) if before else "", name
    )


def _by_slashes(parts: list[str], known: Collection[str]) -> Iterator[EntityName]:
    """Yield readings of a name's *parts* (at "/"): NAMESPACE/KIND/NAME, other orders, API paths; *known*: kinds."""
    if not parts:
        return
    at = next((place for place, part in enumerate(parts[:-1]) if singular_kind(part) in known and place), None)
    if at is not None and parts[0].lower() not in _FILLERS:
        yield _split([parts[0], parts[at], parts[at + 1]])
    if "namespaces" in parts[:-3]:
        at = parts.index("namespaces")
        yield _split(parts[at + 1 : at + 4])
    if len(parts) == 3 and singular_kind(parts[0]) in known:
        yield _split([parts[1], parts[0], parts[2]])
    if len(parts) == 2 and singular_kind(parts[0]) not in known:
        yield _split([parts[0], "", parts[1]])
    yield _split(parts)
    for one in (_split(parts), _split(parts[-1:])):
        if found := _DNS.fullmatch(one.name):
            yield EntityName(one.namespace or found[2], one.kind or "service", found[1])


def _by_words(words: list[str], known: Collection[str], namespaces: Collection[str]) -> Iterator[EntityName]:
    """Yield the reading of *words* if one is left as the name without kind (*known*), namespace and filler words."""
    kind = next((word for word in words if singular_kind(word) in known and word.lower() not in _FILLERS), "")
    rest = [word for word in words if word != kind and word.lower() not in _FILLERS | {"-n", "svc", "local"}]
    inside = next((word for word in rest if word.lower() in namespaces and len(rest) > 1), "")
    names = {word for word in rest if word != inside} - (_NO_NAMESPACE if len(rest) > 1 else set()) or {*rest}
    if len(names) == 1:
        yield EntityName(inside.lower(), singular_kind(kind), names.pop())


def _split_suffix(reading: EntityName, known: Collection[str]) -> EntityName:
    """Return *reading* with the kind (*known*) that ends its name, as in ``cart-deployment`` and ``cart-pod-1``."""
    found = re.fullmatch(r"(.+)-([A-Za-z]+)(?:-\d+)?", reading.name)
    if reading.kind or not found or singular_kind(found[2]) not in known:
        return reading
    return EntityName(reading.namespace, singular_kind(found[2]), found[1])
