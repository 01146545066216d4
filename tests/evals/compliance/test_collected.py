"""Classes that collect evidence: real kubectl and Ansible in a seal, Rego by two engines, and what ends badly."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.evidence_collection.cluster import FETCHER, gather_on_cluster
from opsassay.evals.compliance.evidence_collection.evidence import LIMITS
from opsassay.evals.compliance.evidence_collection.host import PLAYBOOK, gather_on_host
from opsassay.evals.compliance.rego.judging import judge_by_rego
from opsassay.evals.compliance.score import STAGES, grade_files
from opsassay.evals.compliance.scripts.oracles import BASELINES, ORACLES, baseline
from opsassay.evals.compliance.tasks import KUBECTL, POLICY, ComplianceTask, names
from opsassay.solvers.sandbox import sealing_refusal

pytestmark = pytest.mark.skipif(
    sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}"
)
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine")
CLUSTER = ComplianceTask(name="new-opa-kubectl-host-ports", seed=1)
HOST = ComplianceTask(name="new-opa-ansible-ssh-root-login", seed=1)
TRUE = b"package compliance\ncompliant := true\n"
SHORT = replace(LIMITS, wall_clock_s=3.0)
SECOND_ENGINE = """
import json, sys
from regopy import Interpreter
given = json.load(sys.stdin)
for policy in given["policies"]:
    for one in given["inputs"]:
        engine = Interpreter()
        engine.add_module("policy.rego", policy)
        engine.set_input(one)
        found = str(engine.query("value := data.compliance.compliant"))
        value = json.loads(found)["bindings"]["value"] if found.startswith("{") else None
        print("undefined" if value is None else str(value).lower() if isinstance(value, bool) else "error")
