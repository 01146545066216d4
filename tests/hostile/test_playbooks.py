"""What an agent's playbook does when the grader runs it on hosts that nobody saw: each task sealed, and beside it unsealed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.evidence_collection.host import PLAYBOOK, gather_on_host
from opsassay.evals.compliance.files.submitted import collect, collected
from opsassay.evals.compliance.score import grade_files
from opsassay.evals.compliance.scripts.oracles import ORACLES
from opsassay.evals.compliance.tasks import ANSIBLE, POLICY, ComplianceTask
from opsassay.solvers.sandbox import sealing_refusal

from .draws import LOWEST_PID

CLASS = "17 playbooks on held-out hosts"
TASK = ComplianceTask(name="new-opa-ansible-ssh-root-login", seed=2**100 + 9, held_out=1)
WORLD = TASK.judged_hosts()[0]
SECRET = "of-the-machine-73190"

pytestmark = [
    pytest.mark.skipif(sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}"),
    pytest.mark.skipif(find_spec("ansible") is None, reason="there is no ansible-core here"),
]

PLAY = """\
- hosts: target
  gather_facts: false
  tasks:
    - block:
        - %s
      rescue:
        - ansible.builtin.copy: {content: 'false', dest: collected_data.json}
        - ansible.builtin.meta: end_play
    - ansible.builtin.copy: {content: 'true', dest: collected_data.json}
"""
ACTS = {
    "a local action": "local_action: {module: ansible.builtin.command, cmd: grep 73190 SECRET}",
    "what is delegated to the grader": "{ansible.builtin.command: grep 73190 SECRET, delegate_to: localhost}",
    "the look-up file": "ansible.builtin.assert: {that: \"'73190' in lookup('ansible.builtin.file', 'SECRET')\"}",
    "the look-up pipe": "ansible.builtin.assert: {that: \"'73190' in lookup('ansible.builtin.pipe', 'cat SECRET')\"}",
    "the look-up env": "ansible.builtin.assert: {that: \"'73190' in lookup('ansible.builtin.env', 'OPSASSAY_TEST_KEY')\"}",
    "the look-up fileglob": "ansible.builtin.assert: {that: \"lookup('ansible.builtin.fileglob', 'STORE/*.json') | length > 0\"}",
    "the look-up unvault": "ansible.builtin.assert: {that: \"'73190' in lookup('ansible.builtin.unvault', 'SECRET')\"}",
    "the look-up lines": "ansible.builtin.assert: {that: \"'73190' in lookup('ansible.builtin.lines', 'cat SECRET')\"}",
    "variables of a file": "ansible.builtin.include_vars: {file: SECRET, name: found}",
    "tasks of a file": "ansible.builtin.include_tasks: {file: TASKS}",
    "a template of the machine": "ansible.builtin.assert: {that: \"'73190' in lookup('ansible.builtin.template', 'SECRET')\"}",
    "a file that is slurped": "ansible.builtin.slurp: {src: SECRET}",
    "a file that is fetched": "ansible.builtin.fetch: {src: SECRET, dest: fetched}",
    "a file outside": "ansible.builtin.copy: {content: x, dest: MARK}",
    "a local file outside": "local_action: {module: ansible.builtin.copy, content: x, dest: MARK}",
    "a link outside": "ansible.builtin.shell: ln -s MARK link && echo x > link",
    "another Ansible": "ansible.builtin.shell: echo x >> LIBRARY/ansible/release.py",
    "another inventory": "ansible.builtin.shell: echo x >> INVENTORY",
    "root": "{ansible.builtin.command: grep root /etc/shadow, become: true, become_method: ansible.builtin.su}",
    "the grader's environment": "ansible.builtin.command: grep -q . /proc/PID/environ",
    "a signal to the grader": "ansible.builtin.shell: kill -0 PID",
    "a port of the machine": "ansible.builtin.wait_for: {host: 127.0.0.1, port: PORT, timeout: 2}",
    "a request": "ansible.builtin.get_url: {url: 'http://127.0.0.1:PORT/', dest: ./got, timeout: 5, use_proxy: false}",
}  # fmt: skip


def played(playbook: str, folder: Path, environment: dict[str, str] | None = None) -> bytes:
    """Run *playbook* unsealed in *folder*, as a plain child of this process; return what it collected."""
    (folder / "inventory.ini").write_text(
        f"[target]\nhost\n[all:vars]\nansible_connection=local\nansible_python_interpreter={sys.executable}\n"
    )
    (folder / PLAYBOOK).write_text(playbook)
    command = [sys.executable, "-m", "ansible.cli.playbook", "-i", "inventory.ini", PLAYBOOK]
    homes = {"ANSIBLE_HOME": str(folder / "home"), "LANG": "C.UTF-8", **(environment or {})}
    subprocess.run(command, cwd=folder, env={**os.environ, **homes}, capture_output=True, timeout=120, check=False)
    return (folder / "collected_data.json").read_bytes()


@pytest.fixture
def page():
    """The port of a small server of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx")

        threading.Thread(target=answer, daemon=True).start()
        yield listener.getsockname()[1]


