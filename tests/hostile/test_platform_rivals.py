"""Owners of the platform who would take away what others have: ranks, names, reasons, and what lies on its disk."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
import urllib.request

import psutil
import psycopg
import pytest

from opsassay.server.benchmarks import MOST_CELLS
from opsassay.server.client import PlatformError
from server.conftest import Running, bundle, finished

CLASS = "24 rivals on the platform"
pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
AGENT = """
agent: {name}
command: ["{{python}}", "{{agent}}/a.py", "{{answer}}"]
files: [a.py]
"""
NOTHING = "import json, sys; json.dump({'rows': []}, open(sys.argv[1], 'w'))"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    state = tmp_path_factory.mktemp("rivals") / "state"
    (state / "task_sets").mkdir(parents=True)
    (state / "task_sets" / "secret").write_text("of-the-platform-88213-and-nobody-else")
    part = {"tasks": ["category-cost"], "published": False, "held_out": {"secret": "secret", "count": 1}}
    held = {"domain": "finops", "baselines": [], "attempts": 2, "part": part}
    (state / "task_sets" / "held.yaml").write_text(json.dumps(held))
    found = Running(state)
    yield found
    found.end()


def uploaded(owner, name, inside, **files):
    body = bundle(agent__yaml=AGENT.format(name=inside), **(files or {"a__py": NOTHING}))
    return owner.ask("POST", f"/api/agents/bundle?name={name}&level=any&domains=finops", body)["id"]


def board(running, task_set):
    found = json.loads(urllib.request.urlopen(f"{running.url}/api/leaderboards/{task_set}").read())
    return {row["solver"]: row for row in found["items"]}, found["warnings"]


def refused(work, *words, **further):
    with pytest.raises(PlatformError) as caught:
        work(*words, **further)
    return str(caught.value)


def registered(owner, name, source="gap"):
    form = {"name": name, "kind": "built_in", "domains": ["finops"], "source": source}
    return owner.ask("POST", "/api/agents", form)["id"]


ALIKE = {
    "another case": ("Northwind", "NORTHWIND", "Southwind"),
    "a letter of another script": ("compass", "c\u043empass", "encompass"),
    "figures for letters": ("loophole", "l00ph0le", "loopholes"),
    "two letters for one": ("lantern m", "lantern rn", "lantern n"),
    "spaces": ("grey owl", "grey-owl", "grey owls"),
    "letters of full width": ("plover", "\uff50lover", "plovers"),
}


@pytest.mark.parametrize("how", ALIKE)
def test_a_name_that_looks_like_another_is_taken(running, how):
    first, alike, other = ALIKE[how]
    rival = running.user(f"rival by {how}")
    registered(running.user(f"first of {how}"), first, "chance")
    assert "looks like" in refused(registered, rival, alike, "chance")
    registered(rival, other, "chance")  # the control


@pytest.mark.parametrize(
    "name", ["constant", "Chance", "c0nstant", "constant (baseline of finops)", "allow-all", "no baseline of mine"]
)
def test_a_name_of_a_baseline_is_the_platforms(running, name):
    rival = running.user(f"rival of {name}".replace("(", "").replace(")", ""))
    assert "baseline" in refused(registered, rival, name, "chance")
    registered(rival, f"apart from all {sum(map(ord, name))}", "chance")  # the control


def test_a_bundle_that_calls_itself_a_baseline_is_an_agent_under_its_own_name(running):
    rival = running.user("quiet")
    finished(rival, rival.request(uploaded(rival, "quiet-name", "constant"), "bill"))
    admin = {one["agent_name"]: one for one in running.client().ask("GET", "/api/benchmarks")["items"]}
    finished(running.client(), admin["constant (baseline of finops)"]["id"])
    rows, warnings = board(running, "bill")
    assert not rows["quiet-name"]["baseline"]
    assert rows["constant"]["baseline"]  # the control
    assert any("published seed" in one for one in warnings)


def test_reasons_of_held_out_tasks_are_the_admins_until_the_set_is_closed_and_attempts_are_limited(running):
    rival = running.user("curious")
    agent = uploaded(rival, "curious", "curious")
    benchmark = rival.request(agent, "held")
    finished(rival, benchmark)

    def reasons(who):
        return "".join(one["reason"] for cell in who.benchmark(benchmark)["cells"] for one in cell["metrics"].values())

    assert not reasons(rival)
    assert reasons(running.client())
    assert not any("published seed" in one for one in board(running, "held")[1])
    finished(rival, rival.request(agent, "held"))
    assert "all that an owner has" in refused(rival.request, agent, "held")
    path = running.state / "task_sets" / "held.yaml"
    path.write_text(json.dumps({**json.loads(path.read_text()), "closed": True}))
    assert reasons(rival)  # the control
    assert "closed" in refused(rival.request, agent, "held")


WAITING = """
WITH asked AS (
    INSERT INTO benchmarks SELECT 'waiting', agent_id, task_set, digest, plan, 'Error', since_ns, error, created_ns
    FROM benchmarks WHERE id = %s RETURNING id
)
INSERT INTO cells SELECT 'waiting-' || n, asked.id, to_hex(n), domain, task, task_digest, arm, seed, 'NotStarted', agent, since_ns, NULL, NULL, 0
FROM asked, generate_series(1, %s) AS n, (SELECT * FROM cells WHERE benchmark_id = %s LIMIT 1) AS one
"""
"""Cells of another benchmark of the same agent that are not at an end; its state keeps the server from queueing them."""


def test_cells_of_one_owner_that_wait_are_limited(running):
    rival, other = running.user("greedy"), running.user("modest")
    first, second = registered(rival, "greedy one", "chance"), registered(rival, "greedy two", "chance")
    begun = rival.request(first, "bill")
    finished(rival, begun)
    with psycopg.connect(running.database(), autocommit=True) as database:
        database.execute(WAITING, [begun, MOST_CELLS - 2, begun])
        try:
            assert f"{MOST_CELLS - 2} of yours are not at an end yet" in refused(rival.request, second, "bill")
            finished(other, other.request(registered(other, "modest one", "chance"), "bill"))  # the control
        finally:
            database.execute("DELETE FROM cells WHERE benchmark_id = 'waiting'")
            database.execute("DELETE FROM benchmarks WHERE id = 'waiting'")
    finished(rival, rival.request(second, "bill"))  # the control


def test_a_refused_upload_leaves_nothing_and_no_answer_has_a_folder_of_the_machine(running):
    rival = running.user("careless")
    before = {path for path in (running.state / "artefacts").rglob("*") if path.is_file()}
    said = refused(uploaded, rival, "careless", "careless", b__py="")
    assert str(running.state) not in said
    assert {path for path in (running.state / "artefacts").rglob("*") if path.is_file()} == before
    uploaded(rival, "careful", "careful")  # the control
    kept = {path for path in (running.state / "artefacts").rglob("*") if path.is_file()} - before
    assert [stat.S_IMODE(path.stat().st_mode) for path in kept] == [0o600]


def workers_of(running):
    return [one for one in psutil.Process(running.process.pid).children() if "worker" in one.cmdline()]


def waited(what, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return found


@pytest.mark.parametrize("which", ["worker", "PostgreSQL"])
def test_what_is_killed_beside_the_server_is_started_again_and_said(running, which):
    rival = running.user(f"patient with {which}")
    agent = registered(rival, f"patient with {which}", "chance")
    if which == "worker":
        (killed,) = [one.pid for one in workers_of(running)]
    else:
        killed = int((running.state / "postgresql" / "postmaster.pid").read_text().split()[0])
    os.kill(killed, signal.SIGKILL)
    for line in running.process.stderr:
        if f"{which}" in line and "started again" in line:
            break

    def asked():
        try:
            return rival.request(agent, "bill")
        except PlatformError:  # the database is being started
            return None

    assert finished(rival, waited(asked))["state"] == "Finished"


def test_workers_end_with_a_server_that_is_killed_and_the_next_one_starts(running):
    last = running.user("last")
    finished(last, last.request(registered(last, "last one", "chance"), "bill"))
    left, (log,) = workers_of(running), running.state.glob("worker-*.log")
    assert left
    running.process.kill()
    running.process.wait(20)
    # It does not wait for the database that is gone.
    waited(lambda: log.read_text().rstrip().endswith("the worker has ended"), timeout_s=150)
    waited(lambda: not any(one.is_running() for one in left), timeout_s=150)
    running.start()
    assert running.client().ask("GET", "/api/health")["status"] == "ok"  # the control
