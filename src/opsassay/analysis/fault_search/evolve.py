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
from functools import partial
from multiprocessing.connection import Listener
from pathlib import Path
from typing import Any, NamedTuple

from opsassay.analysis.fault_search.attempts import Attempt
from opsassay.analysis.fault_search.evolving import ORDER, SOCKET, ask_process
from opsassay.analysis.fault_search.search import FaultCandidate, families_of, mutated
from opsassay.core.errors import ConfigError, OperationError, RefusedError
from opsassay.core.extras import install_hint
from opsassay.core.logs import readable
from opsassay.solvers.agents.models.base import Message, Reply
from opsassay.solvers.agents.models.named import model_named, require_endpoint
from opsassay.solvers.agents.models.server import running_server
from opsassay.testbed.operations.search import Block, Composition, parse

MUTATOR = "seeded-mutator"
TEMPERATURE = 1.0
LAST_TRIED = 5
"""Of so many of the last candidates whoever makes the next one hears why they scored what they did."""


class TriedText(NamedTuple):
    """What became of one candidate: its *text*, what it scored, and why."""

    text: str
    fitness: float
    reason: str


def evolve(
    attempt: Callable[[int, FaultCandidate], Attempt],
    library: Sequence[Block],
    task: str,
    *,
    iterations: int,
    seed: int,
    model: str | None,
) -> list[Attempt]:
    """Let openevolve make *iterations* candidates (fault compositions), each tried by *attempt*; return the attempts.

    *model* is served at OPENAI_BASE_URL and receives the results of the last candidates; None takes a random mutator
    with *seed* instead. Raises as `require_evolution`, and OperationError when openevolve fails.
    *library* are the building blocks of candidates, *task* is the prompt's task text.
    """
    require_evolution(model)
    found, tried_texts = list[Attempt](), list[TriedText]()

    def try_text(text: str) -> dict[str, Any]:
        """Try the candidate in *text* and note it; a text that cannot be read scores 0."""
        try:
            composition = parse(text)
        except ConfigError as error:
            tried_texts.append(TriedText(text, 0.0, str(error)))
            return {"combined_score": 0.0}
        tried = attempt(len(found) + 1, FaultCandidate(composition, families_of(composition, library)))
        found.append(tried)
        tried_texts.append(TriedText(composition.text(), tried.fitness, f"{tried.result}: {tried.reason}"))
        return {"combined_score": tried.fitness}

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="opsassay-evolve-")))
        respond = mutator(library, seed)
        if model is not None:
            respond = partial(model_named(model).complete, temperature=TEMPERATURE)
        base_url = stack.enter_context(running_server(informed(respond, tried_texts))) + "/v1"
        order = {"iterations": iterations, "seed": seed, "model": model or MUTATOR, "base_url": base_url, "task": task}
        _serve_evaluator(folder, order, try_text)
    return found


def informed(respond: Callable[..., Reply], tried_texts: Sequence[TriedText]) -> Callable[..., Reply]:
    """Return *respond* with the results of the last tried candidates, the end of *tried_texts*, put into its prompt."""

    def answer_informed(messages: Sequence[Message], _tools: object = ()) -> Reply:
        """Answer with the scores of the last candidates put before the question."""
        lines = [f"```yaml\n{one.text}```\nscored {one.fitness:g}: {one.reason}\n" for one in tried_texts[-LAST_TRIED:]]
        if not lines:
            return respond(messages)
        last = messages[-1]
        about = "\n".join(("# What became of the last candidates, the latest at the end", *lines))
        return respond([*messages[:-1], last.model_copy(update={"content": f"{about}\n{last.content}"})])

    return answer_informed


def require_evolution(model: str | None) -> None:
    """Raise RefusedError when openevolve is not installed, UserError when the endpoint of *model* is unreachable."""
    if importlib.util.find_spec("openevolve") is None:
        raise RefusedError(f"Evolution needs openevolve, which is not installed; {install_hint('discover')}.")
    if model is not None:
        require_endpoint(model)


def mutator(library: Sequence[Block], seed: int) -> Callable[..., Reply]:
    """Return a function that replies like a model: with a mutation, by blocks of *library*, of the prompt's program."""
    chance = random.Random(seed)  # noqa: S311 - a repeatable search, not a secret

    def respond(messages: Sequence[Message], _tools: object = ()) -> Reply:
        """Answer with a random change of the program that the prompt shows."""
        shown = re.findall(r"# Current Program\n```yaml\n(.*?)```", messages[-1].content, re.DOTALL)
        try:
            parent = parse(shown[-1]) if shown else Composition()
        except ConfigError:
            parent = Composition()
        return Reply(text=f"```yaml\n{mutated(parent, library, chance).text()}```")

    return respond


def _serve_evaluator(folder: Path, order: dict[str, Any], try_text: Callable[[str], dict[str, Any]]) -> None:
    """Run openevolve with settings *order* in *folder*; score its candidates by *try_text*; raises OperationError."""
    address, log = folder / "attempts.sock", folder / "openevolve.log"
    environment = {**os.environ, SOCKET: str(address), ORDER: json.dumps(order)}
    with Listener(str(address), "AF_UNIX") as listener, log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "opsassay.analysis.fault_search.evolving"],
            cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
        )  # fmt: skip

        def tell_the_end() -> None:
            """Wake the server when the process has ended."""
            process.wait()
            ask_process(None, str(address))

        ending = threading.Thread(target=tell_the_end, daemon=True)
        ending.start()
        try:
            while _score_candidate(listener, try_text):
                pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            ending.join()
            assert process.stdin is not None
            process.stdin.close()
    if process.returncode:
        tail = "\n".join(readable(log.read_text(errors="replace"))[-15:])
        raise OperationError("openevolve ended before its time.", tail)


def _score_candidate(listener: Listener, try_text: Callable[[str], dict[str, Any]]) -> bool:
    """Answer the next candidate's text with its scores by *try_text*; return False when openevolve has ended instead."""
    with listener.accept() as connection:
        text: str | None = connection.recv()
        if text is not None:
            connection.send(try_text(text))
    return text is not None