@pytest.mark.slow
@pytest.mark.parametrize("what", ACTS)
def test_a_playbook_reaches_nothing_but_its_host(tmp_path: Path, page: int, what: str) -> None:
    if "PID" in ACTS[what] and os.getpid() < LOWEST_PID:
        pytest.skip("this process has a number that one in the seal may have too")
    if what == "root" and os.geteuid() != 0:
        pytest.skip("no control: only root gets through")
    secret, mark, library = tmp_path / "secret.json", tmp_path / "mark", tmp_path / "library"
    secret.write_text(json.dumps({"secret": SECRET}))
    (tmp_path / "tasks.yml").write_text("- ansible.builtin.debug: {msg: x}\n")
    (library / "ansible").mkdir(parents=True)
    facts = {
        "SECRET": secret, "STORE": tmp_path, "TASKS": tmp_path / "tasks.yml", "MARK": mark, "PID": os.getpid(), "PORT": page,
    }  # fmt: skip

    def play(library: str, inventory: str) -> str:
        act = ACTS[what]
        for name, value in {**facts, "LIBRARY": library, "INVENTORY": inventory}.items():
            act = act.replace(name, str(value))
        return PLAY % act

    sealed = play("/opt/opsassay-ansible", "/view/inventory.ini")
    found = gather_on_host({PLAYBOOK: sealed.encode()}, WORLD)
    assert found.data == b"false", found
    assert not mark.exists()
    work = tmp_path / "work"
    work.mkdir()
    control = played(play(str(library), str(tmp_path / "inventory")), work, {"OPSASSAY_TEST_KEY": SECRET})
    assert control == b"true"


@pytest.mark.slow
def test_a_connection_by_ssh_leads_nowhere(tmp_path: Path) -> None:
    if shutil.which("ssh") is None:
        pytest.skip("there is no ssh on this machine")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(1)
        port = listener.getsockname()[1]
        variables = (
            f"vars: {{ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: {port}, ansible_ssh_timeout: 2}}"
        )
        act = f"{{ansible.builtin.raw: 'true', {variables}, ignore_unreachable: true, timeout: 10}}"
        gather_on_host({PLAYBOOK: (PLAY % act).encode()}, WORLD)
        with pytest.raises(TimeoutError):
            listener.accept()
        command = subprocess.Popen(
            ["ssh", "-o", "ConnectTimeout=2", "-p", str(port), "127.0.0.1", "true"], stderr=subprocess.DEVNULL
        )
        listener.accept()[0].close()  # the control
        command.wait(30)


