"""The template and its forks: side by side, apart from each other, and gone when they should be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from opsassay.core.errors import LostError, UserError
from opsassay.evals.diagnosis.environment import opaque_view
from opsassay.evals.diagnosis.workers.pool import Workers
from telemetry.packs import make_pack


@pytest.fixture(scope="module")
def pack(tmp_path_factory):
    return make_pack(tmp_path_factory.mktemp("pack") / "p", error_in="cart")


@pytest.fixture
def workers():
    made = Workers()
    yield made
    made.close()


def job(name):
    return {"kind": "method", "name": name}


def solve(workers, pack, name, timeout_s=120.0):
    with opaque_view(pack) as folder:
        code = workers.run(job(name), folder, timeout_s)
        return code, json.loads((folder / "answer.json").read_text())


def template_of(workers):
    assert workers._template is not None
    return psutil.Process(workers._template.pid)


@pytest.mark.slow
def test_many_runs_side_by_side_come_from_one_template_and_agree(workers, pack):
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: solve(workers, pack, "max-z"), range(8)))
    assert {code for code, _ in found} == {0}
    assert len({json.dumps(told) for _, told in found}) == 1
    assert template_of(workers).children() == []


def test_one_run_leaves_nothing_behind_for_the_next(workers, pack, tmp_path, monkeypatch):
    (tmp_path / "tainting.py").write_text(
        "import opsassay.solvers.methods.loudest\n"
        "class Taints:\n"
        "    name, source, cost, configuration = 'taints', 'tests', 'none', {}\n"
        "    def diagnose(self, view):\n"
        "        from opsassay.core.schema.diagnosis import Diagnosis\n"
        "        seen = hasattr(opsassay.solvers.methods.loudest, 'TAINT')\n"
        "        opsassay.solvers.methods.loudest.TAINT = True\n"
        "        return Diagnosis(notes=('tainted' if seen else 'clean',))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    notes = [solve(workers, pack, "tainting:Taints")[1]["diagnosis"]["notes"] for _ in range(2)]
    assert notes == [["clean"], ["clean"]]


@pytest.mark.slow
def test_a_run_sees_no_other_run_in_its_descriptors(workers, pack):
    with opaque_view(pack) as other:
        hanging = threading.Thread(target=lambda: _hang(workers, other))
        hanging.start()
        _, told = solve(workers, pack, "evals.solvers:Spy")
        hanging.join()
    seen = told["diagnosis"]["protocol"]
    assert not [name for name in seen["descriptors"] if name.startswith("socket:")]
    assert str(other) not in json.dumps(seen)


def _hang(workers, folder):
    with pytest.raises(TimeoutError):
        workers.run(job("evals.solvers:Hangs"), folder, 3)


@pytest.mark.slow
def test_a_template_that_was_killed_takes_its_runs_along_and_is_started_again(workers, pack):
    assert solve(workers, pack, "constant")[0] == 0
    template = template_of(workers)
    lost: list[BaseException] = []

    def run():
        try:
            with opaque_view(pack) as folder:
                workers.run(job("evals.solvers:Hangs"), folder, 600)
        except LostError as error:
            lost.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not (forks := template.children()):
        time.sleep(0.02)
    template.kill()
    thread.join(60)
    assert len(lost) == 1
    assert psutil.wait_procs(forks, timeout=60)[1] == []
    assert solve(workers, pack, "constant")[0] == 0
    assert template_of(workers).pid != template.pid


@pytest.mark.slow
def test_the_template_ends_with_its_runner_whatever_killed_it(pack, tmp_path):
    program = (
        "import sys\nfrom pathlib import Path\nfrom opsassay.evals.diagnosis.workers.pool import shared_workers\n"
        "shared_workers().run({'kind': 'method', 'name': 'evals.solvers:Hangs'}, Path(sys.argv[1]), 600)\n"
    )
    with opaque_view(pack) as folder:
        runner = subprocess.Popen(
            [sys.executable, "-c", program, str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        )
        below: list[psutil.Process] = []
        while len(below) < 2:  # template and fork
            assert runner.poll() is None
            time.sleep(0.05)
            below = psutil.Process(runner.pid).children(recursive=True)
        runner.kill()
        runner.wait()
        assert psutil.wait_procs(below, timeout=60)[1] == []


def test_an_exit_code_and_a_signal_come_back_as_they_are(workers, pack):
    with opaque_view(pack) as folder:
        assert workers.run(job("evals.solvers:Exits"), folder, 120) == 3
    with opaque_view(pack) as folder:
        assert workers.run(job("evals.solvers:Dies"), folder, 120) == -9


def test_a_job_that_is_too_large_is_refused(workers, tmp_path):
    with pytest.raises(UserError, match="shorten"):
        workers.run({"kind": "method", "name": "x" * 200_000}, Path(tmp_path), 10)
