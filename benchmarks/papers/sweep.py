"""Threshold sweeps over recorded runs: every setting re-scored without a new run (App. F of "side-effects")."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from opsassay.core.schema.scenario import Scenario, Verification
from opsassay.evals.remediation.report import Trials
from opsassay.evals.runner.tables import ResultTable
from opsassay.scoring.verifiers import Judgement, RunRecording, evidence_of, judge_run
from opsassay.scoring.verifiers.certify import hidden_failure
from opsassay.scoring.verifiers.core import v_depth, v_outcome, v_probe, v_temporal
from opsassay.scoring.verifiers.evidence import RunEvidence, Series

from .running import part_of
from .significance import fisher_exact

FLOORS = (0.80, 0.85, 0.90, 0.95)
STALLS_S = (3.0, 5.0, 10.0, 15.0)
WINDOWS_S = (5.0, 10.0, 20.0)
CADENCES = (1.0, 2.0, 4.0)
"""Multiples of the recorded cadence. The paper sweeps half and twice its own; what was not recorded cannot be read."""


class Setting(NamedTuple):
    """One point of the sweep; None is what each scenario committed."""

    floor_availability: float | None = None
    probe_latency_limit_s: float | None = None
    probe_attribution_s: float | None = None
    cadence_factor: float = 1.0


SETTINGS = tuple(itertools.starmap(Setting, itertools.product(FLOORS, STALLS_S, WINDOWS_S, CADENCES)))
"""The paper's 144 settings: 4 x 4 x 3 x 3."""


@dataclass(frozen=True)
class Swept:
    """What one setting makes of all runs: counts over both classes, and whether hidden failures keep to one of them.

    *hidden* are runs whose outcome passes and whose conjunction does not; *p_value* is that of Fisher's exact test of
    hidden of outcome, deeper checks against D1.
    """

    setting: Setting
    runs: int
    outcome: int
    conjunction: int
    hidden: int
    d1_hidden: int
    d1_outcome: int
    deeper_hidden: int
    deeper_outcome: int
    p_value: float | None


def main_slice(trials: Trials) -> list[tuple[str, Scenario, RunRecording]]:
    """Return the recordings of the main slice: baseline prompt, probes on."""
    return [one for one, row in zip(trials.recorded, trials.rows, strict=True) if row.main]


def sweep_tables(recorded: Sequence[tuple[str, Scenario, RunRecording]]) -> list[ResultTable]:
    """Return Tables 14 and 15 over the *recorded* runs of the main slice."""
    stalls = [Setting(probe_latency_limit_s=stall) for stall in STALLS_S]
    windows = [Setting(probe_attribution_s=window) for window in WINDOWS_S]
    return [
        _sweep_table(14, "V_probe stall threshold", "stall (s)", sweep(recorded, stalls)),
        _sweep_table(15, "V_probe attribution window", "window (s)", sweep(recorded, windows)),
    ]


def sweep(
    recorded: Iterable[tuple[str, Scenario, RunRecording]], settings: Sequence[Setting] = SETTINGS
) -> list[Swept]:
    """Return one row per setting over all *recorded* runs (name, scenario, recording).

    Predicates that a setting does not concern are judged once a run; thresholds that a scenario committed otherwise stay.
    """
    scored: dict[Setting, list[tuple[bool, bool, bool]]] = {setting: [] for setting in settings}
    for _, scenario, recording in recorded:
        evidence = evidence_of(recording, scenario)
        deeper = scenario.verification.committed_depth != "D1"
        for setting, found in _judged(evidence, scenario, settings):
            outcome = next(j for j in found if j.predicate == "v_outcome").passed
            scored[setting].append((deeper, outcome, hidden_failure(found)))
    return [_row(setting, rows) for setting, rows in scored.items()]


