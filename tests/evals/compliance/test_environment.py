"""The agent's side: tools over a workspace that lead nowhere else, what counts when, and the built-in agent's twin."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from opsassay.cli import run as command_line
from opsassay.evals.compliance.environment import WorkspaceEnvironment
from opsassay.evals.compliance.scripts.oracles import ORACLES
from opsassay.evals.compliance.tasks import ComplianceTask
from opsassay.evals.runner.run import open_session
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.sandbox import sealing_refusal

ROOT = Path(__file__).parents[3]
NEW = ComplianceTask(name="new-kyverno-host-ports", seed=1)
UPDATE = ComplianceTask(name="update-kyverno-host-ports", seed=1)
CLUSTER = ComplianceTask(name="new-opa-kubectl-host-ports", seed=1)
HOST = ComplianceTask(name="new-opa-ansible-ip-forwarding", seed=1)
sealed = pytest.mark.skipif(sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}")
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine")


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens the session of a task."""
    with ExitStack() as stack:

        def opened(task, examples=2, **limits):
            (tmp_path / "run").mkdir()
            environment = WorkspaceEnvironment(task, tmp_path / "run", Meter(Limits(**limits)), examples)
            session = stack.enter_context(open_session(environment))
            session.environment = environment
            return session

        yield opened


def used(session, tool, **arguments):
    call = session.call(tool, arguments)
    return call.status, call.output


def left_by(session, files):
    for path, content in files.items():
        assert used(session, "write_file", path=path, content=content.decode()) == ("ok", "Written.")


@pytest.mark.parametrize(
    ("task", "own"),
    [
        (NEW, {"kyverno_lint", "kyverno_apply", "kubectl"}),
        (UPDATE, {"kyverno_lint", "kyverno_apply", "kubectl"}),
        (CLUSTER, {"kubectl", "run_fetcher", "opa_check", "opa_eval"}),
        (HOST, {"ansible_playbook", "opa_check", "opa_eval"}),
    ],
)
def test_each_class_has_its_tools(opened, task, own):
    names = {spec.name for spec in opened(task).specs()}
    assert names == {"list_files", "read_file", "write_file", "git", "think", "submit", *own}


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x", "a/../../x", "", ".", ".git/hooks/pre-commit", "a/.git/config", ".gitattributes", "a\0b",
     "a\nb", "\udcff", "x" * 300, "/".join("a" * 20)],
)  # fmt: skip
def test_no_path_leads_out_of_the_workspace_or_into_git(opened, path, tmp_path):
    one = opened(NEW)
    for tool, more in (("read_file", {}), ("write_file", {"content": "x"})):
        status, output = used(one, tool, path=path, **more)
        assert status == "error"
        assert "is no path in the workspace" in output
    assert [at.name for at in tmp_path.iterdir()] == ["run"]
    assert sorted(at.name for at in one.environment.folder.iterdir()) == ["view", "workspace"]


@pytest.mark.parametrize(
    "words",
    [["clone", "/"], ["-c", "x=y", "log"], ["diff", "--no-index", "/etc/passwd", "/dev/null"], ["diff", "/etc/passwd", "x"],
     ["commit", "-F", "/etc/passwd"], ["log", "--output=x"], ["diff", "../run", "x"], ["add", "--chmod=+x", "x"],
     ["show", ":/"], ["restore", "-m", "--pathspec-from-file=/etc/passwd"], ["log", "-m", "--output=/tmp/opsassay-left"],
     ["commit", "-m", "-m", "--pathspec-from-file=/etc/passwd"], ["commit", "-m", "--file=/etc/passwd"],
     ["diff", "-m", "/etc"], ["log", "--ext-diff"], ["submodule", "add", "x"], ["config", "core.hooksPath", "x"]],
)  # fmt: skip
def test_git_does_what_an_agent_needs_and_no_more(opened, words):
    status, output = used(opened(NEW), "git", words=words)
    assert status == "error"
    assert "not allowed" in output or "first word" in output
    assert "root:" not in output


def test_git_remembers_what_was_there(opened):
    one = opened(UPDATE)
    before = used(one, "read_file", path=f"policies/{UPDATE.policy}.yaml")[1]
    left_by(one, {f"policies/{UPDATE.policy}.yaml": b"gone: true\n"})
    assert "gone: true" in used(one, "git", words=["diff", "--stat", "-p"])[1]
    assert used(one, "git", words=["commit", "-am", "Mend it --force /etc/passwd"])[0] == "ok"
    assert len(used(one, "git", words=["log", "--oneline"])[1].splitlines()) == 2
    assert used(one, "git", words=["show", f"HEAD~1:policies/{UPDATE.policy}.yaml"])[1].strip() == before.strip()


def test_policies_are_linted_and_applied_to_open_worlds_alone(opened):
    one = opened(NEW)
    assert "no folder policies/" in used(one, "kyverno_lint")[1]
    left_by(one, ORACLES[NEW.task_class]["right"][0](NEW))
    assert used(one, "kyverno_lint") == ("ok", "1 policies are read.")
    assert "kept out" in used(one, "kyverno_apply", world="violating-1")[1]
    assert "let in" in used(one, "kyverno_apply", world="compliant-2")[1]
    assert used(one, "kyverno_apply")[0] == "ok"
    status, output = used(one, "kyverno_apply", world="judged-1")
    assert status == "error"
    assert "target" in output


