"""Tables 8 and 12 of "side-effects": hidden failures by class of the check, and what probes change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsassay.evals.remediation.tables import BASELINE, TrialRow, group_rows, interval, share
from opsassay.evals.runner.tables import ResultTable

from .running import part_of
from .significance import fisher_exact, sign_test


def per_class(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 8: hidden failures by class of the required check."""
    main = [row for row in rows if row.main]
    classes = {
        "D1-check": [r for r in main if not r.deeper],
        "Deeper-check": [r for r in main if r.deeper],
        "All": main,
    }
    found = tuple(
        (
            name,
            ", ".join(sorted({row.scenario for row in members})) if name != "All" else "all",
            len(members),
            share(sum(r.outcome for r in members), len(members)),
            share(sum(r.conjunction for r in members), len(members)),
            share(sum(r.hidden for r in members), sum(r.outcome for r in members)),
            interval(sum(r.hidden for r in members), sum(r.outcome for r in members)),
        )
        for name, members in classes.items()
    )
    shallow, deep = classes["D1-check"], classes["Deeper-check"]
    statistics = {
        "fisher_exact_p": fisher_exact(
            sum(r.hidden for r in deep), sum(r.outcome for r in deep),
            sum(r.hidden for r in shallow), sum(r.outcome for r in shallow),
        ),
        "sign_test_p": sign_test([(float(r.outcome), float(r.conjunction)) for r in main]),
    }  # fmt: skip
    columns = ("class", "scenarios", "n", "outcome", "conjunction", "hidden / outcome", "95% interval")
    return ResultTable("Hidden failures by class, main slice", columns, found, number=8, statistics=statistics)


def probe_contrast(rows: Sequence[TrialRow]) -> ResultTable:
    """Return Table 12: scenarios and agents that were run with probes and without, everything else the same."""
    base = [row for row in rows if row.arm == BASELINE]
    paired = [
        (key, [r for r in members if r.probes], [r for r in members if not r.probes])
        for key, members in group_rows(base, lambda r: (r.scenario, r.agent))
        if len({r.probes for r in members}) == 2
    ]
    found: list[tuple[Any, ...]] = [(*key, *_contrast(on, off)) for key, on, off in paired]
    on, off = [r for _, some, _ in paired for r in some], [r for _, _, some in paired for r in some]
    found.append(("aggregate", "", *_contrast(on, off)))
    statistics = {
        "v_probe_fisher_exact_p": fisher_exact(sum(r.probe for r in on), len(on), sum(r.probe for r in off), len(off)),
        "conjunction_fisher_exact_p": fisher_exact(
            sum(r.conjunction for r in on), len(on), sum(r.conjunction for r in off), len(off)
        ),
        "conjunction_sign_test_p": sign_test(
            [(sum(r.conjunction for r in a) / len(a), sum(r.conjunction for r in b) / len(b)) for _, a, b in paired]
        ),
    }
    columns = ("scenario", "agent", "V_probe on", "V_probe off", "conj. on", "conj. off")
    return ResultTable(
        "Probe-on/off contrast, baseline prompt", columns, tuple(found), number=12, statistics=statistics
    )


def _contrast(on: Sequence[TrialRow], off: Sequence[TrialRow]) -> tuple[str, ...]:
    return (
        share(sum(r.probe for r in on), len(on)),
        share(sum(r.probe for r in off), len(off)),
        share(sum(r.conjunction for r in on), len(on)),
        share(sum(r.conjunction for r in off), len(off)),
    )


if __name__ == "__main__":
    part_of("side_effects")
