"""What an API server says of itself: its version, its groups, and the kinds that each of them has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from opsassay.testbed.substrates.kubernetes.api.kinds import IN_ALL, KINDS, SHORT_NAMES, version_in

VERSION = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2024-12-11T00:00:00Z",
    "goVersion": "go1.23.3",
    "compiler": "gc",
    "platform": "linux/amd64",
}
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
CORE = "api/v1"
HEALTH = ("/healthz", "/livez", "/readyz")


def discovery(path: str, kinds: Iterable[str]) -> Any:
    """Return the discovery document at *path* of an API server that serves *kinds*; None for other paths."""
    if path in HEALTH:
        return b"ok"
    if path == "/version":
        return VERSION
    groups: dict[str, list[str]] = {}
    for kind in kinds:
        groups.setdefault(KINDS[kind][0], []).append(kind)
    return _describe_groups(path.strip("/"), groups)


def _describe_groups(path: str, groups: Mapping[str, list[str]]) -> Any:
    """Return the document on *groups* ({path: kinds}) at *path*: a list of them or of resources; None if unknown."""
    named = {group.rpartition("/")[0]: _describe_group(group) for group in groups if group != CORE}
    if path == "api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": list(named.values())}
    if path in named:
        return {"kind": "APIGroup", "apiVersion": "v1", **named[path]}
    return _describe_resources(path, groups[path]) if path in groups else None


def _describe_group(group: str) -> dict[str, Any]:
    """Return the entry of the API path *group* in the list of groups."""
    name, _, version = version_in(group).partition("/")
    one = {"groupVersion": f"{name}/{version}", "version": version}
    return {"name": name, "versions": [one], "preferredVersion": one}


def _describe_resources(group: str, kinds: Iterable[str]) -> dict[str, Any]:
    """Return the APIResourceList of *kinds*, which are in *group*."""
    resources = []
    for kind in kinds:
        _, plural, namespaced = KINDS[kind]
        resource = {
            "name": plural,
            "singularName": kind.lower(),
            "namespaced": namespaced,
            "kind": kind,
            "verbs": VERBS,
        }
        short = {"shortNames": list(SHORT_NAMES[kind])} if kind in SHORT_NAMES else {}
        in_all = {"categories": ["all"]} if kind in IN_ALL else {}
        resources.append({**resource, **short, **in_all})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version_in(group), "resources": resources}
