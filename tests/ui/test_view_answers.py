"""What each page over stores says first, and the ways that lead on from it."""

from __future__ import annotations

import json
import re
import socket
from contextlib import closing

import pytest
import yaml
from starlette.testclient import TestClient

from opsassay.cli import run
from opsassay.core.errors import UserError
from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.evals.compliance.clusters.worlds import ComplianceWorld
from opsassay.evals.compliance.evidence_collection.cache import EvidenceCache, KeptEvidence
from opsassay.evals.runner.grading import choose_stores
from opsassay.evals.runner.run import verdict_of
from opsassay.evals.runner.store import read_run, write_verdict
from opsassay.ui.browsing.app import view_app
from opsassay.ui.browsing.exporting import export
from opsassay.ui.browsing.kinds import PageQuery
from opsassay.ui.loopback import bound

from .stores import ended, two_solvers
from .test_browsing import data, golden, pages_over

NAME = "chain, frontend error rate"


def test_an_incident_is_called_by_its_name_wherever_it_is_a_task(tmp_path):
    root = golden("diagnosis_store", tmp_path)
    _, pages = pages_over(root)
    first = data(pages)["results"][0]
    assert (first["task_name"], first["task"] != NAME) == (NAME, True)
    incident = data(pages, "incidents.json")["incidents"][0]["page"]
    for page in (first["page"], first["task_page"]):
        shown = data(pages, page.replace(".html", ".json"))
        assert NAME in shown["answer"]
        assert NAME in shown["title"]
        assert shown["incident"] == incident
    assert data(pages, "trials/diagnosis.json")["rows"][0]["name"] == NAME
    assert len(data(pages, task="FRONTEND")["results"]) == len(data(pages, task=first["task"])["results"]) == 4
    assert data(pages, task="backend")["results"] == []


@pytest.mark.parametrize("task", ["..", "../incidents", "nowhere", "a" * 300])
def test_a_record_that_names_no_incident_of_its_store_is_called_as_it_says(tmp_path, task):
    root = golden("diagnosis_store", tmp_path)
    (root / "incident.json").write_text((next(root.glob("incidents/*/incident.json"))).read_text())
    folder = ended(root, domain="diagnosis", task="t", solver="odd")
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"item": task}))
    _, pages = pages_over(root)
    (row,) = [row for row in data(pages)["results"] if row["solver"] == "odd"]
    assert row["task_name"] != NAME
    assert data(pages, row["page"].replace(".html", ".json"))["incident"] is None


def test_a_board_says_why_nobody_is_ranked_and_leads_to_every_solver(tmp_path):
    two_solvers(tmp_path, 3)
    ended(tmp_path, solver="new", task="t-00", graded=False)
    _, pages = pages_over(tmp_path)
    board = data(pages, "boards/finops.json")
    assert board["answer"].startswith(
        "No solver is ranked on 3 tasks; poor succeeded on 100.0%: it cannot be separated from"
    )
    trials = data(pages, "trials/finops.json")
    assert trials["answer"].startswith(board["answer"])
    assert [solver["name"] for solver in trials["solvers"]] == ["poor", "good", "new"]  # by success, not by name
    assert [row["page"] for row in board["boards"][0]["rows"]] == [
        "solvers/finops.poor.html",
        "solvers/finops.good.html",
    ]
    assert [solver["name"] for solver in board["solvers"]] == ["new"]
    page = pages.answer("boards/finops.html").text
    assert page.index("it cannot be separated") < page.index("<table")
    assert re.search(r'<th scope="row"><a href="\.\./solvers/finops\.poor\.html">poor</a>', page)


def test_the_first_page_lays_tasks_and_solvers_before_a_list_of_runs(tmp_path, monkeypatch):
    two_solvers(tmp_path, 15)
    ended(tmp_path, solver="oracle:right")
    _, pages = pages_over(tmp_path)
    (domain,) = data(pages, "index.json")["domains"]
    trials = data(pages, "trials/finops.json")
    assert domain["first"]["solvers"] == trials["solvers"]
    assert domain["first"]["rows"] == trials["rows"][:12]
    good = next(one for one in trials["solvers"] if one["name"] == "good")
    assert good["bar"]["value"] == pytest.approx(86.7)
    assert f"{good['bar']['value']}% [{good['bar']['low']}, {good['bar']['high']}]" == good["success"]
    text = pages.answer("index.html").text
    assert text.index('class="interval"') < text.index('class="matrix') < text.index("<h2>Last results")
    monkeypatch.setattr("opsassay.ui.browsing.matrix.MOST_RUNS", 20)
    assert data(pages, "index.json")["domains"][0]["first"] is None
    assert "poor</a>" in pages.answer("index.html").text


