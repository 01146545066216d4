"""The settings of a modelled system, as they would have been recorded."""

from __future__ import annotations

from opsassay.core.schema.trajectory import SettingsReading
from opsassay.evals.remediation.modelled.state import ModelledSystem
from opsassay.testbed.operations.protection import EMPTIED, PROCESS, RUNS, protected_of, without_defaults, written_down
from opsassay.testbed.substrates.local.limits import PORT_RANGE
from opsassay.testbed.substrates.local.operations import NAMES

READER = "reader"


def reading_of(state: ModelledSystem, time_ns: int) -> SettingsReading:
    """Return all settings of *state* at *time_ns*, in the form that the local environment records."""
    protected, others = dict[str, str](), dict[str, str]()
    records = {name: state.records.get(name, name) for name in state.replicas}
    settings = {name: without_defaults(given, state.system.services[name]) for name, given in state.settings.items()}
    for owner, values in {**settings, **state.stores, **state.hosts, NAMES: records}.items():
        protected |= protected_of(owner, values, READER)
        others |= {f"{owner} {key}": written_down(key, value, READER) for key, value in values.items()}
    others |= {f"{owner} {EMPTIED}": str(count) for owner, count in state.emptied.items()}
    others |= {f"{service} firewall {rule}": client for rule, (service, client) in state.rules.items()}
    others |= {f"{service} {PORT_RANGE}": ports for service, ports in state.ports.items()}
    others |= {f"{owner} {PROCESS} {name}": RUNS for owner, name in state.side_processes.items()}
    configured = {f"{owner} {key}": value for owner in settings for key, value in settings[owner].items()}
    pending: dict[str, tuple[str, ...]] = {}
    for owner, replicas in state.replicas.items():
        others[f"{owner} replicas"] = str(len(replicas))
        releases = {one.release for one in replicas} or {state.system.services[owner].release}
        others[f"{owner} release"] = ", ".join(sorted(releases))
        for number, one in enumerate(replicas):
            replica, now = f"{owner}-{number}", state.settings[owner]
            configured[f"{replica} release"] = one.release
            if one.crashes:
                continue
            waiting = [key for key in {*now, *one.settings} if now.get(key) != one.settings.get(key)]
            for name in (f"{owner} {key}" for key in waiting):
                pending[name] = (*pending.get(name, ()), replica)
            if one.runs != one.release:
                pending[f"{replica} release"] = (replica,)
    return SettingsReading(
        time_ns=time_ns, settings=protected, configured=configured, pending_restart=pending,
        others={k: v for k, v in others.items() if k not in protected},
    )  # fmt: skip
