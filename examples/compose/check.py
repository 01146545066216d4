"""The transfer check of "Side Effects Are the Output" on two containers: a gentle and an aggressive repair of a wrong port.

    python examples/compose/check.py STORE [--repeats N]

Root on Linux with podman 4, podman-compose, runc, netavark, aardvark-dns and iptables (Debian:
``apt-get install podman podman-compose runc iptables``). It runs in namespaces of its own: mounts, networks, rules and
processes are gone with it, however it ends. Only the runs stay, in STORE.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import stack as containers
from image import fill
from pyroute2 import IPRoute

from opsassay.core.errors import OperationError, OpsAssayError, RefusedError
from opsassay.core.schema.json_lines import append_line
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.run_folder import ACTIONS, TIMELINE
from opsassay.core.schema.scenario import Scenario
from opsassay.core.schema.trajectory import SettingsReading
from opsassay.evals.remediation.environment import TrialEnvironment
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.evals.remediation.score import grade_trial, read_recording
from opsassay.evals.remediation.solve import TrialRun, run_trials
from opsassay.evals.remediation.trial.contract import PromptArm, TrialAgent
from opsassay.evals.remediation.trial.perform import perform_in
from opsassay.evals.runner.oracles import EVERY_ORACLE
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.operations.environment import LiveEnvironment
from opsassay.testbed.operations.tool_session import OperatorToolSession
from opsassay.testbed.recording.observer import ObserverProcess, recorded_by

HERE = Path(__file__).parent
INSIDE = "--inside"
GROUPS = Path("/sys/fs/cgroup")
HIDDEN = ("/run", "/var/lib")
"""Where podman and its networks write whatever their settings say."""
AARDVARK = ("/usr/lib/podman/netavark", "/usr/lib/podman/aardvark-dns")


def perform(scenario: Scenario, agent: TrialAgent, arm: PromptArm, *, probes: bool, seed: int, run_dir: Path) -> None:
    """Perform one trial, as the run matrix wants it; raises OpsAssayError."""
    live = ComposeEnvironment(scenario, seed, run_dir, {})
    perform_in(TrialEnvironment(live, scenario, run_dir, probes=probes), scenario, agent, arm, seed, run_dir)


class ComposeEnvironment(LiveEnvironment):
    """The two containers as a trial needs them."""

    stack = containers.Stack()

    @contextlib.contextmanager
    def deployed(self) -> Iterator[None]:
        """Run the two containers."""
        containers.UPSTREAM.write_text(containers.RIGHT, encoding="utf-8")
        try:
            self.stack.up()
            yield
        finally:
            self.stack.down()

    def observed(self, *, probes: bool) -> contextlib.AbstractContextManager[ObserverProcess]:
        """Have the observer, a process of its own, write the timeline."""
        committed, timeline = self.scenario.verification, self.run_dir / TIMELINE
        every_s = committed.probe_every_s if probes else None
        command = [sys.executable, containers.__file__, timeline, committed.cadence_s, every_s or 0]
        return recorded_by([str(word) for word in command], timeline)

    def health_problem(self) -> str | None:
        """Return the answer to a request unless it is 200."""
        return None if (status := self.stack.asked()) == 200 else f"the proxy answers {status}"

    @contextlib.contextmanager
    def operated(self) -> Iterator[OperatorToolSession]:
        """Provide the tools; there are no alerts."""
        yield containers.Tools(self.stack, partial(append_line, self.run_dir / ACTIONS))

    @contextlib.contextmanager
    def broken(self) -> Iterator[None]:
        """Make the wrong changes of the trigger; they go with the containers."""
        for change in self.scenario.trigger.operations:
            containers.operate(self.stack, change.verb, change.arguments)
        yield

    def read_settings(self) -> SettingsReading:
        """Return nothing: neither container has a setting that protects something."""
        return SettingsReading(time_ns=time.time_ns(), settings={})

    def require_alive(self) -> None:
        """Raise OperationError when podman does not answer."""
        self.stack.states()

    def verify(self) -> list[str]:
        """Return the containers that are still there."""
        return [f"container {name} is {state}" for name, state in self.stack.states().items()]


def unavailable() -> str | None:
    """Return why the check cannot run here, None when it can."""
    if os.geteuid() != 0:
        return "it needs root"
    missing = [
        name for name in ("podman", "podman-compose", "runc", "iptables", "unshare") if shutil.which(name) is None
    ]
    missing += [Path(path).name for path in AARDVARK if not Path(path).exists()]
    return f"{', '.join(missing)} not found (apt-get install podman podman-compose runc iptables)" if missing else None


def enter() -> None:
    """Give this process memory of its own where podman writes, and a loopback; its namespaces are already its own."""
    for folder in HIDDEN:
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    with IPRoute() as network:
        network.link("set", index=1, state="up")


def build() -> None:
    """Make the image from nothing; raises RefusedError when podman cannot."""
    containers.prepare()
    for name in ("compose.yaml", "Dockerfile"):
        shutil.copy(HERE / name, containers.PROJECT)
    fill(containers.PROJECT / "rootfs")
    try:
        containers.podman("build", "--tag", "localhost/opsassay-compose-check", ".")
    except OperationError as error:
        raise RefusedError(f"The image cannot be made here: {error}") from error
    shutil.rmtree(containers.PROJECT / "rootfs")


def clear() -> None:
    """Remove the empty control groups that podman leaves, which no namespace holds."""
    for folder in (GROUPS / "libpod_parent", *GROUPS.glob("*/libpod_parent")):
        for group, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):  # somebody else's, and in use
                Path(group).rmdir()


def tell(cell: TrialRun, folder: Path) -> bool:
    """Print what came of a trial; return whether that is what its file says."""
    verdict = grade_trial(folder, cell.scenario)
    recording = read_recording(folder)
    began = {phase.phase: phase.time_ns for phase in recording.phases}["agent_started"]
    window_ns = int((cell.scenario.verification.temporal_window_s or 0) * 1e9)
    sent = [p.reachable for t in recording.timeline.ticks for p in t.probes if 0 <= p.started_ns - began < window_ns]
    print(
        f"{cell.agent.name}, seed {cell.seed}: {sum(sent)} of {len(sent)} probes answered ({sum(sent) / len(sent):.0%})"
    )
    for judged in verdict.judgements:
        print(f"  {judged.predicate:12} {judged.status.value:15} {judged.reason}")
    failed = {judged.predicate for judged in verdict.judgements if judged.failed} - {"certificate"}
    return failed == set(cell.scenario.oracles[cell.agent.oracle or ""].fails)


def check(store: RunStore, repeats: int) -> bool:
    """Run both oracles as often as *repeats* and print what came of each; return whether all did what the file says."""
    agents = (TrialAgent(name=EVERY_ORACLE),)
    plan = TrialPlan(scenarios=(str(HERE / "scenario.yaml"),), agents=agents, repeats=repeats)
    cells = cells_of(plan)
    path = (str(HERE), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path))  # where each trial finds this file
    run_trials(store, cells, performer="check:perform", progress=ProgressLines(lambda line: print(line, flush=True)))
    folders = [(cell, store.finished(cell.cell.hash)) for cell in cells]
    right = [folder is not None and tell(cell, folder) for cell, folder in folders]
    return all(right)


def main() -> int:
    """Run the check; 0 when every oracle did what the scenario says, 1 when not, 2 when there is no result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path, help="folder of the runs; one that is given again is gone on with")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each oracle")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if reason := unavailable():
        return refused(f"The check cannot run here: {reason}.")
    if any(given.store.resolve().is_relative_to(folder) for folder in HIDDEN):
        return refused(f"{given.store} would be lost: the check has memory of its own there. Choose another folder.")
    if not given.inside:
        namespaces = ["--mount", "--net", "--pid", "--ipc", "--fork", "--kill-child=KILL", "--mount-proc"]
        again = [sys.executable, __file__, str(given.store.resolve()), "--repeats", str(given.repeats), INSIDE]
        os.execvp("unshare", ["unshare", *namespaces, *again])  # noqa: S606 - what is killed is then the whole check
    try:
        enter()
        build()
        return 0 if check(RunStore(given.store), given.repeats) else 1
    except OpsAssayError as error:
        return refused(str(error))
    finally:
        clear()


def refused(reason: str) -> int:
    """Say why the check came to no result; return its exit code."""
    print(f"Error: {reason}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
