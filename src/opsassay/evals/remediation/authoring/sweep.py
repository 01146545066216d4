"""Threshold sweeps over recorded runs: every setting re-scored without a new run (App. F of "side-effects")."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from opsassay.core.schema.scenario import Scenario, Verification
from opsassay.evals.remediation.statistics import fisher_exact
from opsassay.scoring.verifiers import Judgement, RunRecording, evidence_of, judge
from opsassay.scoring.verifiers.certify import hidden_failure
from opsassay.scoring.verifiers.core import v_depth, v_outcome, v_probe, v_temporal
from opsassay.scoring.verifiers.evidence import RunEvidence

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
    first, _ = judge(evidence, scenario)
    others = tuple(j for j in first if j.predicate not in {"v_outcome", "v_temporal", "v_depth", "v_probe"})
    coarser = {c: evidence.at_cadence(c * evidence.cadence_s) for c in {s.cadence_factor for s in settings}}
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
