"""The step that blame points to, for the pages of a run: no model is asked and no truth is read."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.run_folder import TRACE
from opsassay.core.schema.trajectory import Attribution

LARGEST_TRACE = 16 * 2**20
"""Bytes of a trace that a page reads whole."""


def culprit_of(run_dir: Path) -> Attribution | None:
    """Return who is to blame for the failure of the run in *run_dir*, and since which step, None where nobody can say.

    It is the step whose action broke availability, where a timeline tells, else what the combined rules say.
    """
    from opsassay.analysis.blame.attribute import JOINED, attribute
    from opsassay.analysis.blame.operations import join, read_run
    from opsassay.solvers.proxy.formats import read_one

    with suppress(OpsAssayError, OSError):
        if not 0 < (run_dir / TRACE).stat().st_size <= LARGEST_TRACE:
            return None
        trace = read_one(run_dir / TRACE)
        joined = join(trace, read_run(run_dir))
        found = attribute(trace, JOINED if joined.findings else "combined", joined=joined).attribution
        return found if found.step_id is not None else None
    return None
