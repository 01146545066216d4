"""The solvers that commands and plans name: agents by name or file, methods by name."""

from __future__ import annotations

from opsassay.agents.base import AGENTS
from opsassay.agents.models.named import require_endpoint
from opsassay.bench.core.ranking import ORACLE
from opsassay.bench.domains.diagnosis.agent_runs import Setup, setup_of
from opsassay.bench.domains.diagnosis.exams import RunSettings
from opsassay.errors import NotFoundError
from opsassay.methods.base import METHODS


def solver_named(name: str, model: str | None, settings: RunSettings) -> str | Setup:
    """Return the agent called *name* ready to be run, or *name* itself for a method or an oracle.

    Raises UserError for one that is neither, or that cannot be run as it is asked for; also when nobody listens where its
    model should be.
    """
    if name in METHODS.names() or name.startswith(ORACLE):
        return name
    if name not in AGENTS.names() and ":" not in name and not name.endswith((".yaml", ".yml")):
        hint = "An external agent is named by its YAML file."
        raise NotFoundError("agent or method", name, [*AGENTS.names(), *METHODS.names()], hint)
    setup = setup_of(
        name,
        model=model,
        limits=settings.limits.model_dump(exclude_unset=True),
        price=settings.price,
        temperature=settings.temperature,
        sealing=settings.sealing,
    )
    if setup.asks_model:
        require_endpoint(str(setup.model))
    return setup
