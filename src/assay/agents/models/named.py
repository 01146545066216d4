"""Models by the name that a command takes."""

from __future__ import annotations

from pathlib import Path

from assay.agents.models.base import Model
from assay.errors import UserError


def model_named(name: str, *, retries: int = 2, timeout_s: float = 120.0) -> Model:
    """Return the model called *name*: ``scripted:FILE.yaml``, ``replayed:SESSION`` or a model of OPENAI_BASE_URL.

    *retries* and *timeout_s* are those of an endpoint. Raises UserError when the file or session cannot be read, or the
    key is missing.
    """
    kind, _, rest = name.partition(":")
    if kind == "scripted" and rest:
        from assay.agents.models.scripted import ScriptedModel

        return ScriptedModel.from_file(Path(rest))
    if kind == "replayed" and rest:
        from assay.agents.models.replayed import ReplayedModel

        return ReplayedModel.from_session(Path(rest))
    if not name.strip():
        raise UserError("A model needs a name: `scripted:FILE.yaml`, `replayed:SESSION`, or one of your endpoint's.")
    from assay.agents.models.endpoint import EndpointModel

    return EndpointModel(name, retries=retries, timeout_s=timeout_s)
