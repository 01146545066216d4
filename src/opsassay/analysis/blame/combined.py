"""The combined rule-based method: a log-linear choice among the steps of a trace, with weights learned from labels.

For step i of a trace with the features x_i (one column per name in FEATURES)::

    p(i)  = exp(w . x_i) / sum over j of exp(w . x_j)

This is a conditional logit (McFadden 1974); the features are those of `features.py`. The answer is the most probable step
and its agent. No model is asked. `benchmarks/papers/blame/fitting.py` in a checkout learns weights.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from opsassay.analysis.blame.features import FEATURES, features
from opsassay.core.schema.trajectory import Attribution, Trace


@dataclass(frozen=True)
class Combined:
    """The weights of FEATURES, by name."""

    weights: dict[str, float]

    def attribute(self, trace: Trace) -> Attribution:
        """Return the most probable step and its agent; the reason names what spoke for it most."""
        if not trace.steps:
            return Attribution(reason="there are no steps")
        rows = np.array(features(trace))
        contributions = rows * np.array([self.weights[name] for name in FEATURES])
        totals = contributions.sum(axis=1)
        best = int(totals.argmax())
        share = float(np.exp(totals[best] - np.logaddexp.reduce(totals)))
        strongest = [list(FEATURES)[i] for i in contributions[best].argsort()[::-1][:3] if contributions[best][i] > 0]
        reason = f"{', '.join(strongest) or 'nothing stands out'} (probability {share:.0%} among the steps)"
        return Attribution(agent_name=trace.steps[best].agent_name, step_id=best + 1, reason=reason)


@cache
def shipped() -> Combined:
    """Return the method with weights fitted to all Who&When traces at hand; see docs/blame.md."""
    stored = json.loads(files("opsassay.analysis.blame").joinpath("combined_weights.json").read_text(encoding="utf-8"))
    return Combined({name: float(stored["weights"][name]) for name in FEATURES})
