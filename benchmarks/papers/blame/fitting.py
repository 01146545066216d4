"""Weights of the combined method, learned from labelled traces.

For step i of a trace with the features x_i (one column per name in FEATURES) and the weights w::

    p(i)  = exp(w . x_i) / sum over j of exp(w . x_j)
    p(a)  = sum over the steps i of agent a of p(i)
    loss  = - sum over traces of (log p(labelled step) + log p(labelled agent)) + penalty / 2 * |w|^2

This is a conditional logit (McFadden 1974) with a Gaussian prior of precision *penalty*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opsassay.analysis.blame.combined import FEATURES, Combined, features
from opsassay.core.schema.trajectory import Attribution, LabelledTrace

PENALTIES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Precisions of the prior among which cross-validation inside the training traces chooses."""
_FOLDS = 5
_OUT = -1e9
_Array = NDArray[np.float64]


def fit(cases: Sequence[LabelledTrace], penalties: Sequence[float] = PENALTIES) -> Combined:
    """Return the method fitted to labelled traces; of several *penalties* cross-validation chooses."""
    data = _Data.of(cases)
    return _combined(_fit_chosen(data, np.arange(len(cases)), penalties))


def leave_one_out(cases: Sequence[LabelledTrace], penalties: Sequence[float] = PENALTIES) -> list[Attribution]:
    """Return, for each trace, the answer of the method fitted to all others; the penalty is chosen among those too."""
    data, every = _Data.of(cases), np.arange(len(cases))
    return [
        _combined(_fit_chosen(data, np.delete(every, left_out), penalties)).attribute(case.trace)
        for left_out, case in enumerate(cases)
    ]


@dataclass(frozen=True)
class _Data:
    """Labelled traces padded to one length: features (trace, step, feature), which steps are there, whose, the label."""

    features: _Array
    present: _Array
    by_agent: _Array
    label: NDArray[np.int64]

    @classmethod
    def of(cls, cases: Sequence[LabelledTrace]) -> _Data:
        longest = max(len(case.trace.steps) for case in cases)
        rows = np.zeros((len(cases), longest, len(FEATURES)))
        present, by_agent = np.zeros((2, len(cases), longest))
        for i, case in enumerate(cases):
            steps = case.trace.steps
            rows[i, : len(steps)] = features(case.trace)
            present[i, : len(steps)] = 1
            own = [step.agent_name == case.label.agent_name for step in steps]
            by_agent[i, : len(steps)] = own if any(own) else 1
        return cls(rows, present, by_agent, np.array([(case.label.step_id or 1) - 1 for case in cases]))

    def take(self, chosen: NDArray[np.int64]) -> _Data:
        """Return the chosen traces, no longer than the longest of them."""
        longest = int(self.present[chosen].sum(axis=1).max())
        return _Data(
            self.features[chosen, :longest],
            self.present[chosen, :longest],
            self.by_agent[chosen, :longest],
            self.label[chosen],
        )

    def loss(self, weights: _Array) -> tuple[float, _Array]:
        """Return the negative log likelihood of step and agent, and its gradient by *weights* (one per feature).

        d loss / d w = sum of (2 p - p(. | labelled agent)) x - x of the labelled step. 1e-12 keeps logarithms finite.
        """
        count = np.arange(len(self.label))
        logits = np.where(self.present > 0, self.features @ weights, _OUT)
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        share = odds / odds.sum(axis=1, keepdims=True)
        of_agent = self.by_agent * share
        agent = of_agent.sum(axis=1)
        value = -np.log(share[count, self.label] + 1e-12).sum() - np.log(agent + 1e-12).sum()
        pull = 2 * share - of_agent / (agent[:, None] + 1e-12)
        gradient = pull.reshape(-1) @ self.features.reshape(-1, len(weights))
        return float(value), gradient - self.features[count, self.label].sum(axis=0)


def _fit_chosen(data: _Data, chosen: NDArray[np.int64], penalties: Sequence[float]) -> _Array:
    if len(penalties) == 1:
        return _fit(data.take(chosen), penalties[0])
    losses = [_held_out_loss(data, chosen, penalty) for penalty in penalties]
    return _fit(data.take(chosen), penalties[int(np.argmin(losses))])


def _held_out_loss(data: _Data, chosen: NDArray[np.int64], penalty: float) -> float:
    folds = [fold for start in range(_FOLDS) if 0 < len(fold := chosen[start::_FOLDS]) < len(chosen)]
    return sum(data.take(fold).loss(_fit(data.take(np.setdiff1d(chosen, fold)), penalty))[0] for fold in folds)


def _fit(data: _Data, penalty: float) -> _Array:
    from scipy.optimize import minimize

    def objective(weights: _Array) -> tuple[float, _Array]:
        value, gradient = data.loss(weights)
        return value + 0.5 * penalty * float(weights @ weights), gradient + penalty * weights

    start = np.zeros(len(FEATURES))
    found: Any = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 60})
    return np.asarray(found.x)


def _combined(weights: _Array) -> Combined:
    return Combined(dict(zip(FEATURES, map(float, weights), strict=True)))