MODULE = '#!/usr/bin/python3\nprint(\'{"changed": false, "word": "mine-73190"}\')\n'
BESIDE = {
    "a module in ./library": ({"library/mine.py": MODULE}, "{mine: {}, register: it}", "it.word == 'mine-73190'"),
    "an ansible.cfg": ({"ansible.cfg": "[defaults]\nlibrary = ./own\n", "own/mine.py": MODULE}, "{mine: {}, register: it}", "it.word == 'mine-73190'"),
    "a look-up in ./lookup_plugins": (
        {"lookup_plugins/mine.py": "from ansible.plugins.lookup import LookupBase\nclass LookupModule(LookupBase):\n    def run(self, terms, variables=None, **kwargs):\n        return ['mine-73190']\n"},
        "ansible.builtin.set_fact: {it: \"{{ lookup('mine') }}\"}", "it == 'mine-73190'",
    ),
    "variables in ./group_vars": ({"group_vars/target.yml": "it: mine-73190\n"}, "ansible.builtin.debug: {msg: x}", "it == 'mine-73190'"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("what", BESIDE)
def test_what_lies_beside_a_playbook_is_not_handed_in(tmp_path: Path, what: str) -> None:
    files, act, test = BESIDE[what]
    playbook = PLAY % f'{act}\n        - ansible.builtin.assert: {{that: "{test}"}}'
    work, run_dir = tmp_path / "work", tmp_path / "run"
    for path, text in {**files, PLAYBOOK: playbook, POLICY: "package compliance\ncompliant := true\n"}.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    collect(work, run_dir, TASK)
    assert set(collected(run_dir, TASK)) == {PLAYBOOK, POLICY}
    found = gather_on_host(collected(run_dir, TASK), WORLD)
    assert found.data != b"true", found
    assert played(playbook, work) == b"true"  # the control


STRANGE = {
    "a key that is a list": (b"- ? [a, b]\n  : 1\n  hosts: target\n", "unhashable key"),
    "an alias that leads to itself": (b"- &a\n  hosts: target\n  vars: {x: *a}\n", "there is no collected_data.json"),
    "a tag of Python": (b"- hosts: target\n  tasks: !!python/object/apply:os.system [id]\n", "constructor for the tag"),
    "two documents": (b"- hosts: target\n---\n- hosts: target\n", "single document"),
    "another language": (b"import os\nos.system('id')\n", "no list of plays"),
    "a vault": (b"$ANSIBLE_VAULT;1.1;AES256\n62313365396662343061393464336163\n", "no list of plays"),
    "depth": (b"- hosts: " + b"[" * 5000, "nests deeper"),
    "plays for tasks": (b"- hosts: target\n  gather_facts: false\n  tasks:\n    - ansible.builtin.include_tasks: playbook.yml\n", "conflicting"),
    "a play of other hosts": (b"- hosts: somebody\n  tasks: []\n", "there is no collected_data.json"),
}  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("what", STRANGE)
def test_a_strange_playbook_is_one_sentence(tmp_path: Path, what: str) -> None:
    playbook, said = STRANGE[what]
    found = grade_files(
        {PLAYBOOK: playbook, POLICY: b"package compliance\ncompliant := true\n"}, TASK, EvidenceCache(tmp_path)
    )
    assert found["passed"].value == 0.0
    assert said in found["passed"].reason, found["passed"].reason
    assert "\n" not in found["passed"].reason
    for name in ("passed", "artefact", "evidence"):
        json.loads(found[name].model_dump_json())


@pytest.mark.slow
def test_the_honest_playbook_passes_beside_them(tmp_path: Path) -> None:
    right = ORACLES[ANSIBLE]["right"][0](TASK)
    assert grade_files(right, TASK, EvidenceCache(tmp_path))["passed"].value == 1.0


@pytest.mark.slow
def test_nothing_of_a_host_is_left_on_the_machine() -> None:
    before = set(Path(tempfile.gettempdir()).glob("opsassay-host-*"))
    leave = "ansible.builtin.shell: touch /tmp/left /dev/shm/left /var/tmp/left; (setsid sleep 77.31 &) ; true"
    assert gather_on_host({PLAYBOOK: (PLAY % leave).encode()}, WORLD).data == b"true"
    assert not any(Path(folder, "left").exists() for folder in ("/tmp", "/dev/shm", "/var/tmp"))
    assert b"sleep\x0077.31" not in b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))
    assert set(Path(tempfile.gettempdir()).glob("opsassay-host-*")) <= before
