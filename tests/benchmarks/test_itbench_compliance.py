"""ITBench's public compliance examples: they load, their evaluators accept what is wrong, ours does not."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import yaml
from benchmarks.papers.itbench_compliance import new_policies, updates
from benchmarks.papers.itbench_compliance.__main__ import command
from benchmarks.papers.itbench_compliance.examples import ANSIBLE, CLASSES, EVALUATORS, NEW, UPDATE
from benchmarks.papers.itbench_compliance.new_policies import placed
from benchmarks.papers.itbench_compliance.public_rules import checks_pass, prints_false, some_failure, stands_in
from benchmarks.papers.itbench_compliance.reading import read_examples
from benchmarks.papers.itbench_compliance.reports import report, reports_of
from benchmarks.papers.itbench_compliance.table import NEEDS_REGO, accepted_wrongly
from benchmarks.papers.running import run as command_line

from opsassay.core.errors import UserError
from opsassay.evals.compliance.clusters.repository import policy_files
from opsassay.evals.compliance.kyverno.documents import documents
from opsassay.evals.compliance.kyverno.policy import read_policies

MADE = Path(__file__).parents[2] / "examples" / "compliance" / "itbench"

ACCEPTED_WRONGLY = {
    ("new-kyverno", "deny all"): "found to violate",
    ("new-kyverno", "a policy about something else: an owner"): "found to violate",
    ("new-kyverno", "deny by the name of the example"): "not found to violate",
    ("new-kyverno", "the control, in the example's namespace alone"): "not found to violate",
    ("new-kyverno", "no policy, and a report written by hand"): "there is no policy",
    ("new-opa-kubectl", "right, in fetcher.sh alone"): "there is no script.sh",
    ("new-opa-kubectl", "constant false"): "false for pods",
    ("new-opa-kubectl", "a fetcher that prints canned data"): "the same, whatever the world",
    ("new-opa-kubectl", "a fetcher that does nothing, and evidence written by hand"): "counts for nothing",
    ("new-opa-kubectl", "false by the name of the example"): "true for pods",
    ("new-opa-ansible", "constant false"): "false for a host",
    ("new-opa-ansible", "a fetcher that prints canned data"): "the same, whatever the world",
    ("new-opa-ansible", "a fetcher that does nothing, and evidence written by hand"): "counts for nothing",
    ("new-opa-ansible", "a policy about something else: root logins"): "false for a host",
    ("update-kyverno", "nothing, and a report written by hand"): "the example's pod",
    ("update-kyverno", "deny all, under the name"): "found to violate",
    ("update-kyverno", "deny by the name of the example"): "leaves out other objects than before",
    ("update-kyverno", "the old control of that policy dropped"): "privilege escalation",
    ("update-kyverno", "the registry alone, root forgotten"): "a root user",
    ("update-kyverno", "a policy added"): "was added",
    ("update-kyverno", "a rule added to another policy"): "was changed",
    ("update-kyverno", "another policy leaves a namespace out"): "was changed",
    ("update-kyverno", "a rule removed from another policy, of two"): "was changed",
    ("update-kyverno", "another policy weakened to Audit, where policies enforce"): "was changed",
    ("update-kyverno", "the policy weakened to Audit, where policies enforce"): "not found to violate",
    ("update-kyverno", "the policy removed, where pass is expected"): "was removed",
}
"""What every folder shows, by class and answer, and what ours says of it."""
BY_REGO = {"constant false", "false by the name of the example", "a policy about something else: root logins"}


@pytest.fixture(params=["made", "public"])
def folder(request):
    return MADE if request.param == "made" else request.getfixturevalue("real_data") / "itbench-ciso"


@pytest.fixture
def public(real_data):
    return read_examples(real_data / "itbench-ciso")


def regorus_engine():
    """Return a Rego engine that takes both syntaxes of Rego."""
    regorus = pytest.importorskip("regorus")

    def rego(policy, evidence):
        engine = regorus.Engine()
        engine.set_rego_v0(True)
        engine.add_policy("policy.rego", policy.decode())
        engine.set_input_json(json.dumps(evidence))
        return {True: "true", False: "false"}.get(engine.eval_rule("data.check.result"), "undefined")

    return rego


def by_answer(table):
    return {(row["class"], row["answer"]): row for row in table.as_item()["rows"]}


def test_each_defect_is_accepted_by_the_public_rule_and_refused_by_ours(folder):
    table = accepted_wrongly(read_examples(folder), regorus_engine())
    rows = by_answer(table)
    for key, why in ACCEPTED_WRONGLY.items():
        row = rows[key]
        assert (row["right"], row["public evaluator"], row["ours"]) == ("no", "accepted", "refused"), row
        assert why in row["why"], row
    assert {row["class"] for row in rows.values()} == set(CLASSES.values())
    wrong, right = ([row for row in rows.values() if row["right"] == label] for label in ("no", "yes"))
    assert {row["ours"] for row in wrong} == {"refused"}
    assert {row["ours"] for row in right} == {"accepted"}
    assert [key for key, row in rows.items() if row in right and row["public evaluator"] == "refused"] == [
        ("new-opa-kubectl", "right, in script.sh as the goal says")
    ]
    assert len(rows) == len(table.rows)
    assert table.statistics["wrong_answers"] == len(wrong)
    assert table.statistics["wrong_answers_accepted_by_the_public_evaluators"] == 27
    assert table.statistics["wrong_answers_accepted_by_ours"] == table.statistics["right_answers_refused_by_ours"] == 0


@pytest.mark.slow
def test_what_is_stated_of_opa_is_what_an_engine_says(folder):
    """Without an engine the public column is the same, and ours is open where a policy has to be judged."""
    examples = read_examples(folder)
    without, judged = by_answer(accepted_wrongly(examples)), by_answer(accepted_wrongly(examples, regorus_engine()))
    assert {key: row["public evaluator"] for key, row in without.items()} == {
        key: row["public evaluator"] for key, row in judged.items()
    }
    for (task_class, answer), row in without.items():
        needed = "opa" in task_class and judged[task_class, answer]["ours"] == "accepted"
        needed = needed or answer in BY_REGO or answer == "constant true"
        assert (row["ours"] == NEEDS_REGO) is needed, row


@pytest.mark.slow
@pytest.mark.parametrize("outcome", ["true", "false", "undefined", "error"])
def test_a_policy_that_says_one_thing_of_everything_is_refused(outcome):
    rows = by_answer(accepted_wrongly(read_examples(MADE), lambda *_: outcome))
    judged = [row for key, row in rows.items() if "opa" in key[0]]
    assert {row["ours"] for row in judged} == {"refused"}


def test_the_reports_that_ship_are_those_that_our_evaluator_writes(folder):
    examples = read_examples(folder)
    new, update = examples.new_kyverno, examples.update_kyverno
    workload, pod = placed(new.workload), placed(update.pod)

    def said(reports, about):
        about = (about["kind"], about["metadata"]["name"])
        (one,) = [each for each in reports if (each["scope"]["kind"], each["scope"]["name"]) == about]
        results = {(each["policy"], each["rule"], each["result"]) for each in one["results"]}
        return results, one["scope"]["namespace"], one["summary"]

    policies = read_policies([("policy.yaml", new.policy)])
    assert said(reports_of(policies, [workload]), workload) == said(new.reports, workload)
    assert some_failure(new.reports, workload)
    before = updates._by_name(update.repository)
    for after, shipped, passes in (
        (before, update.reports_before, False),
        ({**before, **updates._by_name(update.fixed)}, update.reports_after, True),
    ):
        policies = read_policies(policy_files(*after.values()).items())
        assert said(reports_of(policies, [pod]), pod) == said(shipped, pod)
        assert checks_pass(update.checks, list(before.values()), list(after.values()), shipped) is passes


def listed(items):
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def run_script(path, *arguments):
    done = subprocess.run(
        [sys.executable, str(path), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    return done.returncode == 0 and json.loads(done.stdout)["pass"]


def files_of(folder, **values):
    for name, value in values.items():
        (folder / f"{name}.yaml").write_text(json.dumps(value, default=str))
    return {name: folder / f"{name}.yaml" for name in values}


@pytest.mark.slow
def test_the_new_policy_rule_is_that_of_the_public_script(real_data, public, tmp_path):
    example = public.new_kyverno
    assert example.evaluator_is == "stated again"
    workload = placed(example.workload)
    own, other = report(workload, [{"result": "fail"}]), report(workload, [{"result": "pass"}])
    nowhere = {**own, "scope": {key: value for key, value in own["scope"].items() if key != "namespace"}}
    elsewhere = {**own, "scope": {**own["scope"], "namespace": "other"}}
    without = {key: value for key, value in own.items() if key != "scope"}
    cases = [[], [own], [other], [other, own], [nowhere], [elsewhere], [without, own], list(example.reports)]
    for answer in new_policies._answers(example):
        policies = read_policies(answer.files.items())
        cases.append([*reports_of(policies, [workload]), *answer.reports])
    script = real_data / "itbench-ciso" / NEW / EVALUATORS[NEW][0]
    meta = workload["metadata"]
    target = ["--api-version", workload["apiVersion"], "--kind", workload["kind"], "--namespace", meta["namespace"]]
    found = []
    for reports in cases:
        paths = files_of(tmp_path, polr=listed(reports), cpolr=listed([]))
        arguments = ["-polr", paths["polr"], "-cpolr", paths["cpolr"], *target, "--name", meta["name"]]
        found.append(run_script(script, *arguments, "--agent-output", tmp_path / "none"))
        assert some_failure(reports, workload) is found[-1], reports
    assert set(found) == {True, False}


@pytest.mark.slow
def test_the_update_rule_is_that_of_the_public_script(real_data, public, tmp_path):
    example = public.update_kyverno
    assert example.evaluator_is == "stated again"
    judge = runpy.run_path(str(real_data / "itbench-ciso" / UPDATE / EVALUATORS[UPDATE][0]))["main"]
    objects, found, cases = [placed(one) for one in example.objects], [], []
    for answer in updates._answers(example):
        reports = answer.reports or reports_of(read_policies(policy_files(*answer.after.values()).items()), objects)
        cases.append((answer.case.before, answer.after, reports))
    (check,) = example.checks.check_violations
    both = [{"policy": check.policy_name, "result": result} for result in ("fail", "pass")]
    pod, before = placed(example.pod), updates._by_name(example.repository)
    for results in (both, both[::-1], [{"policy": "other", "result": "fail"}, *both], []):
        cases += [(before, before, [report(pod, results)]), (before, before, [report(pod, []), report(pod, results)])]
    for (before, after, reports), (strict, expected) in product(cases, product((False, True), ("fail", "pass"))):
        changed = check.model_copy(update={"strict_check": strict, "expected_result": expected})
        checks = example.checks.model_copy(update={"check_violations": (changed,)})
        policies = list(before.values()), list(after.values())
        paths = files_of(
            tmp_path, config=checks.model_dump(mode="json"), pol=listed([]), cpol=listed(policies[1]),
            polr=listed(reports), cpolr=listed([]),
        )  # fmt: skip
        (tmp_path / "epol.yaml").write_text(yaml.safe_dump_all(policies[0]))
        inputs = [paths[name] for name in ("pol", "cpol", "polr", "cpolr")]
        judge(paths["config"], tmp_path / "epol.yaml", *inputs, tmp_path / "said.json")
        found.append(json.loads((tmp_path / "said.json").read_text())["pass"])
        assert checks_pass(checks, *policies, reports) is found[-1], (changed, reports)
    assert set(found) == {True, False}


@pytest.mark.parametrize(
    ("expected", "found", "stands"),
    [
        ([1], [1, 2], True), ([1, 2], [1], True), ([1, 2], [], True), ([1], [2], False), ({}, {"a": 1}, True),
        ({"a": 1}, {}, False), ({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}]}, True), ([1], 1, False), ({}, [], False),
    ],
)  # fmt: skip
def test_the_one_sided_comparison(expected, found, stands):
    assert stands_in(expected, found) is stands


def test_the_public_rule_of_fetchers_needs_its_own_file_and_false():
    assert prints_false("fetcher.sh", ["fetcher.sh", "policy.rego"], {}, "false")
    assert not prints_false("fetcher.sh", ["script.sh", "policy.rego"], {}, "false")
    assert not prints_false("fetcher.sh", ["fetcher.sh"], {}, "false")
    assert not prints_false("fetcher.sh", ["fetcher.sh", "policy.rego"], None, "false")
    assert not any(prints_false("f", ["f", "policy.rego"], {}, one) for one in ("true", "undefined", "error"))


def test_the_public_folder_holds_what_is_known_of_it(public):
    assert [one.task_class for one in public.each()] == list(CLASSES.values())
    assert "host network namespace" in public.new_kyverno.title == public.kubectl_opa.title + "."
    assert public.kubectl_opa.named_files == ("policy.rego", "script.sh")
    assert public.ansible_opa.named_files == ("playbook.yml", "policy.rego")
    assert (public.ansible_opa.fault, public.ansible_opa.mended) == ("X11Forwarding yes", "X11Forwarding no")
    assert public.ansible_opa.destinations == ("/tmp/ssh_x11_forwarding_compliance.json",)
    assert public.update_kyverno.target == "container-security-controls"
    assert "trusted-registry.com" in public.update_kyverno.goal
    assert [len(one) for one in (public.new_kyverno.reports, public.update_kyverno.objects)] == [3, 3]
    assert [one.evaluator_is for one in public.each()] == ["stated again", "not there", "not there", "stated again"]
    assert [len(documents(public.update_kyverno.repository, "r")), len(public.update_kyverno.reports_before)] == [2, 1]


@pytest.fixture
def copied(tmp_path):
    return Path(shutil.copytree(MADE, tmp_path / "itbench"))


def refusal(folder, capsys):
    """Return the one sentence that the command says of *folder*."""
    with pytest.raises(UserError) as caught:
        accepted_wrongly(read_examples(folder))
    assert command_line(command, [str(folder)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"Error: {caught.value}\n"
    assert re.search(r"\.( \(and \d more\))?$|\? \(and \d more\)$", str(caught.value))
    assert "\n" not in err[:-1]
    return str(caught.value)


@pytest.mark.parametrize("name", sorted(str(path.relative_to(MADE)) for path in MADE.rglob("*") if path.is_file()))
def test_a_missing_file_is_named(copied, capsys, name):
    (copied / name).unlink()
    said = refusal(copied, capsys)
    expected = f"{copied / name}" if "goal" not in name else "README.md has no goal of 1.gen-cis-b-k8s-kyverno"
    assert expected in said
    assert "goal" in name or "is not there; give the folder scenarios/ciso of ITBench's repository" in said


YAML_FILES = sorted(str(path.relative_to(MADE)) for path in MADE.rglob("*.y*ml"))
BOMB = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.slow
@pytest.mark.parametrize("name", YAML_FILES)
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (BOMB, "aliases"),
        ("a: [", "YAML"),
        ("x: " + "[" * 5000, ""),
        ("1: 2\n", ""),
        ("- 1\n- [2]\n", ""),
        ("text", ""),
        ("", ""),
        ("kind: !!python/object/apply:os.system [true]\n", ""),
        ("\0", ""),
        ("a: 1\n" * 70_000, "larger than"),
        ("x" * (2**20 + 1), "larger than 1 MiB"),
    ],
)
def test_a_file_that_is_no_such_yaml_is_one_sentence(copied, capsys, name, content, why):
    (copied / name).write_text(content)
    said = refusal(copied, capsys)
    assert Path(name).name in said
    assert why in said
    assert len(said) < 700


@pytest.mark.parametrize(
    "content", ["[" * 200, "{", "NaN", "[1]", '"x"', "3", '[{"kind": "PolicyReport"}]', "", "\ud800"]
)
@pytest.mark.parametrize(
    "name", [f"{NEW}/examples/example_report.json", f"{ANSIBLE}/examples/example_collected_data.json"]
)
def test_a_file_that_is_no_such_json_is_one_sentence(copied, capsys, name, content):
    (copied / name).write_bytes(content.encode("utf-8", "surrogatepass"))
    assert Path(name).name in refusal(copied, capsys)


def test_what_is_no_folder_or_leads_elsewhere_is_refused(copied, capsys, tmp_path):
    with pytest.raises(UserError, match="is no folder; give the folder"):
        read_examples(tmp_path / "nowhere")
    assert command_line(command, [str(tmp_path / "nowhere")]) == 2
    assert "does not exist" in capsys.readouterr().err
    manifest = copied / UPDATE / "manifests" / "application.yaml"
    manifest.unlink()
    manifest.symlink_to("/etc/passwd")
    assert "is a link, which is not followed" in refusal(copied, capsys)
    manifest.unlink()
    os.mkfifo(manifest)
    assert "is no plain file" in refusal(copied, capsys)


@pytest.mark.parametrize(
    ("name", "old", "new", "why"),
    [
        (f"{NEW}/manifests/application.yaml", "kind: StatefulSet", "kind: 3", "no object of Kubernetes"),
        (f"{NEW}/manifests/application.yaml", "hostNetwork", "2024-01-01: 1\n      hostNetwork", "no object of Kubernetes"),
        (f"{NEW}/manifests/application.yaml", "kind: StatefulSet", "1: 2\nkind: StatefulSet", "no object of Kubernetes"),
        (f"{UPDATE}/examples/example-policy-report-after-fix.yaml", "results:", "1: 2\nresults:", "something else"),
        (f"{NEW}/examples/example_policy.yaml", "validate:", "mutate:", "is not of the subset"),
        (f"{UPDATE}/eval_config.yaml", "policy_name: accounts", "policy_name: nobody", "are not those of"),
        (f"{UPDATE}/eval_config.yaml", "name: basket", "name: other", "does not hold one pod other"),
        (f"{UPDATE}/eval_config.yaml", "policy_name: accounts", "policy: accounts", "policy_name"),
        (f"{UPDATE}/examples/example-fix-policy.yaml", "name: containers", "name: more", "are not those of"),
        (f"{ANSIBLE}/tasks/fault_inject.yml", "line: ", "text: ", "does not put one line"),
        (f"{ANSIBLE}/tasks/fault_inject.yml", "yes\"}", "maybe\"}", "does not hold the line"),
        ("README.md", "#### 3.1", "#### 5.1", "has no goal of 3.gen-cis-b-rhel9-ansible-opa"),
    ],
)  # fmt: skip
def test_files_that_do_not_fit_one_another_are_one_sentence(copied, capsys, name, old, new, why):
    text = (copied / name).read_text()
    assert old in text
    (copied / name).write_text(text.replace(old, new))
    assert why in refusal(copied, capsys)


def test_a_policy_that_ships_and_cannot_be_judged_is_one_sentence(copied, capsys):
    path = copied / NEW / "examples" / "example_policy.yaml"
    conditions = '{conditions: {all: [{key: "{{ request.nothing }}", operator: Equals, value: 1}]}}'
    text = path.read_text()
    path.write_text(text.replace("pattern: {spec: {=(hostNetwork): false}}", f"deny: {conditions}"))
    assert "cannot be judged" in refusal(copied, capsys)


@pytest.mark.slow
def test_another_evaluator_is_said_to_be_another(copied, capsys):
    (copied / UPDATE / EVALUATORS[UPDATE][0]).write_text("print(1)\n")
    assert command_line(command, [str(copied), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["evaluator"] for one in found["items"]] == ["not there"] * 3 + ["another version"]
    assert [one["class"] for one in found["items"]] == list(CLASSES.values())
    assert {"id", "class", "goal", "evaluator"} == set(found["items"][0])
    assert set(found["table"]["rows"][0]) == {"class", "answer", "right", "public evaluator", "ours", "why"}
    assert found["table"]["statistics"]["wrong_answers_accepted_by_the_public_evaluators"] == 27
