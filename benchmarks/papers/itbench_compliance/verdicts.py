"""One answer judged twice, by the public rule and by ours, and what ours looks at: worlds, and what was to be kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opsassay.evals.compliance.kyverno.judge import judge_objects
from opsassay.evals.compliance.kyverno.policy import KyvernoPolicy


@dataclass(frozen=True)
class JudgedSubmission:
    """An answer called *name*: whether it is *right*, whether each of both accepts it, and *why* not.

    *ours* is None where it takes a Rego engine and there is none.
    """

    task_class: str
    name: str
    right: bool
    public: bool
    ours: bool | None
    why: str = ""


@dataclass(frozen=True)
class LabelledObject:
    """One object, what it is an example of, and whether it complies."""

    about: str
    compliant: bool
    object: Mapping[str, Any]


def misjudged(policies: Sequence[KyvernoPolicy], worlds: Sequence[LabelledObject], *, enforced: bool) -> str:
    """Return which of *worlds* the *policies* judge wrongly, nothing when none.

    A world is found to violate when some rule fails on it, one that keeps it out where *enforced*. Raises
    UnsupportedError as rules are met.
    """
    said: dict[bool, list[str]] = {True: [], False: []}
    for world in worlds:
        results = judge_objects(policies, [world.object])
        found = any(one.result == "fail" and (one.enforced or not enforced) for one in results)
        if found == world.compliant:
            said[world.compliant].append(world.about)
    missed, held_back = said[False], said[True]
    parts = [f"not found to violate: {missed[0]}"] if missed else []
    parts += [f"found to violate: {held_back[0]}"] if held_back else []
    return "; ".join(parts)
