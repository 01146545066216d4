"""Threshold sweeps over recorded runs: every setting re-scored without a new run (App. F of "side-effects")."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from assay.bench.trials.statistics import fisher_exact
from assay.grading.verifiers import Judgement, Recording, gather, judge
from assay.grading.verifiers.certify import conjunction, hidden_failure
from assay.grading.verifiers.core import v_depth, v_outcome, v_probe, v_temporal
from assay.grading.verifiers.evidence import Evidence
from assay.model.scenario import Scenario, Verification

FLOORS = (0.80, 0.85, 0.90, 0.95)
STALLS_S = (3.0, 5.0, 10.0, 15.0)
WINDOWS_S = (5.0, 10.0, 20.0)
CADENCES = (1.0, 2.0, 4.0)
"""Multiples of the recorded cadence. The paper sweeps half and twice its own; what was not recorded cannot be read."""


class Setting(NamedTuple):
    """One point of the sweep."""

    floor_availability: float
    probe_latency_limit_s: float
    probe_attribution_s: float
    cadence_factor: float


SETTINGS = tuple(itertools.starmap(Setting, itertools.product(FLOORS, STALLS_S, WINDOWS_S, CADENCES)))
"""The paper's 144 settings: 4 x 4 x 3 x 3."""


@dataclass(frozen=True)
class Swept:
    """What one setting makes of all runs: counts over both classes, and whether hidden failures keep to one of them."""

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


def sweep(recorded: Iterable[tuple[str, Scenario, Recording]], settings: Sequence[Setting] = SETTINGS) -> list[Swept]:
    """Return one row per setting over all *recorded* runs (name, scenario, recording).

    Predicates that a setting does not concern are judged once a run; thresholds that a scenario committed otherwise stay.
    """
    scored: dict[Setting, list[tuple[bool, bool, bool]]] = {setting: [] for setting in settings}
    for _, scenario, recording in recorded:
        evidence = gather(recording, control_plane=scenario.environment.substrate != "compose")
        deeper = scenario.verification.committed_depth != "D1"
        for setting, found in _judged(evidence, scenario, settings):
            outcome = next(j for j in found if j.predicate == "v_outcome").passed
            scored[setting].append((deeper, outcome, hidden_failure(found)))
    return [_row(setting, rows) for setting, rows in scored.items()]


def _judged(
    evidence: Evidence, scenario: Scenario, settings: Sequence[Setting]
) -> Iterable[tuple[Setting, tuple[Judgement, ...]]]:
    """Yield what is judged under every setting, each predicate only once for what it depends on."""
    committed = scenario.verification
    first, _ = judge(evidence, scenario)
    others = tuple(j for j in first if j.predicate not in {"v_outcome", "v_temporal", "v_depth", "v_probe"})
    coarser = {c: evidence.at_cadence(c * evidence.cadence_s) for c in {s.cadence_factor for s in settings}}
    known: dict[tuple[object, ...], Judgement] = {}

    def once(key: tuple[object, ...], judged: Judgement | None = None) -> Judgement | None:
        if judged is not None:
            known[key] = judged
        return known.get(key)

    for setting in settings:
        seen, changed = coarser[setting.cadence_factor], _with(committed, setting)
        cadence = setting.cadence_factor
        outcome = once(("outcome", cadence)) or once(("outcome", cadence), v_outcome(seen, changed))
        depth = once(("depth", cadence)) or once(("depth", cadence), v_depth(seen, changed))
        key = ("temporal", cadence, setting.floor_availability)
        temporal = once(key) or once(key, v_temporal(seen, changed))
        key = ("probe", cadence, setting.probe_latency_limit_s, setting.probe_attribution_s)
        probe = once(key) or once(key, v_probe(seen, changed, probes_on=evidence.recording.probes_on))
        assert outcome is not None
        assert temporal is not None
        assert depth is not None
        assert probe is not None
        yield setting, (outcome, temporal, depth, probe, *others)


def _with(committed: Verification, setting: Setting) -> Verification:
    return committed.model_copy(
        update={
            "floor_availability": setting.floor_availability,
            "probe_latency_limit_s": setting.probe_latency_limit_s,
            "probe_attribution_s": setting.probe_attribution_s,
        }
    )


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


__all__ = ["SETTINGS", "Setting", "Swept", "conjunction", "sweep"]
