"""What an operator of a trial is handed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from assay.model.scenario import Scenario


@dataclass(frozen=True)
class Task:
    """What an operator is told, for how long it may work, and where it writes."""

    scenario: Scenario
    prompt: str
    timeout_s: float
    seed: int
    run_dir: Path
