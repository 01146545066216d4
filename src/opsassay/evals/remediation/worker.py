"""One trial in a process of its own: ``python -m opsassay.evals.remediation.worker``, its order as JSON on its input."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.logs import Log, configure
from opsassay.core.parallel import interrupt_once
from opsassay.core.schema.scenario import Scenario
from opsassay.evals.remediation.contract import Perform, TrialAgent
from opsassay.telemetry.mask import Mask

_log = Log(__name__)


def main(order: dict[str, Any]) -> int:
    """Perform the trial of *order*; the last line on standard error says what went wrong."""
    signal.signal(signal.SIGTERM, interrupt_once)  # the watchdog's word, or the kernel's
    _end_with_runner(order["runner"])
    module, _, name = order["performer"].partition(":")
    perform: Perform = getattr(import_module(module), name)
    scenario, agent = Scenario.model_validate(order["scenario"]), TrialAgent.model_validate(order["agent"])
    where = {"cluster": cluster} if (cluster := order["cluster"]) is not None else {}
    if order["mask"] is not None:
        where["mask"] = Mask.model_validate(order["mask"])
    run_dir = Path(order["run_dir"])
    configure("trial", "")
    _log.info("started", scenario=scenario.id, agent=agent.name, seed=order["seed"], pid=os.getpid())
    try:
        perform(scenario, agent, order["arm"], probes=order["probes"], seed=order["seed"], run_dir=run_dir, **where)
    except OpsAssayError as error:
        _log.error("not performed", reason=str(error))
        print(f"{type(error).__name__}: {error}".replace("\n", " | "), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        _log.warning("interrupted")
        print("interrupted", file=sys.stderr)
        return 130
    _log.info("performed", scenario=scenario.id, agent=agent.name, seed=order["seed"])
    return 0


def _end_with_runner(pid: int) -> None:
    """Have the kernel say the watchdog's word when the runner, process *pid*, is killed: nobody would wait for this trial.

    Its cell is run again, and two systems of one cell would disturb each other. Linux; elsewhere the trial runs to its end.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != pid:  # it was killed before that
            raise SystemExit(130)


if __name__ == "__main__":
    sys.exit(main(json.load(sys.stdin)))
