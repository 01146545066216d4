"""Runs the command of an external agent: in a sandbox where the machine can, else as a plain child process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from opsassay.evals.runner.processes import kill_session
from opsassay.solvers.agents import mcp_bridge, tool_command
from opsassay.solvers.sandbox import Ended, Sandbox, python_path, sealing_refusal, signal_name
from opsassay.solvers.sandbox.tails import Tail

AGENT_INSIDE, VIEW_INSIDE, WORK_INSIDE, SOCKETS_INSIDE = "/opt/opsassay-agent", "/view", "/work", "/run/opsassay"
PROMPT, MCP, BRIDGE, TOOL = "prompt.md", "mcp.json", "opsassay_mcp.py", "opsassay_tool.py"

Sealing = Annotated[
    Literal["auto", "required", "off"], BeforeValidator(lambda given: "off" if given is False else given)
]
"""Whether external agents are sandboxed ("sealed"); YAML reads a bare `off` as False."""

_PATH_INSIDE = "/usr/local/bin:/usr/bin:/bin"
_PASSED_ON = ("PATH", "LD_LIBRARY_PATH")
_ENDING_S = 2.0


def refusal_to_seal(sealing: Sealing, *, remote: bool = False) -> str | None:
    """Return why an agent's command is not sandboxed here, None when it is; *remote*: its agent works elsewhere."""
    if remote:
        return "it hands its task on to an agent elsewhere"
    return "switched off" if sealing == "off" else sealing_refusal()


def places_of(view: Path, work: Path, files: Path, *, sealed: bool) -> dict[str, str]:
    """Return {placeholder: path} for a command: python, agent (*files*), view, work, prompt; in a sandbox if *sealed*."""
    agent, seen, home = (AGENT_INSIDE, VIEW_INSIDE, WORK_INSIDE) if sealed else (str(files), str(view), str(work))
    python = python_path() if sealed else sys.executable
    return {"python": python, "agent": agent, "view": seen, "work": home, "prompt": f"{home}/{PROMPT}"}


def describe_tools(work: Path, places: Mapping[str, str], path: Path, *, sealed: bool) -> str:
    """Write into *work* an MCP bridge to the socket *path*, a command for its tools, and mcp.json; return that path.

    *places* are the paths of `places_of`. If *sealed*, the socket and the returned path of mcp.json are those in the
    sandbox.
    """
    (work / BRIDGE).write_bytes(Path(mcp_bridge.__file__).read_bytes())
    (work / TOOL).write_bytes(Path(tool_command.__file__).read_bytes())
    reached = f"{SOCKETS_INSIDE}/{path.name}" if sealed else str(path)
    server = {"command": places["python"], "args": [f"{places['work']}/{BRIDGE}", reached]}
    (work / MCP).write_text(json.dumps({"mcpServers": {"opsassay": server}}, indent=1), encoding="utf-8")
    return f"{places['work']}/{MCP}"


def run_command(words: Sequence[str], seal: Sandbox, *, sealed: bool) -> Ended:
    """Run the command *words* in the sandbox *seal*; if not *sealed* as a plain process, limited in time and output only.

    Unsealed it has the rights of this user, and is killed with its session at the end. Raises as `Sandbox.run`.
    """
    if sealed:
        return replace(seal, environment={"PATH": _PATH_INSIDE, **seal.environment}).run(words)
    return _run_beside(words, seal)


def _run_beside(words: Sequence[str], seal: Sandbox) -> Ended:
    """Run *words* without a sandbox, in a session of its own that is killed at the end or at the limit of *seal*."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    limits, began = seal.limits, time.monotonic()
    try:
        process = subprocess.Popen(
            words, cwd=seal.work, env={**passed, **seal.environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        reason = f"the command cannot be started: {error.strerror}: {error.filename}"
        return Ended(127, None, time.monotonic() - began, reason, "", "", started=False)
    assert process.stdout is not None
    assert process.stderr is not None
    tails = [Tail(stream, limits.output_bytes) for stream in (process.stdout, process.stderr)]
    limit = None
    try:
        process.wait(limits.wall_clock_s)
    except subprocess.TimeoutExpired:
        limit = "wall_clock_s"
    finally:
        kill_session(process.pid)
        code = process.wait()
        stdout, stderr = (tail.text(_ENDING_S) for tail in tails)  # a process that left the session may hold them open
    name = signal_name(-code) if code < 0 else None
    reason = f"killed by {name}" if name else f"ended with exit code {code}"
    if limit:
        reason = f"killed at the limit of {limits.wall_clock_s:g} s of wall clock"
    return Ended(None if name else code, name, time.monotonic() - began, reason, stdout, stderr, limit)
