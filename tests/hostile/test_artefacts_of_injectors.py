"""What an injector leaves in telemetry beside the physics of its fault: a classifier on all of that does no better than chance."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from live import state_folder
from opsassay.telemetry.tree import Tree
from opsassay.testbed.campaign import load_plan, run_campaign

from .artefacts import artefacts, classified
from .view import most_telling

CLASS = "26 artefacts of injectors"
pytestmark = [pytest.mark.live, pytest.mark.long, pytest.mark.timeout(7200)]
RECORDINGS = int(os.environ.get("HOSTILE_RECORDINGS", "40"))
NORMAL_S, CHANCE = 10.0, 0.05
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


@pytest.mark.parametrize("what", ["type", "service"])
def test_nothing_but_the_physics_says_what_was_broken(seen, what):
    labels, views = [getattr(fault, what) for fault, _ in seen], [view for _, view in seen]
    most = most_telling(labels, views)
    assert most.p > CHANCE, most
    assert classified(labels, views) > CHANCE