def test_the_band_is_the_interval_of_the_best_reference(tmp_path):
    two_solvers(tmp_path, 4)
    for at in range(4):
        ended(tmp_path, task=f"t-{at:02}", solver="oracle:right")
    _, pages = pages_over(tmp_path)
    trials = data(pages, "trials/finops.json")
    best = trials["solvers"][-1]
    assert trials["band"]["name"] == best["name"] == "oracle:right"
    assert trials["band"]["low"] == best["bar"]["low"]
    assert trials["band"]["low"] + trials["band"]["width"] == pytest.approx(best["bar"]["high"])


def test_a_run_says_first_what_was_said_and_last_what_does_not_apply(tmp_path):
    folder = ended(tmp_path, graded=False)
    run = read_run(folder)
    idle = Metric(value=None, status=MetricStatus.NOT_APPLICABLE, reason="nothing was asked")
    write_verdict(folder, verdict_of(run, {"steps": idle, "passed": Metric(value=1.0, status=MetricStatus.SCORED)}))
    _, pages = pages_over(tmp_path)
    row = data(pages)["results"][0]
    text = pages.answer(row["page"]).text
    assert text.index("<h2>Metrics") < text.index("that cannot be applied to this run")
    assert "<details><summary>1 metric that cannot be applied" in text


def test_a_board_of_oracles_alone_says_so_and_its_audit_too(tmp_path):
    ended(tmp_path, solver="oracle:right")
    _, pages = pages_over(tmp_path)
    assert data(pages, "boards/finops.json")["answer"].endswith("only oracles and baselines are graded on them.")
    said = data(pages, "audit/finops.json")["answer"]
    assert said == "There is no audit: no run may be ranked (it is an oracle, which knows the truth)."
    assert "<section" not in pages.answer("audit/finops.html").text
    ended(tmp_path, solver="new", graded=False, domain="sre")
    assert "nothing is graded" in data(pages_over(tmp_path)[1], "audit/sre.json")["answer"]


def test_an_audit_recommends_no_baseline(tmp_path):
    for at in range(22):
        for solver in ("chance", "constant"):
            ended(tmp_path, at < 3, solver=solver, task=f"t-{at:02}", isolation="in_process")
    said = data(pages_over(tmp_path)[1], "audit/finops.json")["answer"]
    assert said.startswith("There is no solver to choose: only baselines have a score on every case (chance, constant)")


def test_only_solvers_with_a_graded_task_in_common_are_offered_for_comparison(tmp_path):
    two_solvers(tmp_path, 2)
    for solver in ("new", "newer"):
        ended(tmp_path, solver=solver, task="t-00", graded=False)
    _, pages = pages_over(tmp_path)
    assert [other["name"] for other in data(pages, "solvers/finops.good.json")["others"]] == ["poor"]
    assert data(pages, "solvers/finops.new.json")["others"] == []
    assert export(pages_over(tmp_path)[1], tmp_path / "out")[1] == []


def test_who_did_not_succeed_is_shown_with_the_first_reason(tmp_path):
    folder = ended(tmp_path, passed=False, solver="late")
    (verdict,) = folder.glob("verdicts/*.json")
    graded = json.loads(verdict.read_text())
    graded["metrics"]["passed"]["reason"] = "the sum is a day late."
    verdict.write_text(json.dumps(graded))
    _, pages = pages_over(tmp_path)
    page = next(row["page"] for row in data(pages)["results"] if row["solver"] == "late")
    said = data(pages, page.replace(".html", ".json"))["answer"]
    assert said == "late did not succeed on t-00: the sum is a day late."


