"""The platform as its users have it: agents are registered, run, graded and ranked, and nobody gets what is not theirs."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from sqlalchemy import func, select

from opsassay.cli import run as command_line
from opsassay.core.schema.metric_words import METRICS
from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.server.api import RecentAnswers
from opsassay.server.artefacts import Artefacts
from opsassay.server.benchmarks import Platform
from opsassay.server.client import PlatformError
from opsassay.server.database import RESULTS, engine_of
from opsassay.server.events import Signer
from opsassay.server.itbench import ITBENCH
from opsassay.server.leaderboards import LeaderboardCache
from opsassay.server.operations import OPERATIONS
from opsassay.server.site import platform_app
from telemetry.packs import make_tree
from ui.figures import column, in_page, in_report

from .conftest import bundle, finished

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]
AGENT = """
agent: guesser
command: ["{python}", "{agent}/guess.py", "{prompt}", "{work}"]
files: [guess.py]
needs: [mcp]
"""
GUESS = """
import json, subprocess, sys
prompt, work = open(sys.argv[1]).read(), sys.argv[2]
answer = {"anomalies": []} if "anomalies" in prompt else {"rows": []}
words = [f"{k}={json.dumps(v)}" for k, v in answer.items()]
print(subprocess.run([sys.executable, work + "/opsassay_tool.py", "submit", *words], capture_output=True, text=True))
"""


@pytest.fixture(scope="module")
def owner(platform):
    return platform.user("ada")


@pytest.fixture(scope="module")
def other(platform):
    return platform.user("mallory")


@pytest.fixture(scope="module")
def graded(platform, owner):
    """A benchmark of ada's agent, at its end."""
    agent = owner.ask(
        "POST", "/api/agents", {"name": "chancer", "kind": "built_in", "domains": ["finops"], "source": "chance"}
    )["id"]
    return agent, finished(owner, owner.request(agent, "bill"))


def refused(client, *words, status):
    with pytest.raises(PlatformError) as caught:
        client.ask(*words)
    assert caught.value.status == status, caught.value
    return str(caught.value)


def test_a_benchmark_comes_to_results_with_evidence_and_its_baseline_beside_it(platform, owner, graded):
    agent, benchmark = graded
    assert benchmark["state"] == "Finished"
    assert [cell["bundle"] for cell in benchmark["cells"]] == ["Terminated"] * 3
    assert all(cell["passed"] is False and len(cell["evidence"]) == 64 for cell in benchmark["cells"])
    for cell in benchmark["cells"]:
        assert (platform.state / "stores" / "bill" / cell["run"] / "run.json").is_file()
    admin = {one["agent_name"]: one for one in platform.client().ask("GET", "/api/benchmarks")["items"]}
    finished(platform.client(), admin["constant (baseline of finops)"]["id"])
    board = json.loads(urllib.request.urlopen(f"{platform.url}/api/leaderboards/bill").read())
    rows = {row["solver"]: row for row in board["items"]}
    assert rows["chance"]["rank"] is None
    assert rows["constant"]["baseline"]
    assert len(rows["chance"]["evidence"]) == 3
    assert [one["id"] for one in owner.ask("GET", "/api/agents")["items"]] == [agent]


def test_a_board_needs_no_run_s_folder_and_reads_it_where_a_row_is_older(platform, graded, tmp_path):
    shutil.copytree(platform.state / "task_sets", tmp_path / "task_sets")
    engine = engine_of(platform.database())

    def solvers(connection, state):
        board = (
            LeaderboardCache(Platform(state, engine, Signer.from_folder(state), Artefacts(tmp_path)))
            .board(connection, "bill")
            .board
        )
        return {row.entry.name: [(run.id, run.spent) for run in row.entry.runs] for row in board.rows}

    with engine.connect() as connection:  # what it does is rolled back
        kept = solvers(connection, tmp_path)
        assert len(kept["chance"]) == 3
        connection.execute(RESULTS.update().values(record=None))
        assert solvers(connection, platform.state) == kept
        with pytest.raises(FileNotFoundError):
            solvers(connection, tmp_path)
    engine.dispose()


