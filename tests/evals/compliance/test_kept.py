"""Stores of older plans: worlds that a cluster gave, and what its Kyverno said, are graded and shown without a cluster."""

from __future__ import annotations

import json

import pytest

from opsassay.cli import run as command_line
from opsassay.core.schema.task import Arm
from opsassay.evals.compliance.clusters.kept import ReadBackWorlds, admission_digest
from opsassay.evals.compliance.kyverno.judge import admitted
from opsassay.evals.compliance.kyverno.policy import read_policies
from opsassay.evals.compliance.scripts.oracles import ORACLES, baseline
from opsassay.evals.compliance.solve import ComplianceRun
from opsassay.evals.compliance.tasks import NEW, ComplianceTask
from opsassay.evals.runner.generated_tasks import AnswerSettings, keep_body
from opsassay.evals.runner.plan import PlannedAgent
from opsassay.evals.runner.store import RunStore

TASK = ComplianceTask(name="new-kyverno-host-ports", seed=1)
SOLVERS = ("oracle:right", "deny-all")
POLICY = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "p"},
    "spec": {
        "rules": [
            {
                "name": "r",
                "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                "validate": {"failureAction": "Enforce", "pattern": {"metadata": {"name": "?*"}}},
            }
        ]
    },
}


@pytest.fixture
def store(tmp_path):
    """Return a function that makes a store with runs of *knobs*; it returns the folders of the runs by solver."""

    def made(**knobs):
        found = {}
        for name in SOLVERS:
            job = ComplianceRun(TASK, PlannedAgent(name=name), 0, AnswerSettings(), Arm.of(knobs))
            found[name] = job.run(RunStore(tmp_path), lambda: False, lambda _: None).run_dir
        return found

    return made


def graded(tmp_path, capsys):
    assert command_line(["score", "run", str(tmp_path), "--json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    return {item["solver"]: item["metrics"]["passed"]["value"] for item in items}


def kept_worlds(tmp_path, **changed):
    """Keep the worlds of another seed as those that a cluster gave of the task."""
    other = TASK.model_copy(update={"seed": 2})
    given = {"judged": other.judged(), "mutants": other.mutants(), "others": other.others(), **changed}
    found = ReadBackWorlds(**{"commitment": TASK.commitment, "context": "theirs", "version": "v1.32.0", **given})
    keep_body(tmp_path / "compliance_worlds", TASK.commitment, found)
    return found


def test_worlds_that_a_cluster_gave_are_graded_and_shown(tmp_path, capsys, store):
    store(on="cluster")
    kept = kept_worlds(tmp_path)
    assert graded(tmp_path, capsys) == {"oracle:right": 1.0, "deny-all": 0.0}
    assert command_line(["report", str(tmp_path), "-o", str(tmp_path / "pages")]) == 0
    pages = "".join(path.read_text() for path in (tmp_path / "pages").rglob("*.html"))
    for world in kept.judged:
        assert all(f"{one['kind']}/{one['metadata']['name']}" in pages for one in world.objects)


@pytest.mark.parametrize("broken", ["gone", "of another task", "without labels"])
def test_worlds_that_are_not_kept_are_no_grade(tmp_path, capsys, store, broken):
    store(on="cluster")
    if broken == "of another task":
        kept_worlds(tmp_path, commitment="0" * 64)
    if broken == "without labels":
        kept_worlds(tmp_path)
        (path,) = (tmp_path / "compliance_worlds").iterdir()
        path.write_text(path.read_text().replace('"compliant"', '"complies"'))
    assert command_line(["score", "run", str(tmp_path)]) == 1
    assert "restore it" in capsys.readouterr().err


def test_what_kyverno_said_is_the_grade_and_is_shown(tmp_path, capsys, store):
    """It is kept turned round for deny-all, so that our own evaluator gives another grade."""
    folders = store(engine="cluster")
    worlds = [*TASK.judged(), *TASK.mutants(), *(one for some in TASK.others().values() for one in some)]
    for name, folder in folders.items():
        files = baseline(name, TASK) if name in SOLVERS[1:] else ORACLES[NEW]["right"][0](TASK)
        policies = read_policies([one for one in sorted(files.items()) if one[0].startswith("policies/")])
        said = {
            admission_digest(policies, one.objects): one.compliant or admitted(policies, one.objects) for one in worlds
        }
        (folder / "admitted.json").write_text(json.dumps(said))
    assert graded(tmp_path, capsys) == {"oracle:right": 1.0, "deny-all": 1.0}
    assert command_line(["report", str(tmp_path), "-o", str(tmp_path / "pages")]) == 0
    for folder in folders.values():
        (folder / "admitted.json").unlink()
    assert command_line(["score", "run", str(tmp_path)]) == 1
    assert "lacks what Kyverno said" in capsys.readouterr().err


def test_the_digest_of_what_kyverno_was_asked_is_that_of_stores_that_there_are():
    policies = read_policies([("p.yaml", json.dumps(POLICY).encode())])
    asked = admission_digest(policies, [{"kind": "Pod", "metadata": {"name": "a"}}])
    assert asked == "7e52da45911162445e38a8997cd17d40cd81eebbcbbd3aac7841ea5f85b4fdc9"


@pytest.mark.parametrize("key", ["on: cluster", "engine: cluster", "kubeconfig: mine", "context: mine"])
def test_a_plan_that_asks_for_a_cluster_is_told_that_there_is_no_such_key(tmp_path, capsys, key):
    text = f"domain: ciso\ntasks: [{TASK.name}]\nagents: [deny-all]\n{key}\n"
    for number, written in enumerate((text, "parts:\n- " + text.replace("\n", "\n  "))):
        (tmp_path / f"{number}.yaml").write_text(written)
        assert command_line(["run", str(tmp_path / f"{number}.yaml"), "-o", str(tmp_path / "store")]) == 2
        assert f"{key.partition(':')[0]}: there is no such key" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()
