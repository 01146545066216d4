"""Runs a system again with one step's input edited; the system is anything that starts with a base URL and a key."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from opsassay.core.errors import UserError
from opsassay.core.schema.trajectory import TraceStep
from opsassay.solvers.agents.models.scripted import running_upstream
from opsassay.solvers.proxy.exchanges import Exchange, read_session
from opsassay.solvers.proxy.matching import SIMILAR, Volatile
from opsassay.solvers.proxy.policies import Continue, Intervene, Policy, StepIntervention
from opsassay.solvers.proxy.running import running_proxy
from opsassay.solvers.proxy.server import ProxySettings
from opsassay.solvers.proxy.tokens import issue_token
from opsassay.solvers.proxy.trace import trace_of

Start = Callable[[str, str], None]
"""Runs a system to its end, given the proxy's URL and key; its calls are refused once enough was observed."""


@dataclass(frozen=True)
class ReplayedRun:
    """The *steps* of a re-run, and how its requests differ from the recorded ones at the same position.

    *outage*: the upstream's error from the edited step on, if one prevented the observation.
    """

    steps: tuple[TraceStep, ...] = ()
    differences: tuple[str, ...] = ()
    outage: str | None = None


class Rerun(Protocol):
    """A system that can be run again behind a proxy."""

    def observe(self, intervention: StepIntervention) -> ReplayedRun:
        """Run the system again with one step's input edited by *intervention*; return the steps up to its limit."""
        ...

    def after(self, steps: int) -> ReplayedRun:
        """Run the system again: the first *steps* model calls are replayed, later ones are live; return all steps."""
        ...


_ENVIRONMENT = threading.Lock()
"""Only one re-run at a time may set environment variables, which belong to the whole process."""


@dataclass(frozen=True)
class ProxyRerun:
    """Runs a system again behind the proxy; steps before the edited one come from the *recorded* session.

    *upstream* is the URL of the model, or ``scripted:FILE``; *environment* is set while it runs. A request matches the
    recorded one when their similarity is at least *similar*, *volatile* parts ignored.
    """

    start: Start
    recorded: Sequence[Exchange]
    upstream: str
    key: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    volatile: Volatile = field(default_factory=Volatile)
    similar: float = SIMILAR

    def observe(self, intervention: StepIntervention) -> ReplayedRun:
        """Run the system again with one step's input edited by *intervention*; raises as *start*."""
        policy = partial(Intervene, self.recorded, intervention, self.volatile, self.similar)
        return self._run_policy(policy, intervention.step - 1)

    def after(self, steps: int) -> ReplayedRun:
        """Run the system again: the first *steps* model calls are replayed, later ones live; raises as *start*."""
        return self._run_policy(partial(Continue, self.recorded, steps, self.volatile, self.similar), steps)

    def _run_policy(self, policy: Callable[[], Policy], repeated: int) -> ReplayedRun:
        """Run the system behind a proxy with *policy*; errors of the first *repeated* calls do not count as an outage."""
        with tempfile.TemporaryDirectory(prefix="opsassay-rerun-") as folder, _ENVIRONMENT:
            directory = Path(folder)
            token = issue_token(directory, "rerun")
            with (
                _set_environment(self.environment),
                running_upstream(self.upstream) as model,
                running_proxy(ProxySettings(model, directory, key=self.key, policy=policy)) as url,
            ):
                self.start(url, token)
            record = directory / "sessions" / "rerun"
            if not record.exists():
                return ReplayedRun()
            exchanges = read_session(record)
            calls = [exchange for exchange in exchanges if exchange.api]
            differences = tuple(said for call in calls for said in call.differences)
            return ReplayedRun(trace_of(exchanges, "rerun").steps, differences, _upstream_error(calls[repeated:]))


def _upstream_error(live: Sequence[Exchange]) -> str | None:
    """Return the upstream's first error (HTTP 429 or 5xx) in *live*, its recorded calls; None without one."""
    failed = (call for call in live if call.status is not None and (call.status == 429 or call.status >= 500))
    return next((f"HTTP {call.status} {call.error or call.reason}".strip() for call in failed), None)


@contextmanager
def _set_environment(environment: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables during the block, and restore the old values after it."""
    before = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def command(arguments: Sequence[str], timeout_s: float = 120.0) -> Start:
    """Return a `Start` that runs the command *arguments* with the proxy's URL and key in its environment.

    It raises UserError when the command cannot be started. One that fails, or is killed after *timeout_s*, counts as
    observed until then.
    """

    def start(url: str, token: str) -> None:
        """Run the command with the proxy's address and token, until it ends or *timeout_s* is over."""
        own = {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": token,
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": token,
        }
        silent = subprocess.DEVNULL
        try:
            subprocess.run(
                arguments, env={**os.environ, **own}, stdout=silent, stderr=silent, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return
        except OSError as error:
            raise UserError(f"The command {arguments[0]!r} of --rerun cannot be started: {error.strerror}.") from error

    return start
