"""What an agent's fetcher does when the grader runs it on worlds that nobody saw: each act sealed, and beside it unsealed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

import opsassay
from opsassay.core.untrusted import safe_text
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache
from opsassay.evals.compliance.evidence_collection.cluster import FETCHER, gather_on_cluster
from opsassay.evals.compliance.evidence_collection.evidence import LIMITS
from opsassay.evals.compliance.rego.judging import judge_by_rego
from opsassay.evals.compliance.score import STAGES, collect_worlds, grade_files
from opsassay.evals.compliance.scripts.oracles import ORACLES
from opsassay.evals.compliance.tasks import KUBECTL, POLICY, ComplianceTask
from opsassay.solvers.sandbox import python_path, sealing_refusal
from opsassay.testbed.substrates.kubernetes.api.serving import serving_objects
from opsassay.testbed.substrates.kubernetes.api.small_api import write_kubeconfig

from .draws import LOWEST_PID

CLASS = "16 fetchers on held-out worlds"
TASK = ComplianceTask(name="new-opa-kubectl-host-ports", seed=2**100 + 7, held_out=1)
WORLD = TASK.judged()[0]
LEAVING = (Path(__file__).parent / "agents" / "leaving.py").read_text()
SHORT = replace(LIMITS, wall_clock_s=4.0)

pytestmark = [
    pytest.mark.skipif(sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine"),
]

REACHING = {
    "the secret by its path": "grep -q 73190 SECRET",
    "another world's evidence in the store": "grep -q evidence-73190 STORE/runs/x/1/evidence/y.json",
    "the seed in the store": "grep -q 73190 STORE/compliance_tasks/z.json",
    "folders of the grader": "ls -d TEMPORARY/opsassay-cluster-*",
    "how worlds are labelled": "grep -q compliant PACKAGE/evals/compliance/clusters/worlds.py",
    "the grader's command line": "grep -q . /proc/PID/cmdline",
    "the grader's environment": "grep -q . /proc/PID/environ",
    "the grader's root": "grep -q 73190 /proc/PID/rootSECRET",
    "the grader's descriptors": "ls /proc/PID/fd | grep -q .",
    "a signal to the grader": "kill -0 PID",
    "a file outside": "echo x > MARK",
    "a file outside through a link": "ln -s MARK link && echo x > link",
    "another kubectl": "cp /bin/true KUBECTL",
    "another kubeconfig": "echo x >> $KUBECONFIG",
    "an object that is made": "kubectl create configmap mine -o json --dry-run=client | kubectl create --validate=false -f -",
    "an object that is removed": "kubectl delete namespace default --wait=false",
    "an object that is changed": "kubectl label namespace default compliant=true",
    "an object by a request": "kubectl delete --raw /api/v1/namespaces/default",
    "a port of the machine": "exec 3<>/dev/tcp/127.0.0.1/PORT",
    "the socket of another world": "PYTHON -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"SOCKET\")'",
}  # fmt: skip
"""Commands of a shell that end with 0 when they reached what they are after."""


def wrapped(act: str) -> str:
    return f"if ({act}) > out 2>&1; then echo true; else echo false; fi > collected_data.json\n"


def unsealed(script: str, folder: Path, url: str) -> bytes:
    """Run *script* as a plain child of this process; return what it collected. What it leaves running is ended."""
    work = Path(tempfile.mkdtemp(dir=folder))
    write_kubeconfig(folder / "kubeconfig.yaml", url)
    environment = {**os.environ, "KUBECONFIG": str(folder / "kubeconfig.yaml")}
    child = subprocess.Popen(["bash", "-c", script], cwd=work, env=environment, start_new_session=True)
    assert child.wait(60) == 0
    return (work / "collected_data.json").read_bytes()


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("what", REACHING)
def test_a_fetcher_reaches_nothing_but_its_world(tmp_path: Path, what: str) -> None:
    if "PID" in REACHING[what] and os.getpid() < LOWEST_PID:
        pytest.skip("this process has a number that one in the seal may have too")
    secret, store, mark = tmp_path / "secret", tmp_path / "store", tmp_path / "mark"
    for path in (secret, store / "runs/x/1/evidence/y.json", store / "compliance_tasks/z.json"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("evidence-73190")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        serving_objects(WORLD.objects, read_only=False) as served,
        tempfile.TemporaryDirectory(prefix="opsassay-cluster-") as other,
        serving_objects(WORLD.objects, socket=Path(other) / "api.sock"),
    ):
        facts = {
            "SECRET": secret, "STORE": store, "TEMPORARY": tempfile.gettempdir(), "PACKAGE": Path(opsassay.__file__).parent,
            "PID": os.getpid(), "MARK": mark, "PORT": listener.getsockname()[1], "SOCKET": f"{other}/api.sock",
            "PYTHON": python_path(),
        }  # fmt: skip

        def script(kubectl: str) -> str:
            act = REACHING[what]
            for name, value in {**facts, "KUBECTL": kubectl}.items():
                act = act.replace(name if name != "KUBECTL" or "$" not in act else "\0", str(value))
            return wrapped(act)

        found = gather_on_cluster({FETCHER: script("/opt/opsassay-kubectl/kubectl").encode()}, WORLD)
        assert found.data == b"false\n", found
        assert not mark.exists()
        assert unsealed(script(str(tmp_path / "kubectl")), tmp_path, served.url) == b"true\n"  # the control


LEFT = (
    "a file in /tmp", "a process", "a file in /dev/shm", "a System V segment", "a System V semaphore", "a System V queue",
    "a key of the kernel", "a lock on a program", "a port", "an abstract socket",
)  # fmt: skip


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("what", LEFT)
def test_nothing_is_left_for_the_next_world(tmp_path: Path, what: str) -> None:
    token = uuid.uuid4().hex
    program = shutil.which("true")
    script = f"cat > leave.py <<'END'\n{LEAVING}\nEND\n{python_path()} leave.py '{what}' {token} {program} > said\n"
    script += "head -n 1 said | sed 's/refused/\"refused\"/' > collected_data.json\n"
    found = [gather_on_cluster({FETCHER: script.encode()}, WORLD) for _ in range(2)]
    assert [one.data for one in found] in ([b"false\n"] * 2, [b'"refused"\n'] * 2), found
    groups = []
    try:
        for expected in (b"false\n", b"true\n"):  # the control
            work = Path(tempfile.mkdtemp(dir=tmp_path))
            child = subprocess.Popen(["bash", "-c", script], cwd=work, start_new_session=True)
            groups.append(child.pid)
            child.wait(30)
            said = (work / "collected_data.json").read_bytes()
            if said == b'"refused"\n':
                pytest.skip("no control here: this machine has no such thing")
            assert said == expected
    finally:
        for group in groups:
            clean_up(group, token)


def clean_up(group: int, token: str) -> None:
    """End the process group and remove what the control left in the kernel and in files."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    for folder in ("/tmp", "/dev/shm"):
        Path(folder, token).unlink(missing_ok=True)
    key = f"0x{token[-7:]}"
    subprocess.run(["ipcrm", "-M", key, "-S", key, "-Q", key], capture_output=True, check=False)


