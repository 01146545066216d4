"""Running a system again with one step's input edited: anything that can be started with a base URL and a key."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from opsassay.agents.models.scripted import running_upstream
from opsassay.errors import UserError
from opsassay.model.trajectory import TraceStep
from opsassay.proxy.exchanges import Exchange, read_session
from opsassay.proxy.policies import Intervene, StepIntervention
from opsassay.proxy.running import running_proxy
from opsassay.proxy.server import ProxySettings
from opsassay.proxy.tokens import issue_token
from opsassay.proxy.trace import trace_of

Start = Callable[[str, str], None]
"""Runs a system to its end, given the proxy's URL and the key to use; its calls are refused when enough was seen."""


class Rerun(Protocol):
    """Something that can be run again."""

    def observe(self, intervention: StepIntervention) -> Sequence[TraceStep]:
        """Return the steps of a re-run under *intervention*, as many as were allowed."""
        ...


@dataclass(frozen=True)
class ProxyRerun:
    """Runs a system again behind the proxy; steps before the edited one come from the *recorded* session.

    *upstream* is the URL of the model, or ``scripted:FILE``, which finds *environment* set when it is loaded.
    """

    start: Start
    recorded: Sequence[Exchange]
    upstream: str
    key: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)

    def observe(self, intervention: StepIntervention) -> Sequence[TraceStep]:
        """Return the steps of one re-run; raises what *start* raises."""
        with tempfile.TemporaryDirectory(prefix="opsassay-rerun-") as folder:
            directory = Path(folder)
            token = issue_token(directory, "rerun")
            with _set(self.environment), running_upstream(self.upstream) as model:
                policy = partial(Intervene, self.recorded, intervention)
                with running_proxy(ProxySettings(model, directory, key=self.key, policy=policy)) as url:
                    self.start(url, token)
            record = directory / "sessions" / "rerun"
            return trace_of(read_session(record), "rerun").steps if record.exists() else ()


@contextmanager
def _set(environment: Mapping[str, str]) -> Iterator[None]:
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
    """Return a start of the command *arguments*, which finds the proxy where SDKs look: in the environment.

    It raises UserError when the command cannot be started; one that fails or takes too long has been observed until then.
    """

    def start(url: str, token: str) -> None:
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