def test_a_board_that_is_kept_is_never_older_than_its_results(platform, graded, tmp_path):
    shutil.copytree(platform.state / "task_sets", tmp_path / "task_sets")
    engine = engine_of(platform.database())
    shelf = LeaderboardCache(Platform(tmp_path, engine, Signer.from_folder(platform.state), Artefacts(tmp_path)))

    def runs(connection):
        return {run.id: run.values for row in shelf.board(connection, "bill").board.rows for run in row.entry.runs}

    shelf.prepare("bill")
    with engine.connect() as connection:  # what it does is rolled back
        connection.execute(RESULTS.update().values(record=None))
        kept = runs(connection)  # was prepared: without records it could not be made here, where no run has a folder
        one = connection.execute(RESULTS.select()).mappings().first()
        graded_anew = {name: {**metric, "value": 0.125} for name, metric in one["metrics"].items()}
        changed = {"record": (platform.state / "stores" / "bill" / one["run"] / "run.json").read_text()}
        where = RESULTS.c.cell_id == one["cell_id"]
        connection.execute(RESULTS.update().where(where).values(metrics=graded_anew, **changed))
        regraded = runs(connection)
        name = one["run"].removeprefix("runs/")
        assert set(regraded[name].values()) == {0.125} != set(kept[name].values())
        assert regraded == kept | {name: regraded[name]}
        connection.execute(RESULTS.delete().where(where))
        assert runs(connection).keys() == kept.keys() - {name}
        connection.execute(RESULTS.insert().values({**one, **changed}))
        assert runs(connection) == kept
    engine.dispose()


def test_two_processes_say_the_same_of_results_as_they_change_and_keep_nothing_of_what_is_gone(platform, graded):
    engine = engine_of(platform.database())
    here = LeaderboardCache(
        Platform(platform.state, engine, Signer.from_folder(platform.state), Artefacts(platform.state))
    )

    def boards():
        """The solvers by what a server, this process, and one that has looked at nothing yet say of them."""
        with engine.connect() as connection:
            new = LeaderboardCache(here._platform)
            of = [[row.as_item() for row in one.board(connection, "bill").board.rows] for one in (here, new)]
        of.append(fetched(platform, "/api/leaderboards/bill")["items"])
        said = [
            {one["solver"]: (one["success"], one["runs"], one["rank"], one["metrics"]) for one in items} for items in of
        ]
        assert said[0] == said[1] == said[2]
        return said[0]

    before = boards()
    with engine.connect() as connection:
        row = dict(connection.execute(RESULTS.select()).mappings().first())
    where, passed = RESULTS.c.cell_id == row["cell_id"], Metric(value=0.625, status=MetricStatus.SCORED)
    changes = (
        RESULTS.update().where(where).values(metrics=dict.fromkeys(row["metrics"], passed.model_dump(mode="json"))),
        RESULTS.delete().where(where),
        RESULTS.insert().values(row),
    )
    said = []
    for change in changes:
        with engine.begin() as connection:
            connection.execute(change)
        said.append(boards())
    assert said[0] != before != said[1] != said[0]
    assert said[2] == before
    read = [run for one in here._read["bill"].values() for run in one.contents]
    with engine.connect() as connection:
        assert len(read) == connection.execute(select(func.count()).select_from(RESULTS)).scalar_one()
    engine.dispose()


def fetched(platform, path):
    with urllib.request.urlopen(platform.url + path) as answer:
        return json.loads(answer.read())


