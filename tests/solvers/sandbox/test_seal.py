"""What a sealed command is handed, and how its end is told."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from opsassay.core.errors import UserError
from opsassay.solvers.sandbox import Sandbox, SandboxLimits, python_path, sealing_refusal
from opsassay.solvers.sandbox.groups import NAME, groups_for_seals
from solvers.sandbox.world import left_running

SRC = Path(__file__).parents[3] / "src"


def groups_left():
    groups = groups_for_seals()
    parents = set(groups.parents.values()) if groups else ()
    return [path for parent in parents for path in parent.glob(f"{NAME}{os.getpid()}-*")]


def test_a_command_sees_its_view_and_its_work_and_its_environment_and_the_answer_comes_back(sealed, tmp_path):
    (tmp_path / "view/nested").mkdir()
    (tmp_path / "view/nested/table").write_text("rows")
    (tmp_path / "work/prompt.md").write_text("who did it?")
    ended = sealed(
        "import os, json, pathlib\n"
        "given = sorted(open('/proc/self/environ').read().split(chr(0))[:-1])\n"
        "told = [open('/view/nested/table').read(), open('prompt.md').read(), given, os.getcwd(), os.getuid()]\n"
        "pathlib.Path('out').mkdir(); open('out/answer.json', 'w').write('{}'); print(json.dumps(told))",
        environment={"KEY": "value"},
    )
    assert json.loads(ended.stdout_tail)[:4] == ["rows", "who did it?", ["HOME=/work", "KEY=value"], "/work"]
    assert json.loads(ended.stdout_tail)[4] != 0
    assert (ended.exit_code, ended.signal, ended.limit, ended.left_behind) == (0, None, None, ())
    assert (tmp_path / "work/out/answer.json").read_text() == "{}"
    assert groups_left() == []


LOOK = """
import json, os
namespaces = {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in "cgroup ipc mnt net pid user uts".split()}
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
powers = [int(status[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")]
held = [name for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")]
print(json.dumps([namespaces, powers, status["NoNewPrivs"].strip(), status["Seccomp"].strip(), sorted(held)]))
print(os.readlink("/proc/self/fd/0"), os.getsid(0) == os.getpid(), open("/proc/self/uid_map").read().split()[::2])
try: open("/dev/tty")
except OSError: print("no terminal")
"""


def test_a_command_has_namespaces_of_its_own_and_no_powers_descriptors_or_terminal(sealed):
    ended = sealed(LOOK)
    looked, rest = ended.stdout_tail.split("\n", 1)
    namespaces, *others = json.loads(looked)
    assert [name for name, number in namespaces.items() if number == Path(f"/proc/self/ns/{name}").stat().st_ino] == []
    assert others == [[0] * 5, "1", "2", ["0", "1", "2"]]
    assert rest == "/dev/null True ['1000', '1']\nno terminal\n"


def test_a_machine_that_gives_namespaces_gives_a_seal():
    """Tests are skipped where no seal can be made: a seal that broke must not pass for that."""
    wanted = [
        "--user",
        "--map-root-user",
        "--mount",
        "--mount-proc",
        "--pid",
        "--fork",
        "--net",
        "--ipc",
        "--uts",
        "--cgroup",
    ]
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, *wanted, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no namespaces to anyone, or has no unshare(1)")
    assert sealing_refusal() is None


def test_an_end_is_told(sealed):
    assert sealed("raise SystemExit(7)").exit_code == 7
    ended = sealed("import os; os.kill(os.getpid(), 11)")
    assert (ended.exit_code, ended.signal, ended.reason) == (None, "SIGSEGV", "killed by SIGSEGV")
    ended = sealed("", command=["/no/such/program"])
    assert ended.exit_code == 127
    assert "cannot start" in ended.reason


def test_the_wall_clock_ends_everything_and_what_was_written_is_kept(sealed, tmp_path):
    token = f"token-{os.getpid()}"
    ended = sealed(
        "import os, signal, time\n"
        "open('answer', 'w').write('half'); print('begun', flush=True)\n"
        "for number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\n"
        "for _ in range(2):\n"
        "    if os.fork() == 0: os.setsid()\n"
        f"time.sleep(600) # {token}",
        wall_clock_s=0.5,
    )
    assert (ended.exit_code, ended.signal, ended.limit) == (None, "SIGKILL", "wall_clock_s")
    assert 0.5 <= ended.seconds < 20
    assert ended.stdout_tail == "begun\n"
    assert (tmp_path / "work/answer").read_text() == "half"
    assert left_running(token) == []


def test_a_daemon_ends_with_its_command_and_does_not_without_a_seal(sealed):
    token = f"daemon-{os.getpid()}"
    program = f"import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600) # {token}"
    assert sealed(program).exit_code == 0
    assert left_running(token) == []
    subprocess.run([python_path(), "-I", "-S", "-c", program], check=True)
    survivors = left_running(token)
    assert survivors, "the control: without a seal it lives on"
    for pid in survivors:
        os.kill(pid, signal.SIGKILL)


def test_output_is_bounded(sealed):
    ended = sealed("print('x' * 3_000_000 + 'end')", output_bytes=1000)
    assert len(ended.stdout_tail) == 1000
    assert ended.stdout_tail.endswith("xend\n")
    ended = sealed("import sys; sys.stdout.buffer.write(bytes(range(256)))")
    assert "\ufffd" in ended.stdout_tail


def test_limits_that_end_a_command_are_named(sealed):
    if groups_for_seals():
        ended = sealed("x = bytearray(2**29)", memory_bytes=2**26)
        assert (ended.limit, ended.signal) == ("memory_bytes", "SIGKILL")
    ended = sealed(
        "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nopen('f', 'wb').write(bytes(2**21))",
        file_bytes=2**20,
    )
    assert (ended.limit, ended.signal) == ("file_bytes", "SIGXFSZ")


def test_process_one_cannot_be_ended_from_inside(sealed):
    ended = sealed(
        "import os\n"
        "for number in (9, 2, 15, 19, 11):\n"
        "    try: os.kill(1, number)\n"
        "    except PermissionError: pass\n"
        "print('alive')"
    )
    assert (ended.exit_code, ended.stdout_tail) == (0, "alive\n")


def test_more_can_be_lent_and_parts_of_it_hidden(sealed, tmp_path):
    (tmp_path / "agent/truth").mkdir(parents=True)
    (tmp_path / "agent/truth/root").write_text("x")
    (tmp_path / "agent/secret").write_text("x")
    (tmp_path / "agent/code").write_text("mine")
    ended = sealed(
        "import os\n"
        "print(open('/agent/code').read(), os.listdir('/agent/truth'), open('/work/tool').read())\n"
        "print(repr(open('/agent/secret').read()))\n"
        "open('/agent/code', 'w')",
        readable={"/agent": tmp_path / "agent", "/work/tool": tmp_path / "agent/code"},
        hidden=[tmp_path / "agent/truth", tmp_path / "agent/secret"],
    )
    assert ended.stdout_tail == "mine [] mine\n''\n", ended
    assert "Read-only" in ended.stderr_tail or "Permission" in ended.stderr_tail


def test_what_makes_no_sense_is_one_sentence(sealed, tmp_path):
    with pytest.raises(UserError, match="'model', which is not among"):
        sealed("", ports={8000: "model"})
    with pytest.raises(UserError, match="A socket's name"):
        sealed("", sockets={"../x": tmp_path})
    with pytest.raises(UserError, match="Nothing can be shown as '/proc/x'"):
        sealed("", readable={"/proc/x": tmp_path})
    (tmp_path / "view/link").symlink_to("/etc")
    with pytest.raises(UserError, match=r"view/link is neither a plain file nor a folder"):
        sealed("")


def test_programs_that_are_no_attackers_work(sealed):
    ended = sealed(
        "import multiprocessing.shared_memory as m, os, socket, subprocess, tempfile, threading, time\n"
        "m.SharedMemory(create=True, size=64).unlink()\n"
        "threading.Thread(target=print, args=('thread',)).start(); time.sleep(0.01)\n"
        "print(subprocess.run(['sh', '-c', 'echo shell > /dev/stderr; echo shell'], capture_output=True, text=True))\n"
        "tempfile.NamedTemporaryFile(); os.openpty(); socket.socketpair(); socket.getaddrinfo('localhost', 80)\n"
        "open('/dev/stdout', 'w').write('own output')",
        environment={"PATH": "/usr/bin:/bin"},
    )
    assert ended.exit_code == 0, ended.stderr_tail
    assert "stdout='shell\\n', stderr='shell\\n'" in ended.stdout_tail
    assert "own output" in ended.stdout_tail


def test_many_seals_at_once_do_not_meet(tmp_path):
    told = {}

    def run(number):
        view, work = tmp_path / f"view{number}", tmp_path / f"work{number}"
        view.mkdir()
        work.mkdir()
        (view / "own").write_text(str(number))
        program = (
            "import os, time; time.sleep(0.1); print(open('/view/own').read(), os.listdir('/view'), os.listdir('/tmp'))"
        )
        seal = Sandbox(view, work, {}, {}, SandboxLimits(wall_clock_s=60), {})
        told[number] = seal.run([python_path(), "-I", "-S", "-c", program]).stdout_tail

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert told == {number: f"{number} ['own'] []\n" for number in range(4)}


def test_the_example_of_the_docs_is_run(sealed):
    assert sealed("").exit_code == 0  # or it is skipped
    page = (SRC.parent / "docs/sealing.md").read_text()
    (script,) = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "this machine can seal\nended with exit code 3\n1000\n/proc/2\n\n{}\n\n"