"""


@cache
def example(task):
    return next(world for name, world in task.example_worlds().items() if name == "violating-1")


def gathered(script, limits=LIMITS):
    return gather_on_cluster({FETCHER: script.encode()}, example(CLUSTER), limits)


def played(task_text, limits=LIMITS):
    play = f"- hosts: target\n  gather_facts: false\n  tasks:\n    - {task_text}\n"
    return gather_on_host({PLAYBOOK: play.encode()}, example(HOST), limits)


@needs_kubectl
@pytest.mark.slow
@pytest.mark.parametrize("task", [CLUSTER, HOST], ids=["cluster", "host"])
def test_the_right_oracle_passes_and_every_other_fails_first_where_it_says(task, tmp_path):
    shelf = EvidenceCache(tmp_path)
    for oracle, (play, stage) in ORACLES[task.task_class].items():
        found = grade_files(play(task), task, shelf)
        failed = [name for name in STAGES if found[name].value == 0.0]
        assert failed == ([stage] if stage else []), (oracle, found["passed"].reason)
        assert found["passed"].value == float(oracle == "right")
        if oracle == "right":
            assert found["mutation_kill_rate"].value == 1.0
    for name in BASELINES:
        assert grade_files(baseline(name, task), task, shelf)["passed"].value == 0.0


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in names() if name.startswith(KUBECTL)])
def test_both_engines_agree_on_every_policy_and_every_world_of_a_cluster(name):
    """Here the items are the world's own; that kubectl fetches them is another test's."""
    task = ComplianceTask(name=name, seed=2**70)
    worlds = [*task.judged(), *task.mutants()]
    inputs = [json.dumps({"items": list(world.objects)}).encode() for world in worlds]
    require_agreement(task, inputs, [str(world.compliant).lower() for world in worlds])


@pytest.mark.sampled
@pytest.mark.parametrize("name", [name for name in names() if name.startswith("new-opa-ansible")])
def test_both_engines_agree_on_every_policy_of_a_host(name, tmp_path):
    """Here the lines are what the host's own commands print; that Ansible collects them is another test's."""
    task = ComplianceTask(name=name, seed=2**71)
    hosts = [*task.judged_hosts(), *task.mutant_hosts()]
    inputs = [lines_of(world, task.host_control.command, tmp_path / f"{n}") for n, world in enumerate(hosts)]
    require_agreement(task, inputs, [str(world.compliant).lower() for world in hosts])


def require_agreement(task, inputs, labels):
    """Hold every policy of an oracle that is one against both engines; the right one is right."""
    oracles = ORACLES[task.task_class].items()
    policies = {play(task)[POLICY]: oracle for oracle, (play, stage) in reversed(oracles) if stage != "artefact"}
    assert len(policies) == 7
    given = {"policies": [one.decode() for one in policies], "inputs": [json.loads(one) for one in inputs]}
    second = subprocess.run(
        [sys.executable, "-c", SECOND_ENGINE], input=json.dumps(given), capture_output=True, text=True, check=True
    ).stdout.split()
    for n, (policy, oracle) in enumerate(policies.items()):
        first = [one.kind for one in judge_by_rego(policy, inputs).outcomes]
        assert second[n * len(inputs) : (n + 1) * len(inputs)] == first, oracle
        assert (first == labels) is (oracle == "right"), oracle


def lines_of(world, command, folder):
    for path, text in world.files.items():
        if not path.startswith(("proc", "usr")):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
            (folder / path).chmod(0o755)
    command = command.replace("/etc/", f"{folder}/etc/")
    path = f"{folder}/opt/opsassay-host/bin:/usr/bin:/bin"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, env={"PATH": path})
    return json.dumps({"lines": [*done.stdout.splitlines(), world.files["etc/hostname"].strip()]}).encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "outcome"),
    [
        (TRUE, "true"),
        (b"package compliance\ncompliant := false", "false"),
        (b"package compliance\ncompliant if input.absent", "undefined"),
        (b'package compliance\ncompliant := "true"', "error"),
        (b"package compliance\ncompliant := 1 / 0", "undefined"),
        (b"package compliance\ncompliant := true\ncompliant := false", "error"),
    ],
)
def test_a_policy_has_four_outcomes(policy, outcome):
    (found,) = judge_by_rego(policy, [b"{}"]).outcomes
    assert found.kind == outcome
    assert bool(found.reason) is (outcome == "error")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (b"x" * (10 * 2**20), "more than"),
        (b"\x00\xff", "not UTF-8"),
        (b"", "empty"),
        (b"compliant { true }", "package"),
        (b"package compliance\ncompliant { true }", "if"),
        (b"package other\ncompliant := true", "not compliance"),
        (b"package compliance\ncompliant if " + b"(" * 9999, "policy.rego:2"),
        (b"import java.util.List;\nclass A { }", "java"),
    ],
)
def test_what_is_no_policy_is_said_in_one_sentence(policy, said):
    found = judge_by_rego(policy, [b"{}"])
    assert said in found.problem
    assert "\n" not in found.problem
    assert len(found.problem) < 400


def test_a_policy_that_does_not_end_is_an_error_on_what_it_did_not_come_to():
    slow = b"""package compliance