@pytest.mark.slow
@sealed
@needs_kubectl
def test_a_fetcher_is_run_before_a_world_and_judged(opened):
    one = opened(CLUSTER)
    assert used(one, "run_fetcher") == ("error", "Error: There is no file fetcher.sh in the workspace.")
    left_by(one, ORACLES[CLUSTER.task_class]["right"][0](CLUSTER))
    assert used(one, "opa_check") == ("ok", "It is a policy.")
    for world, said in (("violating-1", "false"), ("compliant-1", "true")):
        assert used(one, "run_fetcher", world=world)[0] == "ok"
        assert used(one, "opa_eval") == ("ok", said)
    status, output = used(one, "kubectl", words=["get", "pods", "-A", "-o", "name"], world="violating-1")
    assert status == "ok"
    assert "pod/" in output
    assert used(one, "kubectl", words=["delete", "pods", "--all", "-A"], world="violating-1")[0] == "error"
    assert "root:" not in used(one, "kubectl", words=["get", "pods", "; cat /etc/passwd"])[1]


def test_submit_takes_the_workspace_as_it_is_and_the_cap_ends_the_rest(opened):
    one = opened(NEW, tool_calls=3)
    assert used(one, "submit")[0] == "error"
    left_by(one, ORACLES[NEW.task_class]["right"][0](NEW))
    assert [used(one, "think", thought="x")[0] for _ in range(3)] == ["ok", "ok", "error"]
    assert used(one, "submit") == ("ok", "Taken.")
    assert one.is_submitted


@pytest.mark.parametrize("task", [NEW, HOST, CLUSTER])
def test_without_examples_there_is_a_target_alone_and_no_label(opened, task):
    one = opened(task, examples=0)
    assert "target" in one.places()
    assert "violating" not in one.places()
    assert not [at for at in one.environment.workspace.rglob("*") if "examples" in at.parts]


def run_plan(tmp_path, capsys, **part):
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"domain": "ciso", **part}))
    assert command_line(["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "store"), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["items"]


@pytest.mark.slow
@sealed
def test_the_built_in_agent_plans_mends_what_failed_and_passes(tmp_path, capsys):
    agent = {"name": "ciso", "model": f"scripted:{ROOT / 'examples/compliance/twin.py'}"}
    (row,) = run_plan(tmp_path, capsys, tasks=[HOST.name], agents=[agent])
    assert row["metrics"]["passed"]["value"] == 1.0, row
    (actions,) = (tmp_path / "store").rglob("actions.jsonl")
    calls = [json.loads(line) for line in actions.read_text().splitlines()]
    assert [one["status"] for one in calls if one["tool"] == "opa_check"] == ["error"]
    assert [one["output"] for one in calls if one["tool"] == "opa_eval"] == ["false", "true"]
    assert calls[-1]["tool"] == "submit"


def test_arms_without_examples_are_cells_of_their_own(tmp_path, capsys):
    part = {"tasks": [NEW.name], "agents": ["oracle:right"], "examples": [2, 0]}
    assert [row["arm"] for row in run_plan(tmp_path, capsys, **part)] == ["default", "examples-0"]
    for bad in ([3], [0, 0], []):
        (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"domain": "ciso", **part, "examples": bad}))
        assert command_line(["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "other")]) == 2


BY_COMMANDS = """
import pathlib, subprocess, sys
def tool(*words):
    done = subprocess.run([sys.executable, "opsassay_tool.py", *words], capture_output=True, text=True)
    return done.returncode, done.stdout
assert "kyverno_apply" in tool()[1], tool()
here = pathlib.Path(__file__).with_name("mine.yaml")
assert tool("write_file", "path=policies/mine.yaml", f"content=@{here}") == (0, "Written.\\n")
assert tool("kyverno_apply", "world=violating-1")[1].endswith("kept out.\\n")
assert tool("kyverno_apply", "world=nothing")[0] == 1
assert tool("submit")[0] == 0
assert pathlib.Path(".git").is_dir()
"""


@pytest.mark.slow
@pytest.mark.parametrize("sealing", ["auto", "off"])
def test_an_external_agent_calls_tools_as_plain_commands(tmp_path, capsys, sealing):
    (tmp_path / "write.py").write_text(BY_COMMANDS)
    (tmp_path / "mine.yaml").write_bytes(next(iter(ORACLES[NEW.task_class]["right"][0](NEW).values())))
    agent = {
        "agent": "by-commands",
        "command": ["{python}", "{agent}/write.py"],
        "needs": ["mcp"],
        "files": ["write.py", "mine.yaml"],
    }
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent))
    (row,) = run_plan(tmp_path, capsys, tasks=[NEW.name], agents=["agent.yaml"], settings={"sealing": sealing})
    assert row["metrics"]["passed"]["value"] == 1.0, row
