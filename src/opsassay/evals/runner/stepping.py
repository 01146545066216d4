"""One run that this process drives call by call, for harnesses that run the agent themselves.

The domain's own job makes the run, in a thread, in a store. Its agent is a command that reports the socket of its tools
and waits; calls go to these tools by MCP.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Protocol, Self, TextIO, runtime_checkable

from opsassay.core.errors import OperationError, OpsAssayError, UserError
from opsassay.core.schema.run import Metric
from opsassay.core.schema.tool_session import ToolSpec
from opsassay.evals.runner import waiting_agent
from opsassay.evals.runner.domain import domain_named, outcome_of
from opsassay.evals.runner.run import PlannedRun, RunEnd, score
from opsassay.evals.runner.store import RunStore
from opsassay.solvers.agents.tool_command import ask_server, open_tools

LOOK_S = 0.1
NAME, SECONDS = "stepped", 3600.0
AGENT = """\
agent: {name}
command: ["{{python}}", "{{agent}}/waiting_agent.py", "{socket}", "{{tools}}", "{{prompt}}", "{{work}}"]
files: [waiting_agent.py]
needs: [mcp]
limits: {{seconds: {seconds}}}
"""


class RunOverError(OperationError):
    """The run ended before its agent did: its time was up, or the runner failed."""


@dataclass(frozen=True)
class Graded:
    """The result of a run: its *metrics*, whether it *succeeded*, or the reason for *no_result*."""

    metrics: Mapping[str, Metric]
    succeeded: bool | None
    no_result: str = ""


@runtime_checkable
class _Gated(Protocol):
    """A run that, once prepared, waits until the file *gate* exists."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    gate: Path | None
    retries: int


class SteppedRun:
    """The single run that *part* of a plan of *domain* names; relative paths in it start at *folder*.

    It runs during the with block; `finish` ends it and returns its grades. `prepare`, before the block, deploys and
    warms up a live system, which is then broken when the block begins. Raises UserError for a part with another number
    of runs, and as the domain.
    """

    def __init__(self, domain: str, part: Mapping[str, Any], folder: Path = Path(), store: Path | None = None) -> None:
        self._made = TemporaryDirectory(prefix="opsassay-", ignore_cleanup_errors=True)
        made = Path(self._made.name)
        self._place = made / "waiting.sock"
        (made / "waiting_agent.py").write_bytes(Path(waiting_agent.__file__).read_bytes())
        (made / "agent.yaml").write_text(AGENT.format(name=NAME, socket=self._place, seconds=SECONDS), encoding="utf-8")
        self.domain, self._store = domain_named(domain), RunStore(store or made / "store")
        settings = {"sealing": "off", **part.get("settings", {})}
        whole = {**part, "agents": [str(made / "agent.yaml")], "settings": settings}
        try:
            jobs = self.domain.jobs(whole, folder.absolute(), f"a task of {domain}")
            if len(jobs) != 1:
                raise UserError(
                    f"{dict(part)} names {len(jobs)} runs of {domain}; name one task, one seed and one arm."
                )
        except OpsAssayError:
            self._made.cleanup()
            raise
        (job,) = jobs
        self._gate = made / "gate"
        # No agent works on a second attempt, and it would wait for a system that is prepared ahead.
        self.job = replace(job, gate=self._gate, retries=0) if isinstance(job, _Gated) else job
        self._listener = socket.socket(socket.AF_UNIX)
        self._given_up, self._left = threading.Event(), threading.Event()
        self._end: RunEnd | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_job, args=(self.job,), name="opsassay-stepped", daemon=True)
        self._agent: socket.socket | None = None
        self._tools: TextIO
        self.prompt, self.specs = "", tuple[ToolSpec, ...]()

    def prepare(self) -> Self:
        """Start the run up to the fault: a live system is deployed, healthy and warm."""
        self._listener.bind(str(self._place))
        self._listener.listen(1)
        self._listener.settimeout(LOOK_S)
        self._thread.start()
        return self

    @property
    def goes_on(self) -> bool:
        """Whether the run has started and not yet ended."""
        return self._thread.is_alive()

    def __enter__(self) -> Self:
        """Begin the run, if not prepared, and wait until its agent has started; raises RunOverError."""
        self._gate.touch()
        if not self._thread.ident:
            self.prepare()
        with self._listener:
            try:
                while self._agent is None:
                    with suppress(TimeoutError):
                        self._agent, _ = self._listener.accept()
                    if self._agent is None and not self._thread.is_alive():
                        raise RunOverError(self._explain_end())
                opening = json.loads(self._agent.makefile(encoding="utf-8").readline())
                self.prompt = opening["prompt"].replace(opening["folder"], "FOLDER")
                self._tools = open_tools(opening["tools"], NAME)
                listed = ask_server(self._tools, "tools/list", {})["tools"]
            except BaseException:
                self.close()
                raise
        self.specs = tuple(
            ToolSpec(name=one["name"], description=one.get("description") or "", parameters=one["inputSchema"])
            for one in listed
        )
        return self

    def __exit__(self, *_: object) -> None:
        """End the run, if it is in progress, and remove its files."""
        self.close()

    def call(self, tool: str, arguments: Mapping[str, Any]) -> tuple[str, bool]:
        """Call *tool*; return its output and whether it succeeded. Raises RunOverError after the agent's time."""
        try:
            found = ask_server(self._tools, "tools/call", {"name": tool, "arguments": dict(arguments)})
        except (OSError, ValueError, SystemExit) as error:
            raise RunOverError(f"The run has ended: {error}.") from error
        return "\n".join(part.get("text", "") for part in found["content"]), not found.get("isError")

    def finish(self) -> Graded:
        """End the agent's part, wait until the run has settled, grade it and return the grades."""
        self._close_agent()
        self._thread.join()
        if self._end is None or self._end.run is None or self._end.run_dir is None:
            return Graded({}, None, self._explain_end())
        metrics = score(self._end)
        return Graded(metrics, outcome_of(self.domain, self._end.run, metrics))

    def close(self) -> None:
        """Abort the run, if it is in progress, wait for its end and remove its files."""
        self._given_up.set()
        self._close_agent()
        self._listener.close()
        while self._thread.is_alive():
            time.sleep(LOOK_S)
        self._made.cleanup()

    def _run_job(self, job: PlannedRun) -> None:
        """Make the run *job* in this thread; store how it ended, or its error."""
        try:
            self._end = job.run(self._store, self._given_up.is_set, lambda _: None)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - what came of the run; the second is giving it up
            self._error = error

    def _close_agent(self) -> None:
        """Close the connection to the waiting agent command, if it is open."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None

    def _explain_end(self) -> str:
        """Return why the run has no result: its error, its message, or that it was aborted."""
        if self._error is not None:
            return str(self._error)
        return self._end.message or "it came to no result" if self._end is not None else "it was given up"
