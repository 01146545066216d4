"""Running a system again with one step's input edited: anything that can be started with a base URL and a key."""

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
"""Runs a system to its end, given the proxy's URL and the key to use; its calls are refused when enough was seen."""


@dataclass(frozen=True)
class ReplayedRun:
    """The *steps* of a re-run, and how its requests differ from the recorded ones that they stand for.

    *outage* says what the upstream answered instead, from the edited step on, where it could not be observed for that.
    """

    steps: tuple[TraceStep, ...] = ()
    differences: tuple[str, ...] = ()
    outage: str | None = None


class Rerun(Protocol):
    """Something that can be run again."""

    def observe(self, intervention: StepIntervention) -> ReplayedRun:
        """Run the system again with one step's input edited by *intervention*; return the steps it allows."""
        ...

    def after(self, steps: int) -> ReplayedRun:
        """Run the system again: the first *steps* model calls are replayed, later ones are live."""
        ...


_ENVIRONMENT = threading.Lock()
"""The environment is the process's own: one re-run at a time sets it, however many questions are asked side by side."""


@dataclass(frozen=True)
class ProxyRerun:
    """Runs a system again behind the proxy; steps before the edited one come from the *recorded* session.

    *upstream* is the URL of the model, or ``scripted:FILE``, which finds *environment* set when it is loaded. A request is
    the recorded one when it is *similar* to it, *volatile* parts aside.
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
        """Run the system behind a proxy with *policy*; errors of the first *repeated* calls are no outage."""
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
    """Return the upstream's first error (HTTP 429 or 5xx) among *live* calls, None without one."""
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
    """Return a function that runs the command *arguments* with the proxy's URL and key in its environment.

    It raises UserError when the command cannot be started; one that fails or exceeds *timeout_s* has been observed
    until then.
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
