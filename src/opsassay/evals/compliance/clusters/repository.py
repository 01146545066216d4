"""Repositories of `update` tasks: policies of several controls, one of which is outdated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from opsassay.evals.compliance.clusters.controls import controls
from opsassay.evals.compliance.kyverno.policy import AUTOGEN, KyvernoPolicy
from opsassay.evals.runner.draws import Draws

FOLDER = "policies"
OTHERS = 3


def policy_name(control: str) -> str:
    """Return the name that Kyverno policies for *control* have in generated repositories and reference solutions."""
    return f"require-no-{control}" if not control.startswith("host") else f"forbid-{control}"


class _Plain(yaml.SafeDumper):
    """Writes YAML without anchors and aliases, which policies may not have."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so that YAML is written without anchors and aliases."""
        del data
        return True


def policy_files(*policies: Mapping[str, Any]) -> dict[str, bytes]:
    """Return one YAML file per policy: content by relative path."""
    return {
        f"{FOLDER}/{policy['metadata']['name']}.yaml": yaml.dump(dict(policy), Dumper=_Plain, sort_keys=False).encode()
        for policy in policies
    }


def others_of(control: str, seed: int) -> list[str]:
    """Return the names of the other controls with a policy in the repository of *control*, drawn by *seed*."""
    return Draws(seed, "repository", control).sample([one for one in controls() if one != control], OTHERS)


def gap_of(control: str) -> str:
    """Return how the outdated policy of *control* fails: "audit", "controllers" or "namespace"."""
    kinds = ("audit", "namespace") if controls()[control].scope == "role" else ("audit", "controllers", "namespace")
    return kinds[list(controls()).index(control) % len(kinds)]


GAPS = {
    "audit": "it only reports what it finds, where it has to keep it out",
    "controllers": "it does not look at the pods that Deployments, CronJobs and other controllers make",
    "namespace": "it leaves out the namespace `legacy`, whose exception has ended",
}


def stale(control: str) -> dict[str, Any]:
    """Return the outdated Kyverno policy of *control*, which has the flaw that `gap_of` names."""
    one, gap = controls()[control], gap_of(control)
    if gap == "namespace":
        return one.policy(policy_name(control), exclude={"any": [{"resources": {"namespaces": ["legacy"]}}]})
    policy = one.policy(policy_name(control))
    if gap == "controllers":
        policy["metadata"]["annotations"] = {AUTOGEN: "none"}
    else:
        policy["spec"]["rules"][0]["validate"]["failureAction"] = "Audit"
    return policy


def repository(control: str, seed: int) -> dict[str, bytes]:
    """Return the agent's initial files (content by path): an outdated policy of *control*, others drawn by *seed*."""
    return policy_files(*(controls()[one].policy(policy_name(one)) for one in others_of(control, seed)), stale(control))


def what_was_not_kept(before: list[KyvernoPolicy], after: list[KyvernoPolicy], target: str) -> str | None:
    """Return the first change from *before* to *after* beyond an update of the policy called *target*, or None."""
    old, new = ({policy.identity: policy for policy in some} for some in (before, after))
    if gone := sorted(set(old) - set(new)):
        return f"the policy {gone[0][2]} was removed or renamed"
    if more := sorted(set(new) - set(old)):
        return f"the policy {more[0][2]} was added, which nobody asked for"
    for identity, policy in old.items():
        if policy.name != target and policy.document != new[identity].document:
            return f"the policy {policy.name} was changed, which nobody asked for"
    was, now = (next(one for one in some if one.name == target) for some in (before, after))
    if exempting := sorted(now.exemptions - was.exemptions):
        return f"the policy {target} leaves out other objects than before: {exempting[0]}"
    return None
