"""What-if grades: a profile with some conventions changed, under a name that says so, and the grades that it moves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.overrides import layer_of
from opsassay.core.schema.run import Verdict
from opsassay.scoring.profiles import Profile

WHAT_IF = "what-if"
"""Begins the name of every profile that was changed; verdicts under it are never ranked."""


def changed_profile(profile: Profile, changes: Iterable[str]) -> Profile:
    """Return *profile* with *changes* ``key=value`` (values as in YAML) and a name that tells them apart.

    Without changes it is the profile itself. Raises NotFoundError for an unknown key, UserError for a wrong value.
    """
    given = layer_of(changes, "undirected=true")
    known = [name for name in Profile.model_fields if name != "name"]
    if unknown := next((key for key in given if key not in known), None):
        raise NotFoundError("convention of a profile", unknown, known)
    if not given:
        return profile
    try:
        changed = Profile.model_validate({**profile.model_dump(mode="json"), **given})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UserError(f"{where}: {first['msg']}; correct the value of the change.") from error
    return changed.model_copy(update={"name": f"{WHAT_IF}-{changed.digest()[:8]}"})


def moved(before: Sequence[Verdict], after: Sequence[Verdict]) -> list[dict[str, Any]]:
    """Return run, case, system, solver, metric, before and after of every grade that differs; None is no value."""
    first = {verdict.run: verdict for verdict in before}
    return [
        {
            "run": verdict.run,
            "case": verdict.item,
            "system": verdict.system,
            "solver": verdict.solver,
            "metric": name,
            "before": first[verdict.run].metrics[name].value,
            "after": metric.value,
        }
        for verdict in after
        if verdict.run in first
        for name, metric in verdict.metrics.items()
        if metric.value != first[verdict.run].metrics[name].value
    ]