BOMBS = {
    "a thousand processes": ("for i in {1..1000}; do sleep 30 & done; wait", "for i in {1..20}; do sleep 0 & done; wait; echo 1 > collected_data.json"),
    "a file that fills the disk": ("set -e; head -c 1G /dev/zero > big; echo 1 > collected_data.json", "set -e; head -c 1M /dev/zero > big; echo 1 > collected_data.json"),
    "files that fill the disk": ("for i in {1..99999}; do : > f$i || exit 3; done; echo 1 > collected_data.json", "for i in {1..99}; do : > f$i || exit 3; done; echo 1 > collected_data.json"),
    "memory": (f"{python_path()} -c 'print(len(bytearray(2**31)))' > collected_data.json", f"{python_path()} -c 'print(len(bytearray(2**20)))' > collected_data.json"),
    "evidence of 5 MB": ("(printf '\"'; head -c 5000000 /dev/zero | tr '\\0' 1; printf '\"') > collected_data.json", "(printf '\"'; head -c 3000000 /dev/zero | tr '\\0' 1; printf '\"') > collected_data.json"),
    "evidence of 5 MB in a list": ("(printf '['; yes 1, | head -n 1700000; printf '1]') > collected_data.json", "(printf '['; yes 1, | head -n 1000; printf '1]') > collected_data.json"),
    "deep evidence": ("(printf '%0.s[' {1..120}; printf '%0.s]' {1..120}) > collected_data.json", "(printf '%0.s[' {1..90}; printf '%0.s]' {1..90}) > collected_data.json"),
    "a number that is not finite": ("echo '{\"a\": 1e999}' > collected_data.json", "echo '{\"a\": 1e99}' > collected_data.json"),
    "a number of 5,000 digits": ("printf '%0.s9' {1..5000} > collected_data.json", "printf '%0.s9' {1..50} > collected_data.json"),
    "a name that is no text": ("mkfifo $'collected_data.json: \\xff'", "echo 1 > collected_data.json; mkfifo $'collected_data.json: \\xff'"),
    "a name of two lines": ("mkfifo $'collected_data.json: a\\nb'", "echo 1 > collected_data.json; touch $'a\\nb'"),
    "an error that clears the screen": ("echo $'fatal: \\e[2Ja\\u202eb\\xff'; exit 3", "echo $'fatal: \\e[2Ja\\u202eb\\xff'; echo 1 > collected_data.json"),
    "an error without an end": ("yes fatal: | tr -d '\\n' | head -c 9000000; exit 3", "yes | head -c 9000000; echo 1 > collected_data.json"),
    "its own folder removed": ("echo 1 > collected_data.json; rm -rf /work/* .", "echo 1 > collected_data.json; rm -rf fetcher.sh"),
    "another language": ("import os\nprint(os.environ)", "echo 1 > collected_data.json"),
    "a folder for evidence": ("mkdir collected_data.json", "mkdir other; echo 1 > collected_data.json"),
}  # fmt: skip


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("what", BOMBS)
def test_what_is_too_much_is_one_sentence(what: str) -> None:
    attack, control = BOMBS[what]
    found = gather_on_cluster({FETCHER: attack.encode()}, WORLD, SHORT)
    assert found.data is None
    assert found.problem
    assert found.problem == safe_text(found.problem)
    assert "\n" not in found.problem
    assert len(found.problem) <= 600
    allowed = gather_on_cluster({FETCHER: control.encode()}, WORLD)
    assert allowed.data is not None, allowed.problem


