"""Compliance tasks: worlds that differ in a violation alone, oracles that fail where they say, and what ends badly."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path

import pytest
import yaml

from opsassay.cli import run as command_line
from opsassay.core.errors import DatapackError, NotFoundError, UserError
from opsassay.evals.compliance.clusters.controls import controls
from opsassay.evals.compliance.clusters.repository import others_of, policy_files, policy_name, stale
from opsassay.evals.compliance.clusters.worlds import merge_maps, mutants, worlds
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.files.submitted import collect
from opsassay.evals.compliance.kyverno.policy import AUTOGEN
from opsassay.evals.compliance.score import RATES, STAGES, grade_files
from opsassay.evals.compliance.scripts.oracles import BASELINES, ORACLES, baseline
from opsassay.evals.compliance.tasks import ANSIBLE, CLASSES, UPDATE, ComplianceTask, kept_task, names, published
from opsassay.evals.runner.generated_tasks import PUBLISHED_SEED
from opsassay.evals.runner.store import RunStore
from opsassay.solvers.agents.contract import AnswerError

SEEDS = (PUBLISHED_SEED, 77, 2**100 + 3)
NO_SHELF = EvidenceCache(Path("/nowhere"))
ENFORCED = [name for name in names() if "-opa-" not in name]
TASK = ComplianceTask(name="new-kyverno-privileged-containers", seed=PUBLISHED_SEED)


def stages_failed(files, task):
    found = grade_files(files, task, NO_SHELF)
    return {name for name in STAGES if found[name].value == 0.0}, found


def test_there_are_fifty_tasks_each_with_many_wrong_oracles():
    heads = [one.task_info for one in published()]
    assert [sum(head.task_class == name for head in heads) for name in CLASSES] == [10, 10, 20, 10]
    assert [head.stratum for head in heads] == ["easy"] * 10 + ["medium"] * 30 + ["hard"] * 10
    assert len({head.commitment for head in heads}) == 50
    for head in heads:
        assert head.oracles[0] == "right"
        assert len(head.oracles) >= 10


@pytest.mark.sampled(every=96)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ENFORCED)
def test_the_right_oracle_passes_and_every_other_fails_first_where_it_says(name, seed):
    task = ComplianceTask(name=name, seed=seed)
    for oracle, (play, stage) in ORACLES[task.task_class].items():
        files = {path: content for path, content in play(task).items() if path.startswith("policies/")}
        failed, found = stages_failed(files, task)
        assert failed == ({stage} if stage else set()), oracle
        assert found["passed"].value == float(oracle == "right")
        if oracle == "right":
            assert [found[rate].value for rate in RATES] == [0.0, 0.0, 1.0]
    for name in BASELINES:
        found = grade_files(baseline(name, task), task, NO_SHELF)
        assert found["passed"].value == 0.0
        if name != "untouched":
            assert [found[rate].value for rate in RATES] == [float(name == "deny-all"), float(name == "allow-all"), 0.5]


@pytest.mark.parametrize("name", controls())
def test_a_mutant_differs_from_its_world_at_one_place_alone(name):
    control = controls()[name]
    for world, mutant in zip(worlds(control, 5, "judged", 6), mutants(control, 5, "judged", 6), strict=True):
        assert world.compliant is not mutant.compliant
        differing = [pair for pair in zip(world.objects, mutant.objects, strict=True) if pair[0] != pair[1]]
        assert len(differing) == 1
        assert [one["metadata"] for one, _ in differing] == [other["metadata"] for _, other in differing]


@pytest.mark.parametrize("name", controls())
def test_labels_cannot_be_told_by_names_kinds_or_counts(name):
    """Whoever sees all but the fragment of the control sees the same worlds on both sides."""
    control = controls()[name]
    for number in range(12):
        pair = [worlds(control, seed, "judged", 6)[number].compliant for seed in (1, 2)]
        assert pair == [number >= 6] * 2
    one, other = worlds(control, 9, "judged", 6), list(mutants(control, 9, "judged", 6))
    shapes = [[(o["kind"], o["metadata"]) for o in world.objects] for world in (*one, *other)]
    assert shapes[:12] == shapes[12:]


def test_examples_are_no_worlds_that_are_judged():
    for task in published():
        shown = list(task.example_worlds().values())
        assert len(shown) == 4
        judged = task.judged_hosts() if task.task_class == ANSIBLE else task.judged()
        assert not [one for one in judged if one in shown]


@pytest.mark.parametrize("name", controls())
def test_what_stands_in_a_repository_lets_something_through_and_nothing_else_is_wrong(name):
    task = ComplianceTask(name=f"{UPDATE}-{name}", seed=3)
    failed, found = stages_failed(
        {path: content for path, content in task.files().items() if path.startswith("policies/")}, task
    )
    assert failed == {"posture"}
    assert found["false_positive_rate"].value == 0.0
    assert found["false_negative_rate"].value > 0.0


def test_a_policy_for_one_place_of_the_examples_fails_on_the_others():
    control = TASK.control
    only_containers = control.policy("mine", validate={"failureAction": "Enforce", "pattern": {
        "spec": {"containers": [control.pattern]}}})  # fmt: skip
    only_shop = control.policy(
        "mine", match={"any": [{"resources": {"kinds": ["Pod"], "namespaces": ["shop", "billing"]}}]}
    )
    for policy in (only_containers, only_shop):
        failed, found = stages_failed(policy_files(policy), TASK)
        assert failed == {"posture"}
        assert found["mutation_kill_rate"].value < 1.0


@pytest.mark.parametrize(
    "kinds", ["Deployment, StatefulSet, CronJob, Job", "Deployment, StatefulSet, CronJob, DaemonSet"]
)
def test_a_policy_that_forgets_one_kind_of_controllers_fails(kinds):
    policy = TASK.control.policy("mine")
    policy["metadata"]["annotations"] = {AUTOGEN: kinds}
    assert stages_failed(policy_files(policy), TASK)[0] == {"posture"}


def test_a_policy_that_leaves_out_the_namespaces_of_the_cluster_itself_fails():
    excluded = {"any": [{"resources": {"namespaces": ["kube-*"]}}]}
    assert stages_failed(policy_files(TASK.control.policy("mine", exclude=excluded)), TASK)[0] == {"posture"}


@pytest.mark.parametrize("text", [b"", b"# nothing\n", b"---\n---\n", b"null\n"])
@pytest.mark.parametrize("name", [TASK.name, f"{UPDATE}-host-ports"])
def test_files_without_a_policy_are_no_artefact_and_never_pass(text, name):
    failed, found = stages_failed({"policies/a.yaml": text}, ComplianceTask(name=name, seed=1))
    assert failed == {"artefact"}
    assert found["passed"].value == 0.0


def test_files_may_be_ordered_and_named_in_any_way():
    task = ComplianceTask(name=f"{UPDATE}-host-ports", seed=1)
    files = ORACLES[UPDATE]["right"][0](task)
    renamed = {f"policies/{n}.yml": content for n, content in enumerate(reversed(files.values()))}
    together = {"policies/all.yaml": b"---\n".join(files.values())}
    assert [stages_failed(some, task)[0] for some in (renamed, together)] == [set(), set()]


def test_a_policy_of_the_repository_may_not_be_changed_even_where_no_world_tells():
    task = ComplianceTask(name=f"{UPDATE}-host-ports", seed=1)
    other = others_of("host-ports", 1)[0]
    policy = copy.deepcopy(controls()[other].policy(policy_name(other)))
    policy["metadata"]["labels"]["section"] = "none"
    failed, found = stages_failed({**ORACLES[UPDATE]["right"][0](task), **policy_files(policy)}, task)
    assert failed == {"kept"}
    assert policy_name(other) in found["kept"].reason
    wider = merge_maps(stale("host-ports"), {})
    wider["spec"]["rules"][0]["exclude"] = {"any": [{"resources": {"namespaces": ["legacy", "kube-*"]}}]}
    assert "kept" in stages_failed({**ORACLES[UPDATE]["right"][0](task), **policy_files(wider)}, task)[0]


def test_only_plain_files_of_the_policies_folder_are_taken(tmp_path):
    work, run_dir = tmp_path / "work", tmp_path / "run"
    with pytest.raises(AnswerError, match="no folder policies"):
        collect(work, run_dir, TASK)
    (work / "policies").mkdir(parents=True)
    (work / "policies" / "notes.txt").write_text("x")
    with pytest.raises(AnswerError, match="holds no"):
        collect(work, run_dir, TASK)
    (work / "policies" / "a.yaml").symlink_to("/etc/passwd")
    with pytest.raises(AnswerError, match=r"a\.yaml"):
        collect(work, run_dir, TASK)
    (work / "policies" / "a.yaml").unlink()
    os.mkfifo(work / "policies" / "a.yaml")
    with pytest.raises(AnswerError, match=r"a\.yaml"):
        collect(work, run_dir, TASK)
    (work / "policies" / "a.yaml").unlink()
    (work / "policies" / "a.yaml").write_bytes(b"x" * (10 * 2**20))
    with pytest.raises(AnswerError, match="larger"):
        collect(work, run_dir, TASK)
    (work / "policies" / "a.yaml").unlink()
    for n in range(51):
        (work / "policies" / f"{n}.yaml").write_text("a: 1")
    with pytest.raises(AnswerError, match="more than 50"):
        collect(work, run_dir, TASK)
    assert not (run_dir / "answer").exists()
    (work / "policies").rename(work / "real")
    (work / "policies").symlink_to("real")
    with pytest.raises(AnswerError, match="no folder"):
        collect(work, run_dir, TASK)


def run_plan(tmp_path, capsys, part, code=0):
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"domain": "ciso", **part}))
    assert command_line(["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "store"), "--json"]) == code
    return {item["solver"]: item for item in json.loads(capsys.readouterr().out)["items"]}


def test_a_plan_is_run_graded_gone_on_with_and_shown(tmp_path, capsys):
    part = {"tasks": [TASK.name], "agents": ["oracle:right", "oracle:wrong-folder", "deny-all"]}
    found = run_plan(tmp_path, capsys, part, code=1)  # one of them leaves nothing
    assert [found[name]["metrics"]["passed"]["value"] for name in found] == [1.0, 0.0, 0.0]
    assert found["oracle:wrong-folder"]["status"] == "failed"
    assert "no folder policies/" in found["oracle:wrong-folder"]["error"]
    assert "9 of 9 compliant ones kept out" in found["deny-all"]["metrics"]["passed"]["reason"]
    assert found["deny-all"]["not_ranked"] == []
    store = RunStore(tmp_path / "store")
    attempts = len(store.attempts())
    run_plan(tmp_path, capsys, part, code=1)
    assert len(store.attempts()) == attempts
    assert command_line(["score", "table", str(store.root), "--json"]) == 0
    tables = {one["table"]: one for one in json.loads(capsys.readouterr().out)["items"]}
    assert [row["new-kyverno pass@1"] for row in tables[5]["rows"]] == ["0.0%", "100.0%", "0.0%"]
    assert [row["submitted"] for row in tables[24]["rows"]] == ["100.0%", "100.0%", "0.0%"]
    assert command_line(["report", str(store.root), "-o", str(tmp_path / "pages")]) == 0
    pages = [path.read_text() for path in sorted((tmp_path / "pages").glob("*.html"))]
    assert len(pages) == 4, "three runs and their index"
    assert sum("kept out" in page and "<pre>apiVersion: kyverno.io/v1" in page for page in pages) == 2


AGENT = """
import pathlib, sys
view, work = (pathlib.Path(place) for place in sys.argv[1:])
shown = sorted(path.name for path in (view / "examples").iterdir())
assert shown == ["compliant-1.yaml", "compliant-2.yaml", "violating-1.yaml", "violating-2.yaml"], shown
work.mkdir()
(work / "mine.yaml").write_text(pathlib.Path(__file__).with_name("mine.yaml").read_text())
"""


@pytest.mark.parametrize("sealing", ["auto", "off"])
def test_an_external_agent_reads_examples_and_leaves_policies(tmp_path, capsys, sealing):
    (tmp_path / "write.py").write_text(AGENT)
    (tmp_path / "mine.yaml").write_bytes(next(iter(policy_files(TASK.control.policy("mine")).values())))
    agent = {
        "agent": "writer",
        "command": ["{python}", "{agent}/write.py", "{view}", "{answer}"],
        "files": ["write.py", "mine.yaml"],
    }
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent))
    found = run_plan(
        tmp_path, capsys, {"tasks": [TASK.name], "agents": ["agent.yaml"], "settings": {"sealing": sealing}}
    )
    assert found["writer"]["metrics"]["passed"]["value"] == 1.0, found["writer"]


def test_an_agent_that_hangs_is_a_failed_attempt(tmp_path, capsys):
    agent = {"agent": "sleeper", "command": ["sleep", "60"], "limits": {"seconds": 2}}
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent))
    found = run_plan(tmp_path, capsys, {"tasks": [TASK.name], "agents": ["agent.yaml"]}, code=1)
    assert found["sleeper"]["metrics"]["passed"]["value"] == 0.0
    assert found["sleeper"]["status"] == "timeout"


def test_worlds_of_held_out_tasks_follow_from_the_secret(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("s" * 16)
    one, two = ComplianceTask.held_out_ones(TASK.name, secret, 2)
    assert ComplianceTask.held_out_ones(TASK.name, secret, 1) == [one]
    assert one.judged() != two.judged() != TASK.judged()
    secret.write_text("short")
    with pytest.raises(UserError, match="could be guessed"):
        ComplianceTask.held_out_ones(TASK.name, secret, 1)


def test_a_store_keeps_its_tasks_and_another_one_in_their_place_is_refused(tmp_path):
    TASK.keep(tmp_path)
    assert kept_task(tmp_path, TASK.commitment) == TASK
    path = next((tmp_path / "compliance_tasks").iterdir())
    path.write_text(path.read_text().replace('"seed": 1', '"seed": 2'))
    with pytest.raises(DatapackError, match="not what its name says"):
        kept_task(tmp_path, TASK.commitment)
    with pytest.raises(DatapackError, match="cannot be read"):
        kept_task(tmp_path, "0" * 64)


@pytest.mark.parametrize(
    "part", [{"tasks": ["nope"], "agents": ["deny-all"]}, {"agents": ["nope"]}, {"agents": ["oracle:nope"]}]
)
def test_what_a_plan_names_wrongly_is_said(tmp_path, capsys, part):
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"domain": "ciso", **part}))
    assert command_line(["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "store")]) == 2
    assert "nope" in capsys.readouterr().err
    assert not (tmp_path / "store" / "runs").exists()
    with pytest.raises(NotFoundError):
        print(ComplianceTask(name="nope", seed=1).goal)