def test_every_number_leads_to_its_runs_and_every_run_to_its_evidence(platform, owner, graded):
    _, benchmark = graded
    runs = fetched(platform, "/api/leaderboards/bill/runs?solver=chance")
    assert {f"runs/{one['run']}" for one in runs["items"]} == {cell["run"] for cell in benchmark["cells"]}
    assert fetched(platform, "/api/leaderboards/bill/runs?solver=chance&outcome=succeeded")["all"] == 0
    cell = benchmark["cells"][0]
    run = fetched(platform, f"/api/leaderboards/bill/{cell['run']}")
    events = {event["hash"]: event for event in owner.ask("GET", "/api/events?limit=10000")["items"]}
    assert json.loads(events[run["event"]]["body"])["evidence"] == run["evidence"] == cell["evidence"]
    assert fetched(platform, "/api/boards/bill/runs?solver=chance") == runs  # the address that it had before
    two = fetched(platform, "/api/leaderboards/bill/compare?one=chance&two=constant")
    assert two["tasks"] == 3
    assert "exactly the same" in two["answer"] or "cannot be distinguished" in two["answer"]
    for path in ("runs/0000/1", "runs?outcome=none", "compare?one=chance&two=nobody"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{platform.url}/leaderboards/bill/{path}")
        assert caught.value.code in (400, 404)
        caught.value.close()


INCIDENTS = """
domain: diagnosis
baselines: [constant]
part: {incidents: [incidents]}
"""


def test_a_solver_has_the_figures_of_the_commands_and_of_their_pages(platform, owner, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    cases = make_tree(platform.state / "task_sets" / "incidents", count=2).root
    (platform.state / "task_sets" / "broken.yaml").write_text(INCIDENTS)
    about = {"name": "reader", "kind": "built_in", "domains": ["diagnosis"], "source": "self-time"}
    finished(owner, owner.request(owner.ask("POST", "/api/agents", about)["id"], "broken"))
    store, title = platform.state / "stores" / "broken", METRICS["any_service"].title

    def said(command, *words):
        assert command_line([*command.split(), str(store), "--cases", str(cases), *map(str, words)]) == 0
        return capsys.readouterr().out

    shown = {
        "server": in_page(
            urllib.request.urlopen(f"{platform.url}/leaderboards/broken").read().decode(), title, "self-time"
        ),
        "grade": column(said("score run"), title, "self-time", "Grades"),
        "board": column(said("leaderboard"), title, "self-time"),
    }
    said("view", "--export", tmp_path / "pages")
    shown["view"] = in_page((tmp_path / "pages" / "boards" / "diagnosis.html").read_text(), title, "self-time")
    said("report", "-o", tmp_path / "report")
    shown["report"] = in_report((tmp_path / "report" / "report.html").read_text(), title, "self-time")
    assert set(shown.values()) == {"100.0% [34.2, 100.0]"}, shown


def test_an_agent_is_given_the_tasks_of_its_level_and_boards_are_of_a_level_too(platform, owner, graded):
    form = {"name": "an expert", "kind": "built_in", "domains": ["finops"], "source": "chance", "level": "expert"}
    expert = owner.ask("POST", "/api/agents", form)["id"]
    said = refused(owner, "POST", "/api/benchmarks", {"agent": expert, "task_set": "bill"}, status=400)
    assert "bill has no hard task" in said
    easy, hard = (fetched(platform, f"/api/leaderboards/bill?level={level}") for level in ("easy", "hard"))
    assert (easy["tasks"], hard["tasks"], hard["items"]) == (3, 0, [])
    (ours,) = [one for one in easy["items"] if one["solver"] == "chance"]
    assert ours["agents"] == ["chancer"]
    assert refused(owner, "GET", "/api/leaderboards/bill?level=none", status=400)


def test_tasks_have_pages_that_tell_an_agent_no_more_than_how_hard_they_are(platform, graded):
    (first, *_) = tasks = fetched(platform, "/api/leaderboards/bill/tasks")["items"]
    assert [one["task"] for one in tasks] == ["anomalies-spikes", "category-cost", "top-applications"]
    assert (first["level"], first["solvers"], first["solved"], first["by_baselines"]) == ("easy", 0, 0, 0)
    task = fetched(platform, "/api/leaderboards/bill/tasks/category-cost")
    assert {row["solver"]: row["kind"] for row in task["rows"]}["constant"] == "baseline"
    with urllib.request.urlopen(f"{platform.url}/leaderboards/bill/tasks/category-cost") as answer:
        page = answer.read().decode()
    assert "Workload optimization" not in page
    assert "0 of " in page
    overall = fetched(platform, "/api/leaderboards")["items"]
    assert all({"solver", "boards", "bill"} <= set(one) for one in overall)


def test_asking_again_is_no_second_chance(owner, graded):
    agent, benchmark = graded
    again = finished(owner, owner.request(agent, "bill"))
    assert [c["run"] for c in again["cells"]] == [c["run"] for c in benchmark["cells"]]


def test_events_are_a_chain_that_anybody_can_check(platform, owner, graded, tmp_path):
    found = owner.ask("GET", "/api/events?limit=10000")
    kinds = [event["kind"] for event in found["items"]]
    assert {"user", "agent registered", "benchmark requested", "cell", "result", "benchmark"} <= set(kinds)
    (tmp_path / "events.json").write_text(json.dumps(found))
    command = [
        sys.executable,
        "-m",
        "opsassay",
        "server",
        "verify",
        str(tmp_path / "events.json"),
        "--key",
        found["key"],
    ]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


def paths(graded):
    agent, benchmark = graded
    cell = benchmark["cells"][0]["id"]
    fill = {"agent": agent, "benchmark": benchmark["id"], "entry": cell, "bundle": cell, "name": "ada", "report": "0" * 16,
            "task_set": "bill"}  # fmt: skip
    for operation in (*OPERATIONS, *ITBENCH):
        path = operation.path
        for name, value in fill.items():
            path = path.replace("{" + name + "}", value)
        yield operation, path


def test_without_a_token_or_with_a_wrong_one_no_route_gives_anything(platform, graded):
    open_ones = {"/api/health", "/api/events/key"}
    for operation, path in paths(graded):
        if path in open_ones:
            continue
        for token in ("", "ops_guess", "\u20ac"):
            with pytest.raises((PlatformError, UnicodeEncodeError)) as caught:
                platform.client().ask(operation.method, path, {} if operation.form else None, token=token or "none")
            if isinstance(caught.value, PlatformError):
                assert caught.value.status in (401, 403, 422), path


def test_another_users_token_gets_nothing_of_ones_own(other, graded):
    agent, benchmark = graded
    refused(other, "GET", f"/api/benchmarks/{benchmark['id']}", status=403)
    refused(other, "GET", f"/api/agents/{agent}/manifest", status=403)
    refused(other, "POST", "/api/benchmarks", {"agent": agent, "task_set": "bill"}, status=403)
    refused(other, "POST", "/api/reports", {"agent": agent, "task_set": "bill", "said": {"passed": 1}}, status=403)
    refused(other, "GET", "/api/users", status=403)
    refused(other, "POST", "/api/users", {"name": "x", "role": "admin"}, status=403)
    refused(other, "POST", "/api/users/admin/token", status=403)
    for cell in benchmark["cells"]:
        refused(other, "GET", f"/api/entries/{cell['id']}", status=403)
    assert other.ask("GET", "/api/agents")["items"] == []
    assert other.ask("GET", "/api/benchmarks")["items"] == []


BODIES = {
    "/api/users": {"name": "made by another", "role": "admin"},
    "/api/agents": {"name": "not its own", "kind": "built_in", "domains": ["finops"], "source": "oracle:right"},
    "/api/benchmarks": {"agent": "{agent}", "task_set": "bill"},
    "/api/reports": {"agent": "{agent}", "task_set": "bill", "said": {"passed": 1}},
    "/api/entries/{entry}/status": {"status": "STARTED"},
    "/api/relay/{entry}/open": {"prompt": "another prompt"},
    "/itbench/agents": {"name": "not its own", "type": "none"},
    "/itbench/enroll": {"agent_id": "{agent}"},
    "/itbench/ready": {"agent_id": "{agent}"},
    "/itbench/agents/{agent}/manifest/benchmark-entries/{benchmark}": {"phase": "Executing"},
    "/itbench/benchmarks/{benchmark}/agents/{agent}/status": {"phase": "Finished"},
    "/itbench/benchmarks/{benchmark}/assign_agent": {"agent_id": "{agent}", "bundle_id": "{entry}"},
    "/itbench/benchmarks/{benchmark}/bundles/{bundle}/status": {"phase": "Terminated"},
    "/agents": {"name": "not its own", "kind": "built_in", "domains": "finops", "source": "oracle:right"},
    "/benchmarks": {"agent": "{agent}", "task_set": "bill"},
    "/users": {"name": "made by another", "role": "admin"},
}
FOR_EVERYBODY = {
    "/api/events": "whoever is to check the chain needs all of it",
    "/api/live": "it never ends, and says that something happened, not to whom",
    "/login": "it gives a cookie for a token",
    "/logout": "it takes the cookie away",
}


@pytest.fixture(scope="module")
def routes(platform):
    """Every route of the application with its method, as it is made: a new one is among them by itself."""
    engine = engine_of(platform.database())
    made = Platform(platform.state, engine, Signer.from_folder(platform.state), Artefacts(platform.state / "artefacts"))
    found = [
        (method, route.path) for route in platform_app(made, platform.database()).routes for method in route.methods
    ]
    engine.dispose()
    return [(method, path) for method, path in sorted(found) if method != "HEAD"]


def test_another_users_token_gets_nothing_on_any_route(platform, owner, other, graded, routes):
    agent, benchmark = graded
    run = benchmark["cells"][0]["run"].split("/")
    fill = {
        "agent": agent, "benchmark": benchmark["id"], "entry": benchmark["cells"][0]["id"], "name": "ada",
        "task_set": "bill", "cell": run[1], "attempt:int": run[2], "bundle": benchmark["cells"][0]["id"],
        "report": owner.ask("POST", "/api/reports", {"agent": agent, "task_set": "bill", "said": {"x": 1}})["id"],
    }  # fmt: skip
    mine = [agent, benchmark["id"], *(cell["id"] for cell in benchmark["cells"])]
    before = owner.benchmark(benchmark["id"])
    for method, path in routes:
        if path in FOR_EVERYBODY:
            continue
        given = json.dumps(BODIES.get(path, {})).replace("{agent}", agent).replace("{entry}", fill["entry"])
        body = json.loads(given)
        where = path
        for name, value in fill.items():
            where = where.replace("{" + name + "}", value)
        data = (
            json.dumps(body).encode()
            if path.startswith(("/api", "/itbench"))
            else urllib.parse.urlencode(body).encode()
        )
        headers = {"Authorization": f"Bearer {other._token}", "Cookie": f"opsassay={other._token}"}
        request = urllib.request.Request(
            platform.url + where, data if method != "GET" else None, headers, method=method
        )
        try:
            with urllib.request.urlopen(request) as answer:
                status, said = answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                status, said = error.code, error.read().decode()
        assert not [one for one in mine if one in said], (method, path)
        if method != "GET":
            assert status in (400, 403), (method, path, status, said[:200])
    assert owner.benchmark(benchmark["id"]) == before
    names = [one["name"] for one in platform.client().ask("GET", "/api/users")["items"]]
    assert "made by another" not in names


def test_who_knows_the_truth_is_for_the_admin(platform, other):
    oracle = {"name": "cheat", "kind": "built_in", "domains": ["finops"], "source": "oracle:right"}
    refused(other, "POST", "/api/agents", oracle, status=403)
    for source in (
        "../../etc/passwd",
        "/etc/agent.yaml",
        "agent.yaml",
        "",
        ".hidden",
        "x\\y",
        "agent.py:Agent",
        "pdb:Pdb",
    ):
        refused(other, "POST", "/api/agents", {**oracle, "source": source}, status=400)


def test_a_bundle_runs_in_the_seal(platform, owner):
    made = owner.ask(
        "POST",
        "/api/agents/bundle?name=guesser&level=beginner&domains=finops",
        bundle(agent__yaml=AGENT, guess__py=GUESS),
    )
    found = finished(owner, owner.request(made["id"], "bill"))
    assert found["state"] == "Finished"
    assert all(cell["run"] for cell in found["cells"])
    run = json.loads((platform.state / "stores" / "bill" / found["cells"][0]["run"] / "run.json").read_text())
    assert run["isolation"] == "sealed"


BUNDLES = {
    "no archive": b"nothing",
    "nothing": b"",
    "no agent.yaml": bundle(guess__py=GUESS),
    "a path upwards": bundle(**{"../agent__yaml": AGENT}),
    "an absolute path": bundle(**{"/tmp/agent__yaml": AGENT}),
    "a command that is none": bundle(agent__yaml="agent: x\ncommand: []"),
    "folders of the machine": bundle(agent__yaml=AGENT + "readable: [/srv]\n", guess__py=GUESS),
    "an image of the machine": bundle(agent__yaml=AGENT + "image: theirs:1\n", guess__py=GUESS),
    "all the time there is": bundle(agent__yaml=AGENT + "limits: {seconds: 1.0e+9}\n", guess__py=GUESS),
    "all the memory": bundle(agent__yaml=AGENT + "limits: {memory_mb: 1000000}\n", guess__py=GUESS),
    "files that are not there": bundle(agent__yaml=AGENT),
}


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_that_cannot_be_used_is_refused_and_nothing_is_left(platform, owner, name):
    before = sorted(path.name for path in (platform.state / "agents").glob("*"))
    path = "/api/agents/bundle?name=bad&level=expert&domains=finops"
    assert refused(owner, "POST", path, BUNDLES[name], status=400)
    assert sorted(path.name for path in (platform.state / "agents").glob("*")) == before


def test_an_upload_without_bounds_is_refused(platform, owner):
    status = refused(
        owner, "POST", "/api/agents/bundle?name=big&level=expert&domains=finops", b"x" * (51 * 2**20), status=413
    )
    assert "at most" in status
    with closing(http.client.HTTPConnection(*platform.url.removeprefix("http://").split(":"), timeout=20)) as nobody:
        nobody.putrequest("POST", "/api/agents/bundle?name=big&level=expert&domains=finops")
        nobody.putheader("Content-Length", str(50 * 2**20))
        nobody.endheaders()
        assert nobody.getresponse().status == 401, "nothing of the body was waited for"


def test_an_upload_of_five_gigabytes_is_refused_without_memory_for_it(platform, owner):
    server = psutil.Process(platform.process.pid)
    before = server.memory_info().rss
    port = int(platform.url.rpartition(":")[2])
    head = (
        "POST /api/agents/bundle?name=huge&level=expert&domains=finops HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {owner._token}\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=60) as asked:  # who asks first is told at once
        asked.sendall(f"{head}Content-Length: {5 * 2**30}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert asked.recv(1000).startswith(b"HTTP/1.1 413")
    sent, part = 0, b"x" * 2**20
    with socket.create_connection(("127.0.0.1", port), timeout=60) as poured:  # and who does not is cut off
        poured.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        with contextlib.suppress(OSError):
            while sent < 5 * 2**30:
                poured.sendall(b"100000\r\n" + part + b"\r\n")
                sent += len(part)
    assert sent < 200 * 2**20
    assert server.memory_info().rss - before < 200 * 2**20
    assert owner.ask("GET", "/api/health")["status"] == "ok"


def test_an_agent_that_runs_elsewhere_works_by_the_protocol(platform, owner):
    agent = owner.register("far away", ["finops"])
    benchmark = owner.request(agent, "bill")
    example = [sys.executable, str(ROOT / "examples" / "platform" / "agent.py"), platform.url, agent]
    environment = {**os.environ, "OPSASSAY_TOKEN": owner._token}
    done = subprocess.run(example, check=False, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    found = finished(owner, benchmark)
    assert {cell["agent"] for cell in found["cells"]} == {"Finished"}
    board = json.loads(urllib.request.urlopen(f"{platform.url}/api/leaderboards/bill").read())
    (row,) = (row for row in board["items"] if row["solver"] == "far away")
    assert row["rank"] is None
    assert "it ran unsealed" in row["not_ranked"]
    hosted = {one["solver"]: one for one in fetched(platform, "/api/leaderboards/bill/self-hosted")["items"]}
    assert "it ran unsealed" not in hosted["far away"]["not_ranked"]
    assert hosted["constant"]["baseline"]
    ours = {one["name"] for one in platform.client().ask("GET", "/api/agents")["items"] if one["kind"] == "self_hosted"}
    assert {name for name, one in hosted.items() if not one["baseline"]} <= ours, "no built-in one, and no bundle"
    page = urllib.request.urlopen(f"{platform.url}/leaderboards/bill/self-hosted?level=easy").read().decode()
    assert "no seal limited what they read" in page
    assert 'href="/leaderboards/bill/self-hosted"' in page
    assert (
        'href="/leaderboards/bill/self-hosted"'
        in urllib.request.urlopen(f"{platform.url}/leaderboards/bill").read().decode()
    )


def test_an_entry_hears_start_and_finish_in_order_and_twice_is_once(platform, owner):
    agent = owner.register("slow starter", ["finops"])
    benchmark = owner.request(agent, "bill")
    entry = next(owner.entries(agent))

    def say(status, token=None):
        path = f"/api/entries/{entry.id}/status"
        return owner.ask("PUT", path, {"status": status}, token=token or entry._token)

    with pytest.raises(PlatformError, match="STARTED before FINISH"):
        say("FINISH")
    with pytest.raises(PlatformError, match="Say STARTED first"):
        entry.tools()
    with pytest.raises(PlatformError):
        say("STARTED", token="entry_" + "0" * 64)
    assert say("STARTED") == say("STARTED")
    assert entry._call_method(
        "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    )
    assert say("FINISH") == say("FINISH")
    for later in owner.entries(agent):
        with later.working():
            later.call("submit", {"rows": []})
    found = finished(owner, benchmark)
    assert [cell["errored"] for cell in found["cells"]].count(True) >= 1


def test_what_owners_report_is_shown_with_that_mark_and_never_ranked(platform, owner, graded):
    agent, _ = graded
    said = owner.ask(
        "POST",
        "/api/reports",
        {"agent": agent, "task_set": "bill", "said": {"passed": 1.0}, "source": "<b>trust me</b>"},
    )
    assert said["ranked"] is False
    first = owner.ask("PUT", f"/api/reports/{said['id']}/artefact", b"evidence")
    again = owner.ask("PUT", f"/api/reports/{said['id']}/artefact", b"evidence")
    assert first == again
    assert (platform.state / "artefacts" / first["sha256"][:2] / first["sha256"]).read_bytes() == b"evidence"
    events = owner.ask("GET", "/api/events?limit=10000")["items"]
    assert sum(event["kind"] == "artefact" for event in events) == 1
    page = urllib.request.urlopen(f"{platform.url}/leaderboards/bill").read().decode()
    assert "not measured here, not ranked" in page
    assert "<b>trust me" not in page
    board = json.loads(urllib.request.urlopen(f"{platform.url}/api/leaderboards/bill").read())
    assert all(row["rank"] is None for row in board["items"] if row["solver"] == "chance")


BAD = {
    "no json": b"{",
    "a list": [],
    "no fields": {},
    "an unknown field": {"name": "x", "kind": "built_in", "domains": ["finops"], "admin": True},
    "a domain that is none": {"name": "x", "kind": "self_hosted", "domains": ["cooking"]},
    "a name with markup": {"name": "<script>", "kind": "self_hosted", "domains": ["sre"]},
    "a name without end": {"name": "x" * 10_000, "kind": "self_hosted", "domains": ["sre"]},
    "numbers": {"name": 1, "kind": 2, "domains": 3},
    "nothing": None,
}


@pytest.mark.parametrize("name", BAD)
def test_a_body_that_is_not_as_described_is_one_sentence(owner, name):
    assert refused(owner, "POST", "/api/agents", BAD[name], status=422)


def test_a_token_that_has_ended_is_none(platform):
    made = platform.client().ask("POST", "/api/users", {"name": "brief", "role": "owner", "days": 1e-6})
    time.sleep(0.2)
    said = refused(platform.client(made["token"]), "GET", "/api/agents", status=401)
    assert "known and has not ended" in said
    fresh = platform.client().ask("POST", "/api/users/brief/token")["token"]
    assert platform.client(fresh).ask("GET", "/api/agents")["items"] == []


def test_a_manifest_that_is_polled_without_pause_is_answered_and_changes_nothing(owner, other, graded):
    agent, benchmark = graded
    before, answers, failed = owner.benchmark(benchmark["id"]), [], []

    def poll():
        try:
            answers.extend(owner.ask("GET", f"/api/agents/{agent}/manifest") for _ in range(10))
        except Exception as error:  # noqa: BLE001 - said below
            failed.append(error)

    threads = [threading.Thread(target=poll) for _ in range(60)]
    for one in threads:
        one.start()
    assert other.ask("GET", "/api/health")["status"] == "ok"
    for one in threads:
        one.join()
    assert failed == []
    assert answers == [{"agent": agent, "entries": []}] * 600
    assert owner.benchmark(benchmark["id"]) == before


def test_who_asks_too_often_is_given_the_last_answer_again_for_a_second_and_nobody_elses(monkeypatch):
    now, answers = [7.0], RecentAnswers(2)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    assert [answers.again("one", "/manifest") for _ in range(3)] == [None] * 3  # there is none yet
    answers.keep("one", "/manifest", b"first")
    assert answers.again("one", "/manifest") == b"first"
    assert [answers.again("two", "/manifest") for _ in range(3)] == [None] * 3
    assert [answers.again("one", "/other") for _ in range(3)] == [None] * 3
    now[0] = 8.0
    assert [answers.again("one", "/manifest") for _ in range(3)] == [None] * 3  # it has grown old
    answers.keep("one", "/manifest", b"second")
    assert answers.again("one", "/manifest") == b"second"


def test_the_description_names_every_operation(platform):
    described = json.loads(urllib.request.urlopen(f"{platform.url}/openapi.json").read())
    assert described["openapi"].startswith("3.1")
    given = {(method.upper(), path) for path, of in described["paths"].items() for method in of}
    assert given == {(operation.method, operation.path) for operation in (*OPERATIONS, *ITBENCH)}


@pytest.mark.parametrize("path", ["agents/%00/manifest", "benchmarks/%00", "benchmarks?state=%00", "events?after=x"])
def test_a_text_that_cannot_be_kept_is_one_sentence(owner, path):
    assert "Traceback" not in refused(owner, "GET", f"/api/{path}", status=400)


def test_a_page_with_such_a_text_is_one_too(platform):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{platform.url}/leaderboards/%00")
    caught.value.close()
    assert caught.value.code == 404


def test_the_api_is_fuzzed_without_an_error_of_its_own(platform, owner, tmp_path):
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{platform.url}/openapi.json"]
    command += ["-H", f"Authorization: Bearer {owner._token}", "--checks", "not_a_server_error", "--max-examples", "25"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=250, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "generated" in done.stdout


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", ""])
def test_another_host_name_is_not_served(platform, host):
    request = urllib.request.Request(f"{platform.url}/", headers={"Host": host})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    caught.value.close()
    assert caught.value.code == 400
