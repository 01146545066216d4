"""The pages of the live view beside those of runs and boards: one clock, trials, incidents, SQL, jobs, audit, OpenAPI."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from opsassay.core.errors import NotFoundError, UserError
from opsassay.evals.runner.queue import at_work, jobs_of
from opsassay.ui.browsing import lines
from opsassay.ui.browsing.app import view_app
from opsassay.ui.browsing.jobs import cancel_job
from opsassay.ui.browsing.kinds import KINDS, TOP, PageQuery
from opsassay.ui.browsing.lines import page_of_lines
from opsassay.ui.browsing.site import StorePages
from opsassay.ui.browsing.verdicts import StoredVerdicts
from opsassay.ui.reports import index_view

from .stores import a_trial, begun, ended, two_solvers
from .test_browsing import data, golden, pages_over


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    root = tmp_path_factory.mktemp("trials") / "store"
    a_trial(root, solver="rough")
    a_trial(root, solver="gentle", outage=False, passed=True)
    return root


def run_of(pages, solver):
    return next(row["page"] for row in data(pages)["results"] if row["solver"].startswith(solver)).replace(
        ".html", ".json"
    )


def test_a_run_is_on_one_clock_with_the_step_that_took_its_system_down(trials):
    _, pages = pages_over(trials)
    run = data(pages, run_of(pages, "rough"))
    lanes = [lane["name"] for lane in run["clock"]["lanes"]]
    assert lanes == ["steps", "actions", "probes", "controller · D4", "network · D3", "workload · D1", "user"]
    assert run["culprit"]["step"] == 2
    assert run["culprit"]["agent"] == "Mitigation"
    assert run["culprit"]["reason"].startswith("broke \u201cavailability on the way\u201d: ")
    first, second = run["dips"]
    assert first["at_s"] == 12.0
    assert "ready replicas fell from 90% to 50%, 0.0 s later" in first["fell"]
    assert second == {"at_s": 16.0, "change": "undo", "fell": []}
    assert [step["at_s"] for step in run["steps"]] == [10.2, 11.5, 15.5]
    assert [action["at_s"] for action in run["actions"]] == [11.0, 12.0, 16.0]
    page = pages.answer(run_of(pages, "rough").replace(".json", ".html")).text
    assert 'id="step-2"' in page
    assert page.index("Blame points at") < page.index("<h2>Metrics")


def test_who_succeeded_is_not_blamed(trials):
    _, pages = pages_over(trials)
    assert data(pages, run_of(pages, "gentle"))["culprit"] is None


def test_a_trial_that_left_no_scenario_is_shown_as_far_as_it_can_be(tmp_path):
    a_trial(tmp_path)
    shutil.rmtree(tmp_path / "scenarios")
    _, pages = pages_over(tmp_path)
    run = data(pages, run_of(pages, "agent-a"))
    assert "cannot be read" in run["course_note"]
    assert [lane["name"] for lane in run["clock"]["lanes"]] == ["steps", "actions"]


def test_two_solvers_are_beside_each_other_on_axes_of_one_length(trials):
    _, pages = pages_over(trials)
    board = data(pages, "trials/sre.json")
    assert [solver["name"].split()[0] for solver in board["solvers"]] == ["gentle", "rough"]
    cells = board["rows"][0]["cells"]
    assert [[run["mark"] for run in cell["runs"]] for cell in cells] == [["✓"], ["✗"]]
    solvers = [solver["page"].removeprefix("solvers/sre.").removesuffix(".html") for solver in board["solvers"]]
    flipped = data(pages, f"compare/sre.{solvers[0]}.{solvers[1]}.json")["flipped"]
    beside = data(pages, flipped[0]["page"].replace(".html", ".json"))
    assert beside["answer"].endswith("did not succeed on made.")
    assert len({side["clock"]["seconds"] for side in beside["sides"]}) == 1
    assert [side["culprit"] is None for side in beside["sides"]] == [True, False]
    with pytest.raises(NotFoundError):
        pages.answer(f"beside/sre.made.{solvers[0]}.nobody.html")


def test_references_have_no_rank_in_the_matrix(tmp_path):
    two_solvers(tmp_path, 8)
    for at in range(8):
        ended(tmp_path, task=f"t-{at:02}", solver="oracle:right")
    _, pages = pages_over(tmp_path)
    last = data(pages, "trials/finops.json")["solvers"][-1]
    assert (last["name"], last["reference"], last["rank"]) == ("oracle:right", True, "")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.one_of(st.integers(0, 300), st.none()), max_size=40), st.integers(1, 7), st.integers(1, 9),
    st.sampled_from([64, 100, 1000]), st.booleans(),
)  # fmt: skip
def test_pages_of_lines_are_those_of_reading_everything(tmp_path_factory, sizes, rows, number, block, torn):
    path = tmp_path_factory.mktemp("lines") / "f.jsonl"
    whole = [b"[1]" if size is None else json.dumps({"n": n, "x": "y" * size}).encode() for n, size in enumerate(sizes)]
    path.write_bytes(b"".join(line + b"\n" for line in whole) + (b'{"torn' if torn else b""))
    found = [json.loads(line) for line in whole[(number - 1) * rows : number * rows]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK", block)
        assert page_of_lines(path, number, rows) == ([one for one in found if isinstance(one, dict)], len(whole))


@pytest.mark.long
def test_a_run_of_a_gigabyte_is_shown_a_page_at_a_time_in_little_memory(tmp_path):
    folder = ended(tmp_path, passed=False)
    step = json.dumps({"step_id": 1, "agent_name": "a", "output_content": "said", "started_at": 10**18}).encode()
    with (folder / "trace.jsonl").open("wb") as trace:
        trace.write(b"".join(step + b"\n" for _ in range(10_000)))
        trace.truncate(2**30)  # one line of nothing, which a file system keeps in no space
        trace.seek(2**30)
        trace.write(b"\n" + step + b"\n")
    _, pages = pages_over(tmp_path)
    address = run_of(pages, "good")
    tracemalloc.start()
    run = data(pages, address.replace(".json", "~201.json"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 48 * 2**20
    assert (run["paging"]["of"], len(run["steps"]), run["paging"]["number"]) == (10_002, 2, 201)
    assert "is not read" in run["steps"][0]["said"]
    assert "too large to be drawn" in run["course_note"]
    assert (run["trace"], run["culprit"]) == (None, None)
    with pytest.raises(UserError, match="too large for one page"):
        pages.answer(address.replace("runs/", "traces/").replace(".json", ".html"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    return golden("diagnosis_store", tmp_path_factory.mktemp("recorded"))


def test_incidents_are_filtered_in_the_address_and_called_by_what_alerted(recorded):
    _, pages = pages_over(recorded)
    (one,) = data(pages, "incidents.json", system="chain", alert="ERROR")["incidents"]
    assert (one["name"], one["alerts"], one["runs"]) == ("chain, frontend error rate", 1, 4)
    assert data(pages, "incidents.json", alert="latency")["incidents"] == []
    assert data(pages, "incidents.json", system="other")["incidents"] == []
    assert "system=chain" not in pages.answer("incidents.html", PageQuery({"system": "chain", "foo": "bar"})).text


def test_the_truth_of_an_incident_is_shown_to_whoever_asks_a_server(recorded):
    (truth,) = recorded.glob("truth/*/truth.json")
    fault = json.loads(truth.read_text())["faults"][0]["type"]
    for live, asked, shown in ((True, "1", True), (True, "", False), (False, "1", False)):
        _, pages = pages_over(recorded, live=live)
        address = data(pages, "incidents.json")["incidents"][0]["page"]
        for form in ("html", "json"):
            text = pages.answer(address.replace("html", form), PageQuery({"reveal": asked})).text
            assert (fault in text) == shown
    assert "1 of 4 runs found what was broken" in text


@pytest.mark.slow
def test_sql_over_an_incident_is_an_address_that_can_be_sent_on(recorded):
    _, pages = pages_over(recorded)
    address = (
        data(pages, "incidents.json")["incidents"][0]["page"].replace("incidents/", "sql/").replace("html", "json")
    )
    asked = data(pages, address, sql="SELECT service_name, count(*) AS n FROM abnormal_traces GROUP BY 1 ORDER BY 1")
    assert asked["columns"] == ["service_name", "n"]
    assert len(asked["rows"]) == 4
    refused = data(pages, address, sql="SELECT * FROM read_csv('/etc/passwd')")
    assert refused["answer"].startswith("The statement was not carried out: the table function read_csv")
    assert "\n" not in data(pages, address, sql="SELEC")["answer"]
    page = pages.answer(address.replace("json", "html"), PageQuery({"sql": "SELECT '<script>' AS a"})).text
    assert "&lt;script&gt;" in page
    assert '<td class="name"><script>' not in page
    with pytest.raises(NotFoundError):
        pages_over(recorded, live=False)[1].answer(address.replace("json", "html"))


def test_a_command_tells_what_it_is_at_work_on_until_it_ends(tmp_path):
    _, first = begun(tmp_path)
    _, pages = pages_over(tmp_path)
    with at_work(tmp_path, [first.cell, "another"], 2):
        (job,) = data(pages, "jobs.json")["jobs"]
        assert (job["done"], job["cells"], job["workers"], job["state"]) == (0, 2, 2, "runs")
        assert job["left"] == "no run has ended yet"
    assert data(pages, "jobs.json")["jobs"] == []
    assert not (tmp_path / "jobs").exists()


def test_progress_and_what_it_spends_follow_from_the_runs_of_its_cells(tmp_path):
    folder = ended(tmp_path, started_ns=time.time_ns())
    record = json.loads((folder / "run.json").read_text())
    with at_work(tmp_path, [record["cell"], "another", "third"], 1):
        limits = {"tokens": 1000.0, "agent_timeout_s": 60.0}
        (folder / "run.json").write_text(json.dumps(record | {"ended_ns": time.time_ns() + 10**9, "limits": limits}))
        (job,) = data(pages_over(tmp_path)[1], "jobs.json")["jobs"]
    assert (job["done"], job["cells"]) == (1, 3)
    assert job["left"].startswith("about ")
    assert (job["spent"], job["ahead"]) == ("model calls 2", "model calls 4")
    assert job["budget"] == "seconds 120, tokens 2,000"


WORKING = """
import signal, sys, time, pathlib
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
from opsassay.evals.runner.queue import at_work
try:
    with at_work(pathlib.Path(sys.argv[1]), ["a"], 1):
        print("at work", flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_a_job_is_ended_only_where_it_is_allowed_and_only_ours(tmp_path):
    ended(tmp_path)
    watcher, pages = pages_over(tmp_path)
    client = TestClient(view_app(pages, watcher), base_url="http://127.0.0.1")
    allowed = StorePages(lambda: watcher.catalogue, StoredVerdicts(), allow_run=True)
    process = subprocess.Popen([sys.executable, "-c", WORKING, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "at work\n"
        (job,) = data(pages, "jobs.json")["jobs"]
        refused = client.post(f"/jobs/{job['key']}/cancel")
        assert (refused.status_code, "--allow-run" in refused.text) == (403, True)
        assert "cancel" not in client.get("/jobs.html").text
        assert process.poll() is None
        assert f"jobs/{job['key']}/cancel" in allowed.answer("jobs.html").text
        client = TestClient(view_app(allowed, watcher), base_url="http://127.0.0.1", follow_redirects=False)
        assert client.post(f"/jobs/{job['key']}/cancel").status_code == 303
        assert process.stdout.readline() == "interrupted\n"
        process.wait(10)
    finally:
        process.kill()
        process.communicate()
    assert client.post(f"/jobs/{job['key']}/cancel").status_code == 404
    other = subprocess.Popen(["sleep", "60"])
    try:
        with at_work(tmp_path, [], 1):
            ((path, work),) = jobs_of(tmp_path)
            import psutil

            theirs = {"pid": other.pid, "process_started": psutil.Process(other.pid).create_time()}
            path.write_text(work.model_copy(update=theirs).pretty_json())
            (job,) = data(allowed, "jobs.json")["jobs"]
            with pytest.raises(UserError, match="none of OpsAssay's"):
                cancel_job(allowed.page_state(), job["key"])
        assert other.poll() is None
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()


@pytest.mark.slow
def test_an_audit_says_first_whom_to_choose_or_why_nobody_can_say(tmp_path):
    two_solvers(tmp_path, 22)
    ended(tmp_path, domain="unheard-of")
    _, pages = pages_over(tmp_path)
    audit = data(pages, "audit/finops.json")
    assert audit["answer"].startswith("For a system like focus, choose good")
    assert audit["audit"]["methods"] == ["good", "poor"]
    page = pages.answer("audit/finops.html").text
    assert page.index("choose good") < page.index("<h2")
    assert data(pages, "audit/unheard-of.json")["answer"].startswith("There is no audit: ")


def test_every_kind_of_page_is_described_and_answers_as_described(recorded, trials):
    _, pages = pages_over(recorded, trials)
    description = data(pages, "openapi.json")
    paths = description["paths"]
    assert {path.split("/")[1].partition("~")[0].removesuffix(".json") for path in paths} == {*TOP, *KINDS}
    for path, methods in paths.items():
        named = {parameter["name"] for parameter in methods["get"]["parameters"] if parameter["in"] == "path"}
        assert named == set(re.findall(r"\{(\w+)\}", path))
    required = description["components"]["schemas"]["Page"]["required"]
    seen, waiting = set(), ["index.html"]
    while waiting:
        address = waiting.pop()
        kind = address.partition("/")[0] if "/" in address else address.rpartition(".")[0]
        if kind in seen or kind == "traces" or address.endswith(".json"):
            continue
        seen.add(kind)
        page = data(pages, address.replace(".html", ".json"))
        assert set(required) <= page.keys(), address
        waiting += pages.answer(address).links
    assert seen >= {*TOP, *KINDS} - {"truth", "sql", "compare", "beside", "systems", "openapi"}


def test_each_row_of_the_index_of_a_report_leads_to_its_page(tmp_path):
    from opsassay.evals.runner.store import RunStore
    from opsassay.ui.reports import PageRequest, write_pages

    for name in ("sre_store", "diagnosis_store"):
        root, out = golden(name, tmp_path), tmp_path / f"{name}-out"
        written = []
        request = PageRequest(RunStore(root), out)
        assert write_pages(request, written.append) == []
        assert written[-1] == out / "index.html"
        rows = index_view(root, request.pages)["rows"]
        finished = [row for row in rows if row["status"] != "aborted"]
        assert all(row["page"] for row in finished)
        links = re.findall(r'<th scope="row"><a href="([^"]+)"', (out / "index.html").read_text())
        assert links == [row["page"] for row in rows if row["page"]]
        assert all((out / link.partition("#")[0]).exists() for link in links)
