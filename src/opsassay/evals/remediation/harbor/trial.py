"""The trial in the container of a Harbor task: ``python -m …harbor.trial perform FOLDER``, ``… collect FOLDER REWARD``.

The operator is Harbor's agent in the container; the trial's own agent command only opens the tools and waits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from opsassay.core.errors import OperationError, OpsAssayError, UserError
from opsassay.core.logs import last_words
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.locks import folder_lock
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.environment import TrialEnvironment
from opsassay.evals.remediation.solve import TrialRun
from opsassay.evals.remediation.trial.contract import PromptArm, TrialAgent
from opsassay.evals.remediation.trial.perform import perform_in
from opsassay.evals.runner.commands import describe_tools
from opsassay.evals.runner.harbor import rewards_of, write_rewards
from opsassay.evals.runner.store import RunStore
from opsassay.telemetry.mask import Mask
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings
from opsassay.testbed.substrates.local.environment import LocalEnvironment

OPEN, PRIVATE = "open", "private"
"""Folders of the task: files for the agent, and files that it cannot read."""
SCENARIO, READY, ARRIVED = "scenario.yaml", "ready", "arrived"
_OVER, _REWARD, _LOCK, _LOG = "over", "reward.json", ".trial.lock", "trial.log"
LOOK_S = 0.1
MODULE = "opsassay.evals.remediation.harbor.trial"


class _Machinery(NamedTuple):
    """Time limits in seconds for the harness, in addition to those of the scenario."""

    start_s: float = 300.0
    """From the start of the container until the alerts have fired."""
    arrival_s: float = 60.0
    """From the begin of the agent to its first call."""
    setup_s: float = 3600.0
    """From the alerts to the agent's first call, in which the harness installs it."""
    end_s: float = 240.0
    """From the end of the agent to the grades."""


MACHINERY = _Machinery()


def trial_of(scenario: Scenario, folder: Path) -> TrialRun:
    """Return the planned trial of *scenario* in a Harbor container whose task files are in *folder*."""
    private, open_ = folder / PRIVATE, folder / OPEN
    words = ("sh", str(private / "open_tools.sh"), "{tools}", str(open_), str(private / _OVER))
    agent = TrialAgent(name="harbor", command=words, settings={"sealing": "off", "needs": ["mcp", "apis"]})
    job = TrialRun(scenario, agent, "baseline", probes=True, seed=0, cluster=ClusterSettings(), retries=0)
    timeout_s = MACHINERY.start_s + MACHINERY.setup_s + job.granted_s + MACHINERY.end_s
    return replace(job, timeout_s=timeout_s, performer=f"{MODULE}:perform")


class AwaitedEnvironment(LocalEnvironment):
    """An environment in which the agent's time begins with its first tool call, since its harness installs it first.

    *folder* has the files of the task.
    """

    def __init__(self, scenario: Scenario, seed: int, run_dir: Path, folder: Path) -> None:
        super().__init__(scenario, seed, run_dir, {"isolation": "plain"})
        self.folder = folder

    def start_agent(self) -> None:
        """Announce that the system is ready; wait for the agent's first tool call, or a notice that it has ended.

        Raises OperationError at the timeout.
        """
        (self.folder / OPEN / READY).touch()
        deadline = time.monotonic() + MACHINERY.setup_s
        while not (self.folder / OPEN / ARRIVED).stat().st_size and not (self.folder / PRIVATE / _OVER).exists():
            if time.monotonic() > deadline:
                raise OperationError(f"Nobody called a tool within {MACHINERY.setup_s:g} s; is there an agent?")
            time.sleep(LOOK_S)


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
) -> None:
    """Run the trial in this container, unsealed, once *agent* has called a tool; *cluster* is ignored.

    The other parameters are as for `perform` of an ordinary trial. Raises OpsAssayError.
    """
    del cluster
    live = AwaitedEnvironment(scenario, seed, run_dir, Path(agent.command[-1]).parents[1])
    perform_in(TrialEnvironment(live, scenario, run_dir, probes=probes, mask=mask), scenario, agent, arm, seed, run_dir)


def run_in_container(folder: Path) -> None:
    """Run the trial whose task files are in *folder* and write its rewards there; raises OpsAssayError."""
    private, open_ = folder / PRIVATE, folder / OPEN
    taken = UserError(f"A trial runs in {folder} already.")
    with folder_lock(private, name=_LOCK, wait=False, refusal=taken):
        describe_tools(open_, {"python": sys.executable, "work": str(open_)}, open_ / "tools.sock", sealed=False)
        trial = trial_of(load_yaml(private / SCENARIO, Scenario), folder)
        end = trial.run(RunStore(private / "store"), lambda: False, print)
        if end.run_dir is None:
            raise OperationError(f"The trial came to no result: {end.message}")
        metrics = trial.evaluate(end.run_dir)
        success = metrics["certificate"].value == 1.0
        write_rewards(private / _REWARD, rewards_of(metrics, success=success))
        print(end.message)


def collect(folder: Path, reward: Path) -> dict[str, float]:
    """End the agent's part of the trial in *folder*, wait for its grade, and write and return its rewards (to *reward*).

    Raises UserError when the trial has no result, so that the agent gets no reward.
    """
    private = folder / PRIVATE
    if not private.is_dir():
        raise UserError(f"{folder} holds no trial; write the task again with `opsassay incident export harbor`.")
    (private / _OVER).touch()
    with folder_lock(private, name=_LOCK):  # held by the trial as long as it lives
        graded, log = private / _REWARD, private / _LOG
    if not graded.exists():
        said = last_words(log.read_text(errors="replace")) if log.exists() else ""
        raise UserError(f"The trial in {folder} came to no result: {said or 'it did not begin.'}")
    rewards: dict[str, float] = json.loads(graded.read_text(encoding="utf-8"))
    write_rewards(reward, rewards)
    return rewards


def main(words: list[str]) -> int:
    """Run the subcommand *words*[0] (perform or collect) on its paths; return 0, or 2 after printing an error."""
    what, *places = words
    try:
        if what == "perform":
            run_in_container(Path(places[0]))
        else:
            for name, value in collect(*map(Path, places)).items():
                print(f"{name}: {value:g}")
    except OpsAssayError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
