"""How the traces of a benchmark can be run again: a YAML file beside them, which the dynamic technique reads.

::

    traces:
      planner-workers-0-1:
        session: sessions/planner-workers-0-1     # recorded by the proxy; relative to this file
        command: python3 planner_workers.py 0     # finds the proxy in OPENAI_BASE_URL or ANTHROPIC_BASE_URL
        upstream: scripted:team_model.py          # or a URL
        environment: {PLANTED: "Worker:lamps"}    # of the command and of a scripted upstream
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

from pydantic import Field

from opsassay.analysis.blame.rerun import ProxyRerun, Rerun, command
from opsassay.analysis.blame.settings import BlameSettings
from opsassay.core.schema.base import Written
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.trajectory import LabelledTrace
from opsassay.solvers.proxy.exchanges import read_session


class Again(Written):
    """How one trace is run again."""

    session: str = Field(description="the recorded session, relative to the file")
    command: str = Field(min_length=1, description="what runs the system")
    upstream: str = Field(min_length=1, description="the model that it asks: a URL, or scripted:FILE")
    environment: dict[str, str] = Field(default_factory=dict, description="set for the command and a scripted upstream")


class Reruns(Written):
    """The whole file: traces by the name of their file."""

    traces: dict[str, Again]


def reruns_in(path: Path, settings: BlameSettings) -> Callable[[LabelledTrace], Rerun | None]:
    """Return how *path* runs a labelled trace again, None for one that it does not name; raises ConfigError."""
    known = load_yaml(path, Reruns).traces

    def rerun_of(case: LabelledTrace) -> Rerun | None:
        again = known.get(case.id)
        return None if again is None else prepared(again, path.parent, settings)

    return rerun_of


def prepared(again: Again, folder: Path, settings: BlameSettings) -> Rerun:
    """Return the re-run that *again* describes; raises UserError, DatapackError for a session that cannot be read."""
    return ProxyRerun(
        command(shlex.split(again.command)),
        read_session(folder / again.session),
        again.upstream,
        key=os.environ.get("OPSASSAY_UPSTREAM_KEY") or None,
        environment=again.environment,
        volatile=settings.volatile,
        similar=settings.similar,
    )
