"""One trial, in the process that `solve` starts: the environment, the agent in it, and the records of both.

``python -m opsassay.evals.remediation.trial.perform`` reads its order as JSON from standard input.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.logs import Log, configure
from opsassay.core.parallel import interrupt_once
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.environment import TrialEnvironment
from opsassay.evals.remediation.trial.contract import Perform, PromptArm, TrialAgent, mark_phase, note_outcome
from opsassay.evals.remediation.trial.operators import Assignment, Operate, run_operator
from opsassay.evals.runner.run import open_session
from opsassay.telemetry.mask import Mask
from opsassay.testbed.operations.environment import environment_for
from opsassay.testbed.operations.tool_session import CALLS_LIMIT, OperatorToolSession

_log = Log(__name__)

LONGEST_CALL_S = 300.0
"""Seconds that a trial waits for a tool call which the agent left unfinished, so that its change is recorded."""


def perform(
    scenario: Scenario,
    agent: TrialAgent,
    arm: PromptArm,
    *,
    probes: bool,
    seed: int,
    run_dir: Path,
    cluster: Mapping[str, Any] | None = None,
    mask: Mask | None = None,
    rollback: bool = False,
    noise: bool = False,
    gate: Path | None = None,
) -> None:
    """Run one trial, recorded into *run_dir*; without *probes* only the final one is sent. Raises OpsAssayError.

    *cluster* is the block of the plan that names the cluster of a scenario for Kubernetes, *mask* the telemetry
    withheld from the agent's tools; with *rollback* one of them undoes the agent's own changes, with *noise* harmless
    changes happen in the background. With a *gate* the system waits, healthy, until that file exists.
    """
    live = environment_for(scenario, seed, run_dir, cluster)
    environment = TrialEnvironment(
        live, scenario, run_dir, probes=probes, mask=mask, rollback=rollback, noise=noise, gate=gate
    )
    perform_in(environment, scenario, agent, arm, seed, run_dir)


def perform_in(
    environment: TrialEnvironment, scenario: Scenario, agent: TrialAgent, arm: PromptArm, seed: int, run_dir: Path
) -> None:
    """Run one trial of *agent*, prompted by variant *arm*, in *environment* and record it. Raises OpsAssayError."""
    with open_session(environment) as session:
        work(environment, session, scenario, agent, arm, seed, run_dir)


def work(
    environment: TrialEnvironment,
    session: OperatorToolSession,
    scenario: Scenario,
    agent: TrialAgent,
    arm: PromptArm,
    seed: int,
    run_dir: Path,
    operate: Operate | None = None,
) -> None:
    """Run *agent* by `run_operator`, or by *operate*, until it ends; after its time limit tools refuse all calls."""
    environment.note_settings()
    environment.live.start_agent()
    mark_phase(run_dir, "agent_started")
    timeout_s = scenario.environment.agent_timeout_s
    task = Assignment(scenario, session.fill(scenario.prompt(arm)), timeout_s, seed, run_dir)
    over = threading.Timer(timeout_s, session.close)
    over.daemon = True
    if agent.oracle is None:
        over.start()
    began = time.monotonic()
    try:
        (operate or run_operator)(agent, task, session)
    finally:
        took_s = time.monotonic() - began
        over.cancel()
        session.close()
        mark_phase(run_dir, "agent_ended")
        _note_behaviour(session, took_s if agent.oracle is None else 0.0, timeout_s, run_dir)
        environment.live.stop_agent()
        environment.note_settings()


def _note_behaviour(session: OperatorToolSession, took_s: float, timeout_s: float, run_dir: Path) -> None:
    """Wait for an unfinished tool call, then record if the agent was idle or late (*took_s* of *timeout_s* seconds)."""
    if (left := session.finish(LONGEST_CALL_S)) is not None:
        note_outcome(run_dir, "left_running", f"it ended while {left} was under way; what that changed is its doing")
    if took_s >= timeout_s:
        note_outcome(run_dir, "agent_timeout", f"it had not ended after the {timeout_s:g} s that it has")
    if not session.call_count:
        note_outcome(run_dir, "agent_idle", "it ended without a single call of a tool")
    if session.late_calls:
        note_outcome(
            run_dir, "acted_after_end", f"{session.late_calls} calls came when its time was over; all were refused"
        )
    if session.call_count > CALLS_LIMIT:
        note_outcome(
            run_dir,
            "tool_flood",
            f"{session.call_count} calls; those after {CALLS_LIMIT} were refused and not recorded",
        )


def main(order: dict[str, Any]) -> int:
    """Run the trial described in *order*; return the exit code. The last line on standard error explains a failure."""
    signal.signal(signal.SIGTERM, interrupt_once)  # the watchdog's word, or the kernel's
    _end_with_runner(order["runner"])
    module, _, name = order["performer"].partition(":")
    perform: Perform = getattr(import_module(module), name)
    scenario, agent = Scenario.model_validate(order["scenario"]), TrialAgent.model_validate(order["agent"])
    where = {"cluster": cluster} if (cluster := order["cluster"]) is not None else {}
    if order["mask"] is not None:
        where["mask"] = Mask.model_validate(order["mask"])
    where |= {arm: True for arm in ("rollback", "noise") if order.get(arm)}
    if order.get("gate") is not None:
        where["gate"] = Path(order["gate"])
    run_dir = Path(order["run_dir"])
    configure("trial", "")
    _log.info("started", scenario=scenario.id, agent=agent.name, seed=order["seed"], pid=os.getpid())
    try:
        perform(scenario, agent, order["arm"], probes=order["probes"], seed=order["seed"], run_dir=run_dir, **where)
    except OpsAssayError as error:
        _log.error("not performed", reason=str(error))
        print(f"{type(error).__name__}: {error}".replace("\n", " | "), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        _log.warning("interrupted")
        print("interrupted", file=sys.stderr)
        return 130
    _log.info("performed", scenario=scenario.id, agent=agent.name, seed=order["seed"])
    return 0


def _end_with_runner(pid: int) -> None:
    """Make Linux end this trial when the runner, process *pid*, is killed; elsewhere the trial continues.

    The runner's successor makes the run again, and two systems of one run would disturb each other.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != pid:  # it was killed before that
            raise SystemExit(130)


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))
