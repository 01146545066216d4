"""What an injector leaves in telemetry beside the physics of its fault: a classifier on all of that does no better than chance."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.model_selection import StratifiedKFold, permutation_test_score

from live import state_folder
from opsassay.telemetry.tree import Tree
from opsassay.testbed.campaign import load_plan, run_campaign

from .artefacts import artefacts
from .view import most_telling

CLASS = "26 artefacts of injectors"
pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(7200)]
RECORDINGS = int(os.environ.get("HOSTILE_RECORDINGS", "40"))
NORMAL_S, CHANCE, FOLDS = 10.0, 0.05, 5
SERVICES = ("catalog", "currency", "payment", "search", "checkout")
KINDS = {
    "NetworkDelay": "{delay_ms: 300}", "NetworkLoss": "{loss_percent: 40}", "HTTPResponseAbort": "{}",
    "HTTPResponseDelay": "{delay_ms: 300}", "CPUStress": "{cores: 4}", "PodKill": "{}", "JVMException": "{}", "JVMLatency": "{}",
}  # fmt: skip
PLAN = "\n".join(
    [f"campaign: artefacts\nwarmup_s: 3\nnormal_s: {NORMAL_S}\nabnormal_s: 10\nsystems:\n- system: shop\n  faults:",
     *(f"  - {{fault: {kind}, targets: [{', '.join(SERVICES)}], parameters: {given}}}" for kind, given in KINDS.items())]
)  # fmt: skip


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Return (fault, artefacts) of real incidents of the shop; ``HOSTILE_RECORDINGS`` says of how many."""
    folder = tmp_path_factory.mktemp("artefacts")
    (folder / "plan.yaml").write_text(PLAN)
    chosen = random.Random(0).sample(load_plan(folder / "plan.yaml"), RECORDINGS)
    tree = Tree(folder / "tree")
    with state_folder():
        assert not [one.error for one in run_campaign(chosen, tree, 1) if one.error]
    return read(tree, folder)


def read(tree: Tree, scratch: Path):
    """Return (fault, artefacts) of every incident of *tree*."""
    found = [(tree.truth(id_).faults[0], artefacts(tree.incident_path(id_), NORMAL_S, scratch)) for id_ in tree.ids()]
    order = sorted(view["start"] for _, view in found)
    return [(fault, {**view, "place": order.index(view["start"])}) for fault, view in found]


def classified(labels, views) -> float:
    """Return how likely a classifier names *labels* so often by chance (cross-validated, 99 permutations)."""
    names = sorted({name for view in views for name in view})
    columns = [[view.get(name) for view in views] for name in names]
    given = np.array([_numbers(column) for column in columns if len({str(v) for v in column}) > 1]).T
    folds = StratifiedKFold(min(FOLDS, *(labels.count(one) for one in labels)), shuffle=True, random_state=0)
    trees = ExtraTreesClassifier(50, random_state=0)
    return float(permutation_test_score(trees, given, labels, cv=folds, n_permutations=99, random_state=0)[2])


def _numbers(column):
    if all(v is None or isinstance(v, int | float) for v in column):
        return [-1.0 if v is None else float(v) for v in column]
    texts = [str(v) for v in column]
    return [float(sorted(set(texts)).index(text)) for text in texts]


@pytest.mark.parametrize("what", ["type", "service"])
def test_nothing_but_the_physics_says_what_was_broken(seen, what):
    labels, views = [getattr(fault, what) for fault, _ in seen], [view for _, view in seen]
    most = most_telling(labels, views)
    assert most.p > CHANCE, most
    assert classified(labels, views) > CHANCE