def _judged(
    evidence: RunEvidence, scenario: Scenario, settings: Sequence[Setting]
) -> Iterable[tuple[Setting, tuple[Judgement, ...]]]:
    """Yield what is judged under every setting, each predicate only once for what it depends on."""
    committed = scenario.verification
    first, _ = judge_run(evidence, scenario)
    others = tuple(j for j in first if j.predicate not in {"v_outcome", "v_temporal", "v_depth", "v_probe"})
    coarser = {c: _at_cadence(evidence, c * evidence.cadence_s) for c in {s.cadence_factor for s in settings}}
    known: dict[tuple[object, ...], Judgement] = {}

    def once(key: tuple[object, ...], decide: Callable[[], Judgement]) -> Judgement:
        if key not in known:
            known[key] = decide()
        return known[key]

    for setting in settings:
        cadence, seen, changed = setting.cadence_factor, coarser[setting.cadence_factor], _with(committed, setting)
        decided = (
            once(("outcome", cadence), partial(v_outcome, seen, changed)),
            once(("temporal", cadence, setting.floor_availability), partial(v_temporal, seen, changed)),
            once(("depth", cadence), partial(v_depth, seen, changed)),
            once(
                ("probe", cadence, setting.probe_latency_limit_s, setting.probe_attribution_s),
                partial(v_probe, seen, changed, probes_on=evidence.recording.probes_on),
            ),
        )
        yield setting, (*decided, *others)


def _at_cadence(evidence: RunEvidence, cadence_s: float) -> RunEvidence:
    """Return *evidence* as a recorder of a coarser cadence would have it; probes have a schedule of their own.

    The last reading of each depth stays: the recorder always takes it.
    """
    thinner = {d: s if d == "D3" else _thinned(s, cadence_s) for d, s in evidence.series.items()}
    kept = {d: _thinned(s, cadence_s) for d, s in evidence.committed.items()}
    return replace(evidence, series=thinner, committed=kept, cadence_s=max(cadence_s, evidence.cadence_s))


def _with(committed: Verification, setting: Setting) -> Verification:
    names = ("floor_availability", "probe_latency_limit_s", "probe_attribution_s")
    return committed.model_copy(update={name: v for name in names if (v := getattr(setting, name)) is not None})


def _row(setting: Setting, rows: Sequence[tuple[bool, bool, bool]]) -> Swept:
    d1 = [(outcome, hidden) for deeper, outcome, hidden in rows if not deeper and outcome]
    deep = [(outcome, hidden) for deeper, outcome, hidden in rows if deeper and outcome]
    d1_hidden, deep_hidden = sum(h for _, h in d1), sum(h for _, h in deep)
    outcome = len(d1) + len(deep)
    return Swept(
        setting=setting,
        runs=len(rows),
        outcome=outcome,
        conjunction=outcome - d1_hidden - deep_hidden,
        hidden=d1_hidden + deep_hidden,
        d1_hidden=d1_hidden,
        d1_outcome=len(d1),
        deeper_hidden=deep_hidden,
        deeper_outcome=len(deep),
        p_value=fisher_exact(deep_hidden, len(deep), d1_hidden, len(d1)),
    )


def _sweep_table(number: int, what: str, column: str, swept: Sequence[Swept]) -> ResultTable:
    found = tuple(
        (
            next(
                value for value in (s.setting.probe_latency_limit_s, s.setting.probe_attribution_s) if value is not None
            ),
            f"{s.outcome}/{s.runs}",
            f"{s.conjunction}/{s.runs}",
            f"{s.hidden}/{s.outcome}",
            f"{s.d1_hidden}/{s.d1_outcome}",
            f"{s.deeper_hidden}/{s.deeper_outcome}",
        )
        for s in swept
    )
    columns = (column, "outcome", "conjunction", "hidden / pass", "D1-check", "deeper-check")
    p_values = [s.p_value for s in swept if s.p_value is not None]
    statistics = {"largest_fisher_exact_p": max(p_values, default=None)}
    return ResultTable(f"{what} sweep, main slice", columns, found, number=number, statistics=statistics)


def _thinned(series: Series, cadence_s: float) -> Series:
    if len(series) < 2:
        return series
    turn = (series.started - series.started[0]) // int(cadence_s * 1e9)
    first_of_turn = np.concatenate([[True], turn[1:] != turn[:-1]])
    first_of_turn[-1] = True
    return series.select(first_of_turn)


if __name__ == "__main__":
    part_of("side_effects")