def test_heads_of_many_columns_are_written_upwards_so_that_no_name_is_broken(tmp_path):
    for at in range(9):
        ended(tmp_path, solver=f"solver-{at}")
    _, pages = pages_over(tmp_path)
    assert 'class="matrix many"' in pages.answer("trials/finops.html").text
    assert 'class="matrix"' in pages_over(two_solvers(tmp_path / "two", 1))[1].answer("trials/finops.html").text


@pytest.mark.parametrize(("address", "home"), [("nothing.html", "index.html"), ("runs/x.html", "../index.html")])
def test_a_page_that_is_not_there_leads_to_the_first_one(tmp_path, address, home):
    ended(tmp_path)
    watcher, pages = pages_over(tmp_path)
    answer = TestClient(view_app(pages, watcher), base_url="http://127.0.0.1").get(f"/{address}")
    assert answer.status_code == 404
    assert f'<a href="{home}">All runs</a>' in answer.text


@pytest.fixture(scope="module")
def compliance(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compliance")
    plan = {"domain": "ciso", "tasks": ["new-kyverno-host-ports"], "agents": ["oracle:right", "allow-all"]}
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    assert run(["run", str(folder / "plan.yaml"), "-o", str(folder / "store")]) == 0
    return folder / "store"


def test_what_is_right_in_a_compliance_task_is_behind_its_reveal(compliance):
    _, pages = pages_over(compliance)
    page = next(row["page"] for row in data(pages)["results"] if row["solver"] == "allow-all")
    shown = data(pages, page.replace(".html", ".json"))
    assert "9 of 9 violating worlds let in" in shown["answer"]
    assert next(metric["about"] for metric in shown["metrics"] if metric["name"] == "kept") != "kept"
    assert shown["truth_about"] == "what is right"
    truth = shown["truth"].replace(".html", ".json")
    hidden, said = data(pages, truth), data(pages, truth, reveal="1")
    assert hidden["answer"] == "This page shows what is right in new-kyverno-host-ports."
    assert hidden["facts"] == []
    assert said["answer"].startswith("CIS Kubernetes 5.2.13: ")
    assert [
        "Worlds that it is judged on",
        "9 comply and 9 violate it, and as many that differ from these at one place",
    ] in (said["facts"])
    whole = pages.answer(said["whole"], PageQuery({"reveal": "1"})).text
    assert whole.count("<td>violating</td>") == 18


def test_who_only_reads_collects_nothing(tmp_path):
    world, collector = ComplianceWorld((), compliant=True), {"fetcher.sh": b"echo {}"}

    def gather(*_):
        raise AssertionError("nothing may be run")

    with pytest.raises(UserError, match="opsassay score run"):
        KeptEvidence(tmp_path).take(collector, world, gather)
    from opsassay.evals.compliance.evidence_collection.evidence import CollectedEvidence

    kept = EvidenceCache(tmp_path).take(collector, world, lambda *_: CollectedEvidence(b"{}", None))
    assert KeptEvidence(tmp_path).take(collector, world, gather) == kept


def test_a_store_that_is_named_twice_is_shown_and_graded_once(tmp_path, monkeypatch, capsys):
    two_solvers(tmp_path / "store", 2)
    monkeypatch.chdir(tmp_path)
    assert run(["view", "store", "./store", "--export", "pages"]) == 0
    home = json.loads((tmp_path / "pages" / "index.json").read_text())
    assert ([store["name"] for store in home["stores"]], home["paging"]["of"]) == (["store"], 4)
    assert list(choose_stores([tmp_path / "pages" / ".." / "store", tmp_path / "store"])) == [tmp_path / "store"]


def test_an_address_answers_as_soon_as_it_is_announced():
    with closing(bound(0)) as listener:
        socket.create_connection(listener.getsockname(), timeout=5).close()


def test_files_show_the_first_of_many_tasks_that_flipped(tmp_path, monkeypatch):
    monkeypatch.setattr("opsassay.ui.browsing.two_solvers.FLIPPED_IN_FILES", 3)
    two_solvers(tmp_path, 6)
    for live, shown in ((True, 5), (False, 3)):
        compared = data(pages_over(tmp_path, live=live)[1], "compare/finops.good.poor.json")
        assert (len(compared["flipped"]), compared["flipped_more"]) == (shown, 5 - shown)
