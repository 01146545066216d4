"""What happens to processes, clocks and processors of a modelled system, beyond an operator's verbs.

A trigger begins with some of it. A script has them as what an agent could bring about past its tools: a process that is
stopped for a while, a clock that is changed, a pool whose connections are held, processors that others use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opsassay.core.errors import NotFoundError
from opsassay.testbed.substrates.local.operations import TIME_SYNC
from opsassay.testbed.substrates.local.side_processes import PREVIEW

if TYPE_CHECKING:
    from opsassay.evals.remediation.modelled.trial import ModelledTrial


def break_processes(trial: ModelledTrial, service: str, **_: Any) -> set[str]:
    """Make all processes of *service* hang until each is restarted, their consumers or pools; return its name."""
    replicas = trial.state.replicas[trial.require_service(service)]
    replicas[:] = [replace(one, stuck=True) for one in replicas]
    trial.state.readers[service] = trial.scenario.truth.entities
    return {service}


def pause_processes(trial: ModelledTrial, service: str, seconds: int, replica: int | None = None) -> set[str]:
    """Stop the processes of *service*, or one *replica*, for some *seconds* (SIGSTOP, then SIGCONT); return the names."""
    down = {f"{trial.require_service(service)}-{number}" for number in trial.replica_numbers(service, replica)}
    for _ in range(seconds):
        trial.second(down=frozenset(down))
    return {service, *down}


def set_clock(trial: ModelledTrial, host: str, offset_s: float) -> set[str]:
    """Switch time synchronisation of *host* off and set its clock *offset_s* off; return its name."""
    if host not in trial.state.hosts:
        raise NotFoundError("host", host, trial.state.hosts)
    trial.state.hosts[host][TIME_SYNC] = "off"
    trial.state.clocks[host] = offset_s
    return {host}


def crowd_processors(trial: ModelledTrial, host: str, seconds: int) -> set[str]:
    """Use the processors of *host* with work of others, so that requests take a second, for some *seconds*."""
    trial.slow_until = trial.now + seconds
    return {host}


def fill_disk(trial: ModelledTrial, store: str, process: str) -> set[str]:
    """Have *process* keep the disk of *store* full; return the store's name."""
    trial.state.side_processes[store] = process
    return {store}


def kill_process(trial: ModelledTrial, target: str, process: str) -> set[str]:
    """End the side process *process* of the service or store *target*; return the name of *target*."""
    state = trial.state
    if process == PREVIEW and target in state.replicas:
        state.replicas[target] = [
            state.started(target, one.release, trial.now, alone=True) for one in state.replicas[target]
        ]
    elif state.side_processes.get(target) == process:
        del state.side_processes[target]
    else:
        raise NotFoundError(f"process at {target}", process, state.side_processes.values())
    return {target}


RUNTIME_FAULTS: dict[str, Callable[..., set[str]]] = {
    "consumer stall": break_processes, "pool leak": break_processes, "hang": pause_processes, "clock set": set_clock,
    "crowd": crowd_processors, "disk fill": fill_disk, "kill": kill_process,
}  # fmt: skip
