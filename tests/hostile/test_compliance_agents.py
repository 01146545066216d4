"""An agent on a held-out compliance task learns nothing of the worlds that it is judged on, nor of who judges."""

from __future__ import annotations

import ast
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

import opsassay
from opsassay.core.errors import OpsAssayError
from opsassay.evals.compliance.domain import CISO_DOMAIN
from opsassay.evals.compliance.scripts.oracles import ORACLES
from opsassay.evals.compliance.tasks import KUBECTL, ComplianceTask
from opsassay.solvers.sandbox import sealing_refusal

CLASS = "15 agents that look for held-out worlds"
SECRET = "of-held-out-worlds-73190"
TASK = "new-opa-kubectl-host-ports"
AGENT = Path(__file__).parent / "agents" / "reaching.py"
NAMES = [
    one.name
    for one in ast.parse(AGENT.read_text()).body
    if isinstance(one, ast.FunctionDef) and "attempt" in [ast.unparse(by) for by in one.decorator_list]
]
DEPENDS_ON_THE_MACHINE = {
    "tracing_the_runner": "Yama or a container forbids tracing",
    "the_memory_of_the_runner": "the same",
}
RUNNER = "import sys; from opsassay.cli import run; sys.exit(run(sys.argv[1:]))"

pytestmark = [
    pytest.mark.skipif(sealing_refusal() is not None, reason=f"nothing can be sealed here: {sealing_refusal()}"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine"),
]


class Machine:
    """A store with a run in it, the secret, a repository that held it, sockets that say it: all that must not be reached."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.store, self.secret = folder, folder / "store", folder / "held-out.secret"
        self.secret.write_text(SECRET)
        self.agents, self.name = folder / "agents", f"{folder.name}-{os.getpid()}"
        self.agents.mkdir()
        self._git("init", "--quiet"), self._git("add", "held-out.secret"), self._git("commit", "--quiet", "-m", "one")
        self._git("rm", "--quiet", "--cached", "held-out.secret"), self._git("commit", "--quiet", "-m", "two")
        self.shared = Path("/dev/shm", self.name)
        self.shared.write_text(SECRET)
        stack.callback(self.shared.unlink)
        self.sockets = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="machine-")))
        _serve(stack, socket.AF_UNIX, f"{self.sockets}/machine.sock")
        _serve(stack, socket.AF_UNIX, f"\0{self.name}")
        self.port = _serve(stack, socket.AF_INET, ("127.0.0.1", 0))[1]

    def _git(self, *words: str) -> None:
        person = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", self.folder, *person, *words], check=True, capture_output=True)

    def facts(self, descriptor: int) -> dict[str, object]:
        return {
            "secret": SECRET, "secret_file": str(self.secret), "plan": str(self.folder), "store": str(self.store),
            "task": TASK, "package": str(Path(opsassay.__file__).parent), "descriptor": descriptor,
            "engine": str(next(iter(find_spec("regorus").submodule_search_locations))), "temporary": tempfile.gettempdir(),
            "shared": str(self.shared), "socket": f"{self.sockets}/machine.sock", "port": self.port,
            "abstract": self.name, "repository": str(self.folder),
        }  # fmt: skip

    def run(self, agents: list[str], sealing: str = "auto") -> dict[str, dict]:
        """Run a plan with the command of users, as a process that holds the secret wherever a careless one could."""
        plan = {
            "domain": "ciso", "tasks": [TASK], "published": False, "agents": agents,
            "held_out": {"secret": "held-out.secret", "count": 1}, "settings": {"sealing": sealing},
        }  # fmt: skip
        (self.folder / "plan.yaml").write_text(yaml.safe_dump(plan))
        command = [sys.executable, "-c", RUNNER, "run", "plan.yaml", "-o", str(self.store), "--json"]
        with self.secret.open() as held:
            (self.agents / "facts.json").write_text(json.dumps(self.facts(held.fileno())))
            done = subprocess.run(
                ["sh", "-c", f'echo $$ > {self.agents}/pid; exec "$@"', "sh", *command],
                cwd=self.folder, env={**os.environ, "OPSASSAY_TEST_KEY": SECRET}, pass_fds=[held.fileno()],
                capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip
        assert done.stdout, done.stderr
        return {item["solver"]: item for item in json.loads(done.stdout)["items"]}


def _serve(stack: ExitStack, family: int, address) -> tuple:
    listener = stack.enter_context(socket.socket(family))
    listener.bind(address)
    listener.listen()

    def answer() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, suppress(OSError):
                    connection.sendall(SECRET.encode())

    threading.Thread(target=answer, daemon=True).start()
    return listener.getsockname()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict, dict, list[Path]]]:
    """What came of all attempts, sealed and not: the graded run, each attempt, and what was planted in the store."""
    found = {}
    with ExitStack() as stack:
        for name, sealing in {"sealed": "auto", "unsealed": "off"}.items():
            machine = Machine(tmp_path_factory.mktemp(name), stack)
            machine.run(["oracle:right"])
            for path, content in ORACLES[KUBECTL]["right"][0](ComplianceTask(name=TASK, seed=1)).items():
                (machine.agents / path).write_bytes(content)
            shutil.copy(AGENT, machine.agents)
            files = ["reaching.py", "facts.json", "pid", "fetcher.sh", "policy.rego"]
            body = {"agent": "reaching", "command": ["{python}", "{agent}/reaching.py", "{work}"], "files": files}
            (machine.agents / "agent.yaml").write_text(yaml.safe_dump(body))
            item = machine.run(["agents/agent.yaml"], sealing)["reaching"]
            log = next(path for path in machine.store.rglob("solver.log") if '"reached"' in path.read_text())
            attempts = json.loads(next(line for line in log.read_text().splitlines() if line.startswith("{")))
            found[name] = item, attempts, list(machine.store.rglob("planted.json"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_no_attempt_reaches_what_it_is_after(made, name: str) -> None:
    assert made["sealed"][1][name].get("reached") is False, made["sealed"][1][name]
    without = made["unsealed"][1][name]  # the control
    if without.get("reached") is False and name in DEPENDS_ON_THE_MACHINE:
        pytest.skip(f"no control for {name} here: {DEPENDS_ON_THE_MACHINE[name]} ({without.get('held')})")
    assert without.get("reached") is True, without


@pytest.mark.slow
def test_the_answer_counts_for_what_it_is_and_nothing_was_planted(made) -> None:
    for how, planted in (("sealed", 0), ("unsealed", 1)):
        item, _, found = made[how]
        assert item["metrics"]["passed"]["value"] == 1.0, item["metrics"]
        assert len(found) == planted
        assert bool(item["not_ranked"]) is (how == "unsealed")


ASKED = {
    "the secret as a file of its own": lambda _: {"files": ["held-out.secret"]},
    "all that lies beside it": lambda _: {"files": ["."]},
    "a link to the secret": lambda _: {"files": ["parts/link"]},
    "a folder with a link to the machine": lambda _: {"files": ["parts"]},
    "the secret to be readable": lambda folder: {"readable": [str(folder / "held-out.secret")]},
    "the folder above to be readable": lambda folder: {"readable": [str(folder.parent)]},
}


@pytest.mark.parametrize("what", ASKED)
def test_no_description_of_an_agent_brings_the_secret_in(tmp_path: Path, outside: Path, what: str) -> None:
    folder = tmp_path / "plan"
    (folder / "parts").mkdir(parents=True)
    (folder / "held-out.secret").write_text(SECRET)
    (folder / "parts" / "plain.py").write_text("print()")
    (folder / "parts" / "link").symlink_to("../held-out.secret" if "secret" in what else outside)
    part = {"tasks": [TASK], "agents": ["agent.yaml"], "published": False, "held_out": {"secret": "held-out.secret"}}

    def jobs(asked: dict):
        (folder / "agent.yaml").write_text(yaml.safe_dump({"agent": "a", "command": ["true"], **asked}))
        return CISO_DOMAIN.jobs(part, folder, "plan.yaml")

    with pytest.raises(OpsAssayError) as refused:
        list(jobs(ASKED[what](folder)))
    assert "\n" not in str(refused.value)
    assert len(jobs({"files": ["parts/plain.py"]})) == 1  # the control
