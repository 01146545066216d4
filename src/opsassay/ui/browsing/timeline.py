"""The timeline of one run: the agent's steps, the states of its system, and the blamed step."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from opsassay.core.errors import OpsAssayError
from opsassay.core.schema.json_lines import whole_lines
from opsassay.core.schema.run_folder import ACTIONS, TIMELINE, TRACE
from opsassay.core.untrusted import is_plain, open_plain
from opsassay.ui.browsing.catalogue import StoredRun
from opsassay.ui.browsing.lines import size_of, stamps_of
from opsassay.ui.clock import RunClock, agent_clock
from opsassay.ui.step_rows import View, culprit_of, culprit_view
from opsassay.ui.system_lanes import Dip, dips_of, span_of, trial_clock

RECORDS = (TRACE, ACTIONS, TIMELINE)
KEPT = 64
"""Most timelines, and blamed steps, that are cached until their records change."""
LARGEST = 16 * 2**20
"""Most bytes of a record that is drawn as a timeline."""


@dataclass(frozen=True)
class RunTimeline:
    """The lanes of a run (None without times), its *dips* in availability per change, and a *note* on what is missing."""

    clock: RunClock | None = None
    dips: tuple[Dip, ...] = ()
    note: str = ""


def course_of(stored: StoredRun, seconds: float = 0) -> RunTimeline:
    """Return the timeline of a run, at least *seconds* long: of its system if recorded, else of the agent alone."""
    return _read_timeline(stored, seconds, stamps_of(stored.folder, RECORDS))


@lru_cache(KEPT)
def _read_timeline(stored: StoredRun, seconds: float, stamps: object) -> RunTimeline:
    """Return the timeline of a run, at least *seconds* long; *stamps* of its files are part of the cache's key."""
    del stamps  # a record that has changed is read anew
    large = [name for name in RECORDS if size_of(stored.folder / name) > LARGEST]
    if large:
        return RunTimeline(note=f"{', '.join(large)} is larger than {LARGEST // 2**20} MiB, too large to be drawn.")
    if is_plain(stored.folder / TIMELINE):
        try:
            return _timeline_of_trial(stored, seconds)
        except (OpsAssayError, OSError) as error:
            note = f"What its system went through cannot be drawn: {error}"
            return RunTimeline(_clock_of_agent(stored, seconds), note=note)
    return RunTimeline(_clock_of_agent(stored, seconds))


def culprit_view_of(stored: StoredRun) -> View | None:
    """Return the step that blame analysis names in the run as page data; None without one."""
    return _read_blamed_step(stored, stamps_of(stored.folder, RECORDS))


@lru_cache(KEPT)
def _read_blamed_step(stored: StoredRun, stamps: object) -> View | None:
    """Return the step that blame analysis names, from a cache while *stamps* of its files stay equal."""
    del stamps
    return culprit_view(culprit_of(stored.folder))


def _timeline_of_trial(stored: StoredRun, seconds: float) -> RunTimeline:
    """Return the timeline of a remediation run, at least *seconds* long, with the drops in availability per change."""
    from opsassay.core.schema.task import Arm
    from opsassay.evals.remediation.score import read_recorded, read_steps
    from opsassay.evals.remediation.tasks import kept_scenario
    from opsassay.scoring.verifiers import certify, evidence_of

    scenario = kept_scenario(stored.root, stored.run.item_hash)
    recording = read_recorded(stored.folder, probes_on=Arm.parse(stored.run.arm).knob("probes") != "off")
    evidence = evidence_of(recording, scenario)
    verdict = certify(recording, scenario, run="", solver="", committed_digest=stored.run.item_hash)
    span = span_of(evidence, seconds)
    clock = trial_clock(evidence, scenario, verdict, span, read_steps(stored.folder))
    return RunTimeline(clock, dips_of(evidence, span))


def _clock_of_agent(stored: StoredRun, seconds: float) -> RunClock | None:
    """Return the timeline of the agent's steps and actions, at least *seconds* long; None when they have no times."""
    return agent_clock(_read_lines(stored.folder / ACTIONS), _read_lines(stored.folder / TRACE), seconds)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON lines file, up to `LARGEST` bytes; none when it cannot be read."""
    with suppress(OpsAssayError, OSError), open_plain(path) as stream:
        return list(whole_lines(stream.read(LARGEST)))
    return []
