"""Compliance tasks on a real cluster: worlds are made there, read back and graded, and nothing of them stays."""

from __future__ import annotations

import json

import pytest
import yaml

from opsassay.cli import run as command_line
from opsassay.solvers.sandbox import sealing_refusal
from opsassay.testbed.substrates.kubernetes.api.prefixes import MARK
from opsassay.testbed.substrates.kubernetes.api.read_back import MARKED_KINDS

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]
PASSING = {"new-opa-kubectl-host-ports": "asked", "new-kyverno-wildcards-in-roles": "evidence"}


def plan(cluster, tmp_path, **part):
    part = {"domain": "ciso", "kubeconfig": str(cluster.kubeconfig), **part}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(part))
    return str(tmp_path / "plan.yaml")


@pytest.mark.skipif(sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}")
@pytest.mark.parametrize("task", PASSING)
def test_a_task_is_graded_on_worlds_of_the_cluster_and_nothing_is_left(cluster, api, tmp_path, capsys, task):
    path = plan(cluster, tmp_path, on="cluster", tasks=[task], agents=["oracle:right", "deny-all", "allow-all"])
    assert command_line(["run", path, "-o", str(tmp_path / "store"), "--json"]) == 0
    right, *wrong = (item["metrics"] for item in json.loads(capsys.readouterr().out)["items"])
    assert (right["passed"]["value"], right["mutation_kill_rate"]["value"]) == (1.0, 1.0), right["passed"]["reason"]
    for found in wrong:  # what says no, or yes, to everything
        assert (found[PASSING[task]]["value"], found["posture"]["value"]) == (1.0, 0.0)
    worlds = json.loads(next((tmp_path / "store" / "compliance_worlds").iterdir()).read_text())
    assert worlds["version"] == api.require()
    for kind in MARKED_KINDS:
        assert api.list(kind, selector=MARK) == []


def test_a_cluster_without_kyverno_is_not_asked_to_judge(cluster, api, tmp_path, capsys):
    path = plan(cluster, tmp_path, engine="cluster", tasks=list(PASSING), agents=["oracle:right"])
    assert command_line(["run", path, "-o", str(tmp_path / "store")]) == 2
    assert "clusterpolicies.kyverno.io" in capsys.readouterr().err
    assert api.list("Namespace", selector=MARK) == []
    assert not (tmp_path / "store").exists()
