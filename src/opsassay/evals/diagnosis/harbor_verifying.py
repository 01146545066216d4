"""What ``tests/test.sh`` of a Harbor task runs: ``python -m …harbor_verifying CASE ANSWER REWARD``."""

from __future__ import annotations

import sys
from pathlib import Path

from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.run import Solver
from opsassay.core.untrusted import is_plain, read_plain
from opsassay.evals.diagnosis.external_submissions import grade_given
from opsassay.evals.diagnosis.repeats import success
from opsassay.evals.runner.attempt import MAX_ANSWER_BYTES
from opsassay.evals.runner.harbor_format import rewards_of, write_rewards
from opsassay.scoring.void import void_reason
from opsassay.telemetry.tree import resolve


def verify(folder: Path, answer: Path, reward: Path) -> dict[str, float]:
    """Grade the file *answer* on the one incident of *folder*, write the rewards to *reward* and return them.

    A missing or broken answer is worth 0; a broken task is an error and writes nothing. Raises UserError, DatapackError.
    """
    cases = resolve(folder)
    if len(cases) != 1 or cases[0].truth is None:
        raise UserError(
            f"{folder} is not one incident with its truth; write the task again with `opsassay incident export harbor`."
        )
    text = read_plain(answer, MAX_ANSWER_BYTES) if is_plain(answer) else b""
    if void := void_reason(cases[0].truth, cases[0].annotation):
        raise UserError(f"{folder}: {void}; take another incident.")
    verdict, _ = grade_given(cases[0], text, Solver(name="harbor", kind="agent"))
    rewards = rewards_of(verdict.metrics, success=bool(success(verdict.metrics)))
    write_rewards(reward, rewards)
    for name, metric in verdict.metrics.items():
        print(f"{name}: {metric.reason if metric.value is None else f'{metric.value:g}'}")
    return rewards


def main() -> int:
    """Run `verify` with the arguments of the command; an error is one sentence and exit code 2."""
    try:
        verify(*map(Path, sys.argv[1:4]))
    except OpsAssayError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