compliant if count([1 | some a in numbers.range(1, input.n); some b in numbers.range(1, input.n); a == b]) > 0"""
    limits = replace(LIMITS, wall_clock_s=2.0)
    one, two, three = judge_by_rego(slow, [b'{"n": 2}', b'{"n": 99999}', b'{"n": 2}'], limits).outcomes
    assert one.kind == "true"
    assert two.kind == three.kind == "error"
    assert "killed at the limit" in two.reason


@pytest.mark.sampled
@needs_kubectl
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("sleep 60", "killed at the limit"),
        ("while true; do echo x; done", "killed at the limit"),
        ("exit 3", "exit code 3"),
        ("true", "there is no collected_data.json"),
        ("echo '{' > collected_data.json", "no JSON"),
        ("echo NaN > collected_data.json", "no value of JSON"),
        ("head -c 99 /dev/urandom > collected_data.json", "no JSON"),
        ("printf '%0.s[' {1..99999} > collected_data.json", "no JSON"),
        ("ln -s /etc/passwd collected_data.json", "symbolic link"),
        ("mkfifo collected_data.json", "FIFO"),
        ("head -c 9000000 /dev/zero | tr '\\0' 1 > collected_data.json", "more than may be collected"),
        ("kubectl delete pod --all -A && echo 1 > collected_data.json", "orbidden"),
        ("set -e; exec 3<>/dev/tcp/93.184.216.34/80; echo 1 > collected_data.json", "unreachable"),
        ("set -e; echo x > /etc/motd; echo 1 > collected_data.json", "Read-only"),
    ],
)
def test_a_fetcher_that_does_not_fetch_is_graded_and_reaches_nothing(script, said):
    found = gathered(script, SHORT)
    assert found.data is None
    assert said in found.problem, found.problem


@needs_kubectl
def test_what_a_fetcher_leaves_in_one_world_is_not_there_in_the_next():
    places = "/tmp/seen seen /dev/shm/seen"
    script = f"set -e; for one in {places}; do test ! -e $one; touch $one; done; echo 1 > collected_data.json"
    assert [gathered(script).data for _ in range(2)] == [b"1\n"] * 2


@needs_kubectl
def test_no_fetcher_can_tell_which_world_it_is_in_but_by_its_objects():
    """The same script before a world and its mutant sees the same names, times, places and numbers."""
    looking = "env | sort; cat $KUBECONFIG; ls -A /view /work /tmp; kubectl version -o json; hostname; cat /proc/mounts"
    made = "touch collected_data.json"  # else the end of the pipe makes it, before or after the places are listed
    probe = f"{made}; ({looking}) 2>&1 | base64 -w0 | sed 's/.*/\"&\"/' > collected_data.json"
    files = {FETCHER: probe.encode()}
    found = [
        base64.b64decode(gather_on_cluster(files, world).data.strip(b'"\n')).decode().splitlines()
        for world in (CLUSTER.judged()[0], CLUSTER.mutants()[0], CLUSTER.judged()[5])
    ]
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ansible.builtin.command: sleep 60", "killed at the limit"),
        ("ansible.builtin.command: 'false'", "non-zero return code"),
        ("no.such.module: {}", "resolve"),
        ("ansible.builtin.debug: {msg: '{{ nothing }}'}", "undefined"),
        ("local_action: {module: ansible.builtin.copy, content: x, dest: /etc/motd}", "not writable"),
        ("ansible.builtin.uri: {url: 'http://93.184.216.34'}", "unreachable"),
    ],
)
def test_a_playbook_that_does_not_collect_is_graded_and_reaches_nothing(text, said):
    limits = SHORT if "sleep" in text else LIMITS
    found = played(text, limits)
    assert found.data is None
    assert said in found.problem, found.problem


@pytest.mark.slow
def test_local_actions_facts_and_become_work_inside_the_host():
    play = """
- hosts: target
  become: true
  tasks:
    - local_action: {module: ansible.builtin.command, cmd: cat /etc/os-release}
      register: here
    - ansible.builtin.copy:
        content: "{{ [here.stdout, ansible_facts.distribution] | to_json }}"
        dest: collected_data.json
"""
    found = gather_on_host({PLAYBOOK: play.encode()}, example(HOST))
    text, name = json.loads(found.data)
    assert 'ID="rhel"' in text, found
    assert name == "RedHat"


@pytest.mark.parametrize(
    ("playbook", "said"),
    [
        (b"", "empty"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"hosts: target", "no list of plays"),
        (b"- tasks: []", "no hosts"),
        (b"a: [", "no YAML"),
        (b"[" * 5000, "nests deeper"),
    ],
)
def test_what_is_no_playbook_is_no_artefact(playbook, said, tmp_path):
    found = grade_files({PLAYBOOK: playbook, POLICY: TRUE}, HOST, EvidenceCache(tmp_path))
    assert found["artefact"].value == 0.0
    assert said in found["passed"].reason


def test_evidence_is_collected_once_and_kept(tmp_path):
    shelf, runs = EvidenceCache(tmp_path), []

    def gather(collector, world):
        runs.append(world)
        return gather_on_cluster(collector, world)

    collector, (one, other) = {FETCHER: b"echo 1 > collected_data.json"}, CLUSTER.judged()[:2]
    found = [shelf.take(collector, world, gather) for world in (one, one, other)]
    assert runs == [one, other]
    assert found[0] == found[1]
    shelf.take({FETCHER: b"echo 2 > collected_data.json"}, one, gather)
    assert len(runs) == 3


def test_a_read_only_store_is_graded_all_the_same(tmp_path):
    (tmp_path / "file").write_text("no folder")
    shelf = EvidenceCache(Path(tmp_path / "file" / "shelf"))
    assert shelf.take({FETCHER: b"echo 1 > collected_data.json"}, example(CLUSTER), gather_on_cluster).data == b"1\n"
