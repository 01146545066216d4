"""Evolution of candidates by openevolve: a model rewrites the best ones, or a seeded mutator behind the same interface.

openevolve runs in a process of its own. A candidate is a YAML text; its evaluator hands it to this process, which tries it
on the running system, so that all attempts are made in one place, one after the other.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

from opsassay.agents.models.base import Message, Reply
from opsassay.agents.models.named import require_endpoint
from opsassay.agents.models.server import running_server
from opsassay.discovery.evolving import ORDER, SOCKET, ask
from opsassay.discovery.laboratory import Attempt
from opsassay.discovery.search import FaultCandidate, families_of, mutated
from opsassay.errors import ConfigError, OperationError, RefusedError
from opsassay.logs import readable
from opsassay.testbed.operations.composition import Block, Composition, parse

MUTATOR = "seeded-mutator"


def evolve(
    attempt: Callable[[int, FaultCandidate], Attempt],
    library: Sequence[Block],
    task: str,
    *,
    iterations: int,
    seed: int,
    model: str | None,
) -> list[Attempt]:
    """Let openevolve make *iterations* candidates from a healthy start and have each tried by *attempt*.

    *model* is one of the endpoint in OPENAI_BASE_URL; None is a mutator with *seed*, which needs no model. Raises what
    `require_evolution` raises, and OperationError when openevolve fails.
    """
    require_evolution(model)
    found = list[Attempt]()

    def try_text(text: str) -> dict[str, Any]:
        try:
            composition = parse(text)
        except ConfigError as error:
            return {"combined_score": 0.0, "reason": str(error)}
        tried = attempt(len(found) + 1, FaultCandidate(composition, families_of(composition, library)))
        found.append(tried)
        return {"combined_score": tried.fitness, "reason": tried.reason}

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opsassay-evolve-")))
        base_url = os.environ.get("OPENAI_BASE_URL") if model else None
        if model is None:
            base_url = stack.enter_context(running_server(mutator(library, seed))) + "/v1"
        order = {"iterations": iterations, "seed": seed, "model": model or MUTATOR, "base_url": base_url, "task": task}
        _serve(folder, order, try_text)
    return found


def require_evolution(model: str | None) -> None:
    """Raise RefusedError when openevolve is not installed, UserError when nobody listens where *model* should be."""
    if importlib.util.find_spec("openevolve") is None:
        raise RefusedError(
            "Evolution needs openevolve, which is not installed; run `pip install 'opsassay[discover]'`."
        )
    if model is not None:
        require_endpoint(model)


def mutator(library: Sequence[Block], seed: int) -> Callable[..., Reply]:
    """Return what answers like a model: the current program of the prompt, mutated by a generator with *seed*."""
    chance = random.Random(seed)  # noqa: S311 - a repeatable search, not a secret

    def respond(messages: Sequence[Message], _tools: object = ()) -> Reply:
        shown = re.findall(r"# Current Program\n```yaml\n(.*?)```", messages[-1].content, re.DOTALL)
        try:
            parent = parse(shown[-1]) if shown else Composition()
        except ConfigError:
            parent = Composition()
        return Reply(text=f"```yaml\n{mutated(parent, library, chance).text()}```")

    return respond


def _serve(folder: Path, order: dict[str, Any], try_text: Callable[[str], dict[str, Any]]) -> None:
    """Run openevolve in *folder* and answer what its evaluator asks until it ends."""
    address, log = folder / "attempts.sock", folder / "openevolve.log"
    environment = {**os.environ, SOCKET: str(address), ORDER: json.dumps(order)}
    with Listener(str(address), "AF_UNIX") as listener, log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "opsassay.discovery.evolving"],
            cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip

        def tell_the_end() -> None:
            process.wait()
            ask(None, str(address))

        ending = threading.Thread(target=tell_the_end, daemon=True)
        ending.start()
        try:
            while (text := _received(connection := listener.accept())) is not None:
                connection.send(try_text(text))
                connection.close()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            ending.join()
    if process.returncode:
        tail = "\n".join(readable(log.read_text(errors="replace"))[-15:])
        raise OperationError("openevolve ended before its time.", tail)


def _received(connection: Connection) -> str | None:
    """Return the candidate that is sent, None when openevolve has ended."""
    received: str | None = connection.recv()
    return received
