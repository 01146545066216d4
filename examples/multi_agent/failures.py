"""The planted failures: which mistake in which system, and who is to blame for it at which step.

``python3 failures.py DIR`` records them all into DIR as traces/ and labels/, for
``python -m benchmarks.papers.blame bench DIR``, with reruns.yaml and sessions/ for its dynamic technique.
A label is worked out from the order of the system's steps, not read from the trace. Where a component has the duty to
check what went wrong and lets it pass, it is to blame; where it does its duty, the run does not fail.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orchestrator
import planner_workers
import single_agent
import yaml
from team import ORDERS, Model, items_of, total_of
from team_model import Team

from opsassay.core.schema.trajectory import Attribution, Trace
from opsassay.solvers.agents.models.server import running_server
from opsassay.solvers.proxy.exchanges import Exchange, read_session
from opsassay.solvers.proxy.running import running_proxy
from opsassay.solvers.proxy.server import ProxySettings
from opsassay.solvers.proxy.tokens import issue_token
from opsassay.solvers.proxy.trace import trace_of
from opsassay.telemetry.tree import write_noun

SYSTEMS: dict[str, Callable[[Model, str], str]] = {
    "planner-workers": planner_workers.run,
    "orchestrator": orchestrator.run,
    "single-agent": single_agent.run,
}


@dataclass(frozen=True)
class Planted:
    """Mistakes in *planted* of *system* on an order, an alarming note for *decoy*; *agent* is to blame at *step*."""

    name: str
    system: str
    order: str
    planted: tuple[tuple[str, str], ...]
    decoy: str
    agent: str
    step: int
    recoverable: bool

    def model(self) -> Team:
        """Return the model with the mistakes in it."""
        return Team(self.planted, self.decoy)

    def again(self) -> dict[str, Any]:
        """Return how to run it again, for reruns.yaml."""
        here = Path(__file__).parent.resolve()
        program = here / f"{self.system.replace('-', '_')}.py"
        planted = ",".join(f"{role}:{item}" for role, item in self.planted)
        return {
            "session": f"sessions/{self.name}",
            "command": shlex.join([sys.executable, str(program), str(ORDERS.index(self.order))]),
            "upstream": f"scripted:{here / 'team_model.py'}",
            "environment": {"PLANTED": planted, "DECOY": self.decoy},
        }

    def start(self, url: str, key: str) -> None:
        """Run the system against *url*; an answer that is refused ends it."""
        try:
            SYSTEMS[self.system](Model(f"{url}/v1", key), self.order)
        except OSError:
            return


def failures() -> Iterator[Planted]:
    """Yield every planted failure."""
    for number, order in enumerate(ORDERS):
        items = [item for _, item in items_of(order)]
        first, second, last = items
        n = len(items)
        lookups = {item: 4 * k + 2 for k, item in enumerate(items)}  # O Lookup O Calculator, per item
        cases: list[tuple[str, tuple[tuple[str, str], ...], str, int, bool]] = [
            ("planner-workers", (("Planner", second),), "Planner", 1, False),
            ("planner-workers", (("Worker", first), ("Verifier", "")), "Verifier", n + 2, True),
            ("planner-workers", (("Worker", last), ("Verifier", "")), "Verifier", n + 2, True),
            ("planner-workers", (("Writer", ""),), "Writer", n + 3, False),
            ("orchestrator", (("Lookup", second),), "Lookup", lookups[second], False),
            ("orchestrator", (("Orchestrator", last),), "Orchestrator", lookups[last] + 1, False),
            ("orchestrator", (("Calculator", first), ("Checker", "")), "Checker", 4 * n + 2, True),
            ("orchestrator", (("Orchestrator", ""),), "Orchestrator", 4 * n + 3, False),
            ("single-agent", (("Planner", first), ("Reviewer", "")), "Reviewer", 0, True),
            ("single-agent", (("Operator", last), ("Reviewer", "")), "Reviewer", 0, True),
            ("single-agent", (("Reporter", ""),), "Reporter", 0, False),
        ]
        for k, (system, planted, agent, at, recoverable) in enumerate(cases):
            decoy = items[(number + k) % n] if (number + k) % 2 else ""
            calls = n + bool(decoy) + 1  # a misspelt call is made again; the last one says done
            step = at or 1 + calls + (1 if agent == "Reviewer" else 2)
            yield Planted(f"{system}-{number}-{k}", system, order, planted, decoy, agent, step, recoverable)


def record(failure: Planted, upstream: str, keep: Path | None = None) -> tuple[Trace, list[Exchange]]:
    """Return the trace of one failed run with its reference answer, and what was recorded; the session goes to *keep*."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        token = issue_token(directory, "run")
        with running_proxy(ProxySettings(upstream, directory)) as url:
            failure.start(url, token)
        exchanges = read_session(directory / "sessions" / "run")
        if keep is not None:
            shutil.copytree(directory / "sessions" / "run", keep)
    trace = trace_of(exchanges, failure.name)
    known = {"system_name": failure.system, "outcome": "failed", "reference_answer": str(total_of(failure.order))}
    return trace.model_copy(update=known), exchanges


def main(folder: Path) -> None:
    """Record every failure into *folder*."""
    again = {failure.name: failure.again() for failure in failures()}
    for kind in ("traces", "labels"):
        (folder / kind).mkdir(parents=True, exist_ok=True)
    for failure in failures():
        with running_server(failure.model()) as upstream:
            trace, _ = record(failure, upstream, folder / "sessions" / failure.name)
        write_noun(folder / "traces" / f"{failure.name}.json", trace)
        label = Attribution(agent_name=failure.agent, step_id=failure.step, reason=f"planted: {failure.planted}")
        write_noun(folder / "labels" / f"{failure.name}.json", label)
    (folder / "reruns.yaml").write_text(yaml.safe_dump({"traces": again}, sort_keys=False), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
