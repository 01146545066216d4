"""The process in which openevolve runs: started by `evolve`, ``python -m opsassay.analysis.fault_search.evolving``.

It doubles as openevolve's evaluation file: its workers load this module by its path and call `evaluate`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from multiprocessing.connection import Client
from pathlib import Path
from typing import Any

from opsassay.core.logs import Log, configure

_log = Log(__name__)
SOCKET = "OPSASSAY_DISCOVERY_SOCKET"
ORDER = "OPSASSAY_DISCOVERY_ORDER"
START = "changes: []\n"


def evaluate(program_path: str) -> dict[str, Any]:
    """Return {"combined_score": ...} of the candidate in the file *program_path*, as the search's process scores it."""
    answer = ask_process(Path(program_path).read_text(encoding="utf-8"), os.environ[SOCKET])
    return {"combined_score": answer["combined_score"]}


def main() -> int:
    """Run openevolve with the JSON settings in the environment, population 1, one candidate per iteration; return 0."""
    from openevolve.api import run_evolution
    from openevolve.config import Config, LLMModelConfig

    order = json.loads(os.environ[ORDER])
    configure("evolve", "")
    _log.info("started", iterations=order["iterations"], seed=order["seed"], pid=os.getpid())
    config = Config(max_iterations=order["iterations"], random_seed=order["seed"], language="yaml", file_suffix=".yaml")
    config.diff_based_evolution = False
    config.llm.models = [
        LLMModelConfig(name=order["model"], api_base=order["base_url"], api_key="none", temperature=1.0, max_tokens=2000,
                       timeout=120, retries=2, retry_delay=1, weight=1.0)
    ]  # fmt: skip
    config.prompt.system_message = order["task"]
    config.database.random_seed = order["seed"]
    config.database.population_size = config.database.archive_size = config.database.num_islands = 1
    config.evaluator.parallel_evaluations, config.evaluator.cascade_evaluation = 1, False
    start = Path("start.yaml")
    start.write_text(START, encoding="utf-8")
    run_evolution(start, __file__, config, iterations=order["iterations"], output_dir="evolution", cleanup=False)
    _log.info("stopped")
    return 0


def ask_process(text: str | None, address: str) -> dict[str, Any]:
    """Send a candidate's *text*, None for the end, to the Unix socket *address*; return the reply."""
    with Client(address, "AF_UNIX") as connection:
        connection.send(text)
        answer: dict[str, Any] = {} if text is None else connection.recv()
        return answer


def end_with_the_search() -> None:
    """Kill this process group when standard input closes, which means that the search has ended."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=end_with_the_search, daemon=True).start()
    sys.exit(main())
