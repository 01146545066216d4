"""What an agent leaves for a compliance task: policies that are traps, and a workspace that is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import yaml

from opsassay.cli import run as command_line
from opsassay.core.untrusted import safe_text
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.files.submitted import collect, collected
from opsassay.evals.compliance.score import grade_files
from opsassay.evals.compliance.scripts.oracles import ORACLES
from opsassay.evals.compliance.tasks import ComplianceTask
from opsassay.solvers.agents.contract import AnswerError
from opsassay.solvers.sandbox import sealing_refusal

CLASS = "19 answers to compliance tasks"
TASK = ComplianceTask(name="new-kyverno-privileged-containers", seed=2**100 + 5, held_out=1)
SHELF = EvidenceCache(Path("/nowhere"))
GOOD = next(iter(ORACLES[TASK.task_class]["right"][0](TASK).values())).decode()
AGENT = Path(__file__).parent / "agents" / "littering.py"


def with_lines(lines: str) -> str:
    """Return the right policy with *lines* in its status, which no reader of Kubernetes takes from a file."""
    return f"{GOOD}\nstatus:\n{textwrap.indent(lines, '  ')}"


def merges(count: int) -> str:
    lines = ["a0: &a0 {" + ", ".join(f"k{i}: 1" for i in range(9)) + "}"]
    return "\n".join(lines + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, count)])


HEX = "0x" + "f" * 20000
TEXTS = {
    "an anchor": (with_lines("x: &a 1\ny: *a"), with_lines("x: 1\ny: 1")),
    "an anchor that nobody uses": (with_lines("x: &a 1"), with_lines("x: 1")),
    "a bomb of merges": (with_lines(merges(30)), with_lines("a0: {k0: 1, k1: 1}")),
    "a circle": (with_lines("x: &a [*a]"), with_lines("x: [1]")),
    "a tag of Python": (with_lines("x: !!python/object/apply:os.system [touch MARK]"), with_lines("x: [touch MARK]")),
    "a tag of its own": (with_lines("x: !mine 1"), with_lines("x: 1")),
    "a tag of another address": (with_lines("x: !<tag:example.org,2026:x> 1"), with_lines("x: !<tag:yaml.org,2002:int> 1")),
    "a directive": (f"%TAG ! tag:example.org,2026:\n---\n{with_lines('x: !x 1')}", f"%YAML 1.1\n---\n{GOOD}"),
    "10 MB": (with_lines("# " + "x" * 10_000_000), with_lines("# " + "x" * 100_000)),
    "depth": (with_lines("x: " + "[" * 5000 + "]" * 5000), with_lines("x: " + "[" * 40 + "]" * 40)),
    "depth that is not closed": (with_lines("x: " + "[" * 100_000), with_lines("x: []")),
    "a number of 20,000 digits for an action": (GOOD.replace("failureAction: Enforce", f"failureAction: {HEX}"), GOOD),
    "a number of 20,000 digits for a version": (GOOD.replace("kyverno.io/v1", HEX, 1), GOOD),
    "a number of 20,000 digits in a pattern": (GOOD.replace("false", HEX), GOOD),
    "a number of base 60": (with_lines("x: 1" + ":1" * 100_000), with_lines("x: 1:1")),
    "a key that is a list": (with_lines("? [a, b]\n: 1"), with_lines("ab: 1")),
    "a key that is a number of 300 digits": (with_lines("1" * 300 + ": 1"), with_lines("1: 1")),
    "a key that stands twice": (f"{GOOD}\nkind: Pod", with_lines("kind: Pod")),
    "a key that nobody knows": (f"{GOOD}\nother: Pod", with_lines("other: Pod")),
    "two names in one": (GOOD.replace("- name: check", "- name: check\n    name: other"), GOOD),
    "a NUL": (with_lines("x: \0"), with_lines('x: "\\0"')),
    "UTF-16": (GOOD.encode("utf-16"), GOOD.encode("utf-8")),
    "bytes that are no text": (GOOD.encode() + b"# \xff\xfe", GOOD.encode() + "# \u00e9".encode()),
    "a kind of 100,000 letters": (GOOD.replace("ClusterPolicy", "x" * 100_000), GOOD),
    "a name that clears the screen": (GOOD.replace("failureAction", '"\\e[2J\\u202e\\ud800"'), GOOD),
    "a date": (GOOD.replace("false", "2020-99-99"), GOOD),
    "a set": (GOOD.replace("false", "!!set {a, b}"), GOOD),
    "an expression of variables": (GOOD.replace("'Asked for: ", "'{{ @ }}").replace("false", "'{{ request.object }}'"), GOOD),
    "a script": (GOOD.replace("ClusterPolicy", "<script>alert(1)</script>"), GOOD),
    "a list of it": ("[" + json.dumps(yaml.safe_load(GOOD)) + "]", json.dumps(yaml.safe_load(GOOD))),
    "it within a List": (json.dumps({"kind": "List", "apiVersion": "v1", "items": [yaml.safe_load(GOOD)]}), json.dumps(yaml.safe_load(GOOD))),
    "another language": ("package kyverno\ndefault allow := false\n", GOOD),
}  # fmt: skip


@pytest.mark.parametrize("what", TEXTS)
def test_a_policy_that_is_a_trap_is_one_sentence(what: str) -> None:
    attack, control = (one if isinstance(one, bytes) else one.encode() for one in TEXTS[what])
    begun = time.monotonic()
    found = grade_files({"policies/a.yaml": attack}, TASK, SHELF)
    assert time.monotonic() - begun < 60
    assert found["passed"].value == 0.0
    for metric in found.values():
        assert metric.reason == safe_text(metric.reason)
        assert "\n" not in metric.reason
        assert len(metric.reason) <= 600
        metric.model_dump_json()
    assert found["passed"].reason
    assert grade_files({"policies/a.yaml": control}, TASK, SHELF)["passed"].value == 1.0


@pytest.mark.slow
def test_many_keys_take_no_time() -> None:
    begun = time.monotonic()
    found = grade_files(
        {"policies/a.yaml": with_lines("".join(f"{n:05}:\n" for n in range(28000))).encode()}, TASK, SHELF
    )
    assert found["passed"].value == 1.0
    assert time.monotonic() - begun < 60


def put_link(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def put_loop(path: Path, outside: Path) -> None:
    path.symlink_to(path)


def put_fifo(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def put_folder(path: Path, outside: Path) -> None:
    path.mkdir()


def put_device(path: Path, outside: Path) -> None:
    path.symlink_to("/dev/zero")


def put_large(path: Path, outside: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(10 * 2**20)


PUT = {
    "a link": put_link,
    "a loop": put_loop,
    "a FIFO": put_fifo,
    "a folder": put_folder,
    "a device": put_device,
    "10 MB": put_large,
}


@pytest.mark.parametrize("what", PUT)
@pytest.mark.parametrize("name", ["policies/a.yaml", "policies"])
def test_what_is_no_plain_file_is_not_taken(tmp_path: Path, outside: Path, what: str, name: str) -> None:
    work = tmp_path / "work"
    (work / name).parent.mkdir(parents=True)
    if (what, name) == ("a link", "policies"):
        outside = outside.parent
        (outside / "x.yaml").write_text(GOOD)
    PUT[what](work / name, outside)
    with pytest.raises(AnswerError) as refused:
        collect(work, tmp_path / "run", TASK)
    said = str(refused.value)
    assert "73190" not in said
    assert "\n" not in said
    assert str(tmp_path) not in said
    assert not (tmp_path / "run").exists()
    shutil.rmtree(work)
    (work / "policies").mkdir(parents=True)
    (work / "policies/a.yaml").write_text(GOOD)
    collect(work, tmp_path / "run", TASK)  # the control
    assert grade_files(collected(tmp_path / "run", TASK), TASK, SHELF)["passed"].value == 1.0


ODD = (
    b"\xff.yaml",
    b"a\nb.yaml",
    b"\x1b[2J.yaml",
    b"\xed\xa0\x80.yaml",
    "\u202elmay.yaml".encode(),
    b"\x7f.yaml",
    "\u200b.yaml".encode(),
)
PLAIN = (
    b"..yaml",
    b"...yaml",
    b"-rf.yaml",
    b" .yaml",
    b"<b>.yaml",
    b"a'\".yaml",
    b"\\.yaml",
    b"%s.yaml",
    "\u00e9.yaml".encode(),
    b"x" * 250 + b".yaml",
)


@pytest.mark.parametrize("name", ODD + PLAIN)
def test_a_name_is_text_or_refused(tmp_path: Path, name: bytes) -> None:
    work = tmp_path / "work"
    (work / "policies").mkdir(parents=True)
    with open(os.path.join(os.fsencode(work / "policies"), name), "w", encoding="utf-8") as stream:
        stream.write(GOOD)
    if name in ODD:
        with pytest.raises(AnswerError) as refused:
            collect(work, tmp_path / "run", TASK)
        assert str(refused.value) == safe_text(str(refused.value))
        assert "\n" not in str(refused.value)
        assert not (tmp_path / "run").exists()
    else:  # the control
        collect(work, tmp_path / "run", TASK)
        files = collected(tmp_path / "run", TASK)
        assert list(files) == [f"policies/{os.fsdecode(name)}"]
        assert grade_files(files, TASK, SHELF)["passed"].value == 1.0
    assert sorted(path.name for path in tmp_path.iterdir()) == (["work"] if name in ODD else ["run", "work"])


def everywhere(tmp_path: Path, capsys, sealing: str) -> dict:
    """Run, grade, show and report the agent that litters; return its row."""
    mark = tmp_path / "mark"
    shutil.copy(AGENT, tmp_path)
    (tmp_path / "mine.yaml").write_text(GOOD)
    (tmp_path / "secret").write_text("of-held-out-worlds-73190")
    agent = {
        "agent": "littering", "command": ["{python}", "{agent}/littering.py", "{work}", str(mark)],
        "files": ["littering.py", "mine.yaml"],
    }  # fmt: skip
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent))
    plan = {
        "domain": "ciso", "tasks": [TASK.name], "agents": ["agent.yaml"], "published": False,
        "held_out": {"secret": "secret", "count": 1}, "settings": {"sealing": sealing},
    }  # fmt: skip
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    store = str(tmp_path / "store")
    command_line(["run", str(tmp_path / "plan.yaml"), "-o", store, "--json"])
    row = json.loads(capsys.readouterr().out)["items"][0]
    for words in (["score", "run", store], ["score", "table", store], ["report", store, "-o", str(tmp_path / "pages")]):
        assert command_line(words) == 0, capsys.readouterr().err
    assert len(list((tmp_path / "pages").glob("*.html"))) >= 1
    return row


@pytest.mark.slow
@pytest.mark.parametrize("sealing", ["auto", "off"])
def test_a_workspace_that_is_a_trap_springs_nowhere(tmp_path: Path, capsys, sealing: str) -> None:
    if sealing == "auto" and sealing_refusal():
        pytest.skip(f"nothing can be sealed here: {sealing_refusal()}")
    row = everywhere(tmp_path, capsys, sealing)
    assert row["metrics"]["passed"]["value"] == 1.0, row
    assert not (tmp_path / "mark").exists()
    kept = [path.name for path in tmp_path.rglob("answer/**/*") if path.is_file()]
    assert kept == ["mine.yaml"]


TRIGGERS = {
    "git status": ["git", "-c", "safe.directory=*", "status"],
    "git commit": ["git", "-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", "x"],
    "git add": ["git", "-c", "safe.directory=*", "add", "policies/mine.yaml"],
    "Python": [sys.executable, "-c", "import sys; sys.path.insert(0, '.'); import conftest"],
    "a program by its name": ["sh", "-c", "PATH=.:$PATH kubectl get pods"],
}  # fmt: skip


@pytest.mark.parametrize("what", TRIGGERS)
def test_the_trap_is_one(tmp_path: Path, what: str) -> None:
    """The control: whoever does this in what the agent left springs it."""
    if TRIGGERS[what][0] == "git" and shutil.which("git") is None:
        pytest.skip("there is no git on this machine")
    folder, mark = tmp_path / "work", tmp_path / "mark"
    (folder / "policies").mkdir(parents=True)
    shutil.copy(AGENT, tmp_path)
    (tmp_path / "mine.yaml").write_text(GOOD)
    subprocess.run([sys.executable, str(tmp_path / AGENT.name), str(folder), str(mark)], check=True)
    (folder / ".git/config").write_text((folder / ".git/config").read_text().split("[include]")[0])
    assert not mark.exists()
    subprocess.run(TRIGGERS[what], cwd=folder, capture_output=True, check=False, timeout=30)
    (folder / "closed").chmod(0o700)
    assert mark.exists()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("what", ["an anchor", "10 MB", "a number of 20,000 digits for an action"])
def test_one_answer_does_not_end_the_grading_of_others(tmp_path: Path, capsys, what: str) -> None:
    attack = TEXTS[what][0]
    (tmp_path / "bad.yaml").write_text(attack)
    (tmp_path / "good.yaml").write_text(GOOD)
    agents = {}
    for name in ("bad", "good"):
        body = {
            "agent": name, "files": [f"{name}.yaml"],
            "command": ["/bin/sh", "-c", f"mkdir {{answer}} && cp {{agent}}/{name}.yaml {{answer}}/"],
        }  # fmt: skip
        (tmp_path / f"{name}-agent.yaml").write_text(yaml.safe_dump(body))
        agents[name] = f"{name}-agent.yaml"
    plan = {"domain": "ciso", "tasks": [TASK.name], "agents": list(agents.values()), "settings": {"sealing": "off"}}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(plan))
    command_line(["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "store"), "--json"])
    rows = {item["solver"]: item["metrics"]["passed"] for item in json.loads(capsys.readouterr().out)["items"]}
    assert [rows[name]["value"] for name in ("bad", "good")] == [0.0, 1.0]
    assert rows["bad"]["reason"]
