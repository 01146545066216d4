"""The solvers that commands and plans name: agents by name or file, methods by name, file or command, with parameters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from opsassay.core.errors import NotFoundError
from opsassay.evals.diagnosis.agent_runs import Setup, setup_of
from opsassay.evals.diagnosis.exams import RunSettings
from opsassay.evals.diagnosis.method_setups import MethodSetup, is_method, method_setup
from opsassay.evals.diagnosis.sweeps import AskedMethod, asked_method
from opsassay.evals.runner.ranking import ORACLE
from opsassay.solvers.agents.base import AGENTS
from opsassay.solvers.agents.models.named import require_endpoint
from opsassay.solvers.agents.ready import named_path, ready_files
from opsassay.solvers.methods.base import METHODS


def is_asked_method(text: str) -> bool:
    """Return whether *text*, which names an agent or a method, names a method."""
    return is_method(asked_method(text).name)


def methods_of(asked: Iterable[AskedMethod], folder: Path = Path()) -> list[MethodSetup]:
    """Return every variant of the *asked* methods, each once, with files of *folder*; raises as `method_setup`."""
    made = [method_setup(one.name, parameters, folder) for one in asked for parameters in one.each()]
    return list({setup.solver_hash + setup.solver.label: setup for setup in made}.values())


def solvers_named(
    names: Sequence[str], model: str | None, settings: RunSettings, asked: Sequence[AskedMethod]
) -> list[MethodSetup | Setup | str]:
    """Return what *names* name, ready to be run, in their order; *asked* are the methods among them with their parameters.

    Oracles stay names. Raises UserError for one that is neither agent nor method, or that cannot be run as it is asked
    for; also when nobody listens where its model should be.
    """
    methods = iter(asked)
    found: list[MethodSetup | Setup | str] = []
    for name in names:
        if name.startswith(ORACLE):
            found.append(name)
        else:
            found += methods_of([next(methods)]) if is_asked_method(name) else [agent_setup(name, model, settings)]
    return found


def agent_setup(name: str, model: str | None, settings: RunSettings) -> Setup:
    """Return the agent called *name*, ready to be run; raises as `solvers_named`."""
    name = named_path(name)
    if name not in AGENTS.names() and ":" not in name and not name.endswith((".yaml", ".yml")):
        hint = "An external agent is named by its YAML file."
        raise NotFoundError("agent or method", name, [*AGENTS.names(), *ready_files(), *METHODS.names()], hint)
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