def test_processes_of_a_fetcher_end_with_it() -> None:
    token = uuid.uuid4().hex
    script = f"(setsid bash -c 'exec -a {token} sleep 100' & nohup bash -c 'exec -a {token} sleep 100' &) ; echo 1 > collected_data.json"
    assert gather_on_cluster({FETCHER: script.encode()}, WORLD).data == b"1\n"
    running = "\0".join(one.read_bytes().decode(errors="replace") for one in Path("/proc").glob("[0-9]*/cmdline"))
    assert token not in running
    waiting = [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)", token]
    with subprocess.Popen(waiting, stdout=subprocess.PIPE) as child:
        try:
            child.stdout.readline()
            assert (
                token.encode() in Path(f"/proc/{child.pid}/cmdline").read_bytes()
            )  # the control: it would have been seen
        finally:
            child.kill()


def test_a_key_that_stands_twice_is_its_last_value() -> None:
    policy = b"package compliance\ncompliant if input.a == 2"
    given = [b'{"a": 1, "a": 2}', b'{"a": 2, "a": 1}', b'{"a": 2}']
    assert [one.kind for one in judge_by_rego(policy, given).outcomes] == ["true", "undefined", "true"]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(1, 2, 3, 4, 5, 6)])
def test_the_order_of_collecting_says_nothing_of_a_label(tmp_path: Path, seeds: tuple[int, ...]) -> None:
    """A fetcher that knows when its agent ended, or its process number, knows how many ran before it."""
    found = []
    for seed in seeds:
        task = ComplianceTask(name=TASK.name, seed=2**100 + seed)
        files = {FETCHER: b"date +%s%N > collected_data.json"}
        worlds = collect_worlds(files, task, EvidenceCache(tmp_path / f"{seed}"))
        times = [(int(one.evidence.data), one.compliant) for one in worlds]
        times += [(int(one.mutant.data), not one.compliant) for one in worlds]
        found.append([label for _, label in sorted(times)])
    assert {order[0] for order in found} == {True, False}
    assert len({tuple(order[:4]) for order in found}) > 2
    assert all(sorted(order) == [False] * 6 + [True] * 6 for order in found)  # the control: all of them ran


@pytest.mark.sampled
@pytest.mark.parametrize("what", ["a file in /tmp", "nothing", "canned", "exit"])
def test_each_ends_as_a_grade_with_one_sentence_and_the_honest_one_passes(tmp_path: Path, what: str) -> None:
    right = ORACLES[KUBECTL]["right"][0](TASK)
    attacks = {
        "a file in /tmp": b"test -e /tmp/seen || touch /tmp/seen; cat /tmp/seen > collected_data.json",
        "nothing": b"true", "canned": b"echo '{\"items\": []}' > collected_data.json", "exit": b"kill -9 $$",
    }  # fmt: skip
    found = grade_files({**right, FETCHER: attacks[what]}, TASK, EvidenceCache(tmp_path / "a"))
    assert found["passed"].value == 0.0
    assert found["passed"].reason
    assert "\n" not in found["passed"].reason
    assert next(name for name in STAGES if found[name].value == 0.0) in ("evidence", "asked")
    honest = grade_files({FETCHER: right[FETCHER], POLICY: right[POLICY]}, TASK, EvidenceCache(tmp_path / "b"))
    assert honest["passed"].value == 1.0, honest["passed"].reason
