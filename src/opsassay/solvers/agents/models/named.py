"""The model that a name on the command line stands for."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.request import getproxies

from opsassay.core.errors import UserError
from opsassay.solvers.agents.models.base import Model

ENDPOINT_TIMEOUT_S = 10.0
FREE = frozenset({"scripted", "replayed"})
"""Kinds of models that need no endpoint, no key and no money."""


def model_named(name: str, *, retries: int = 2, timeout_s: float = 120.0, answer_tokens: int | None = None) -> Model:
    """Return the model *name*: ``scripted:FILE.yaml``, ``replayed:SESSION``, or one served at OPENAI_BASE_URL.

    *retries*, *timeout_s* (per request) and *answer_tokens* (most tokens of a reply) apply to a served one. Raises
    UserError when the file or session cannot be read, or the API key is missing.
    """
    kind, _, rest = name.partition(":")
    if kind == "scripted" and rest:
        from opsassay.solvers.agents.models.scripted import ScriptedModel

        return ScriptedModel.from_file(Path(rest))
    if kind == "replayed" and rest:
        from opsassay.solvers.agents.models.replayed import ReplayedModel

        return ReplayedModel.from_session(Path(rest))
    if not name.strip():
        raise UserError("A model needs a name: `scripted:FILE.yaml`, `replayed:SESSION`, or one of your endpoint's.")
    from opsassay.solvers.agents.models.endpoint import EndpointModel

    return EndpointModel(name, retries=retries, timeout_s=timeout_s, answer_tokens=answer_tokens)


def require_endpoint(model: str) -> None:
    """Raise UserError unless *model* is scripted or replayed, or OPENAI_BASE_URL accepts connections.

    Commands call it before they start; behind a web proxy it tries nothing.
    """
    if model.partition(":")[0] in FREE:
        return
    from opsassay.solvers.agents.models.endpoint import base_url_set, parts_of

    base = base_url_set()
    scheme, host, port = parts_of(base)
    if scheme in getproxies():
        return
    try:
        socket.create_connection((host, port), ENDPOINT_TIMEOUT_S).close()
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(
            f"No model can be reached at {base} ({why}); start one there, or correct OPENAI_BASE_URL."
        ) from error
