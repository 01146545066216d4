"""The pages over stores: what they say, live as in files, and what they do about stores that change beneath them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from opsassay.analysis.leaderboard.board import make_board
from opsassay.core.errors import NotFoundError, OperationError, UserError
from opsassay.core.schema.run import RunStatus
from opsassay.evals.runner.grading import GradeSettings, choose_stores, grade_stores
from opsassay.evals.runner.lease import take_lease
from opsassay.ui.browsing import exporting
from opsassay.ui.browsing.catalogue import slug
from opsassay.ui.browsing.exporting import export
from opsassay.ui.browsing.kinds import PageQuery
from opsassay.ui.browsing.site import StorePages
from opsassay.ui.browsing.verdicts import StoredVerdicts
from opsassay.ui.browsing.watching import Watcher

from .stores import begun, ended, finish, two_solvers

GOLDEN = Path(__file__).parents[1] / "evals" / "golden"


def pages_over(*roots, cases=None, live=True):
    watcher = Watcher(roots)
    return watcher, StorePages(lambda: watcher.catalogue, StoredVerdicts(), cases, live=live)


def data(pages, address="index.json", **filters):
    return json.loads(pages.answer(address, PageQuery(filters)).text)


def golden(name, tmp_path):
    shutil.copytree(GOLDEN / name, tmp_path / name)
    return tmp_path / name


def test_the_page_of_a_trace_leads_back_and_is_called_by_what_happened(tmp_path):
    _, pages = pages_over(golden("diagnosis_store", tmp_path))
    run = next(one for one in data(pages)["results"] if one["solver"].startswith("rca"))
    page = pages.answer(run["page"].replace("runs/", "traces/")).text
    assert f'<a href="../{run["page"]}">The run</a>' in page
    assert '<a href="../index.html">All runs</a>' in page
    assert f"<title>Trace of {run['task_name']}" in page
    assert "{'limits'" not in page  # a configuration in words, not as Python writes it


def test_the_first_page_answers_what_runs_and_what_came_last(tmp_path):
    two_solvers(tmp_path, 4)
    begun(tmp_path, solver="slow", task="t-09", started_ns=2 * 10**18)
    _, pages = pages_over(tmp_path)
    home = data(pages)
    assert home["answer"].startswith("slow works on t-09 now. The last: ")
    assert [row["task"] for row in home["running"]] == ["t-09"]
    assert home["stores"][0]["ended"] == "8 done, 1 running"
    assert home["stores"][0]["spent"] == "model calls 18"
    assert {row["outcome"] for row in home["results"]} == {"succeeded", "did not succeed"}


def test_filters_are_in_the_address(tmp_path):
    two_solvers(tmp_path, 4)
    ended(tmp_path, solver="good", task="other", status=RunStatus.TIMEOUT, graded=False, error="too slow")
    _, pages = pages_over(tmp_path)
    assert {row["solver"] for row in data(pages, solver="GOO")["results"]} == {"good"}
    assert [row["task"] for row in data(pages, status="timeout")["results"]] == ["other"]
    assert [row["solver"] for row in data(pages, task="t-03", solver="poor")["results"]] == ["poor"]
    assert data(pages, domain="sre")["results"] == []
    assert data(pages, domain="finops")["paging"]["of"] == 9


@pytest.mark.slow
def test_every_run_is_on_one_of_the_numbered_pages(tmp_path):
    for at in range(120):
        ended(tmp_path, task=f"t-{at:03}", graded=False)
    _, pages = pages_over(tmp_path)
    seen = [
        row["page"] for n in (1, 2, 3) for row in data(pages, f"index~{n}.json" if n > 1 else "index.json")["results"]
    ]
    assert len(seen) == len(set(seen)) == 120
    assert data(pages, "index~99.json")["paging"]["number"] == 3
    assert (
        'rel="next" href="index~2.html?status=done"' in pages.answer("index.html", PageQuery({"status": "done"})).text
    )


def test_a_run_says_who_what_how_and_why(tmp_path):
    folder = ended(tmp_path, reason="the answer holds no rows")
    (folder / "solver.log").write_text("x" * 20_000 + "\nthe last words")
    actions = [{"tool": "query", "arguments": {"n": n}, "started_ns": 10**18 + n * 10**9, "ended_ns": 10**18 + n * 10**9,
                "status": "ok", "output": "rows", "mutating": n == 1} for n in range(60)]  # fmt: skip
    (folder / "actions.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in actions) + '{"tool": "torn')
    _, pages = pages_over(tmp_path)
    run = data(pages, data(pages)["results"][0]["page"].replace(".html", ".json"))
    assert run["answer"] == "good did not succeed on t-00."
    assert run["metrics"][0]["reason"] == "the answer holds no rows"
    assert run["metrics"][0]["value"] is None
    assert run["log"].endswith("the last words")
    assert len(run["log"]) <= 8_000
    assert (len(run["actions"]), run["paging"]["of"], run["actions"][1]["changes"]) == (50, 60, True)
    assert run["actions"][3]["at_s"] == 3.0


def test_runs_of_a_task_and_their_neighbours_are_linked(tmp_path):
    two_solvers(tmp_path, 3)
    _, pages = pages_over(tmp_path)
    task = data(pages, "tasks/finops.t-01.json")
    assert task["answer"] == "1 of 2 graded runs succeeded on t-01: 2 runs by 2 solvers."
    run = data(pages, task["results"][0]["page"].replace(".html", ".json"))
    assert [row["task"] for row in run["across"]["same_task"]] == ["t-01"]
    assert run["across"]["same_task"][0]["solver"] != run["run"]["solver"]
    assert run["across"]["earlier"]["solver"] == run["across"]["later"]["solver"] == run["run"]["solver"]


@pytest.mark.slow
def test_figures_are_those_of_the_board_command(tmp_path):
    root = golden("diagnosis_store", tmp_path)
    for path in root.glob("truth/*/truth.json"):  # as a recording of today: its draws have a secret
        path.write_text(json.dumps({**json.loads(path.read_text()), "secret": "00"}))
    _, pages = pages_over(root)
    rows = data(pages, "boards/diagnosis.json")["boards"][0]["rows"]
    board = make_board(grade_stores(choose_stores([root]), GradeSettings())[0])
    assert [row["solver"] for row in rows] == [row.entry.name for row in board.rows]
    for row, own in zip(rows, board.rows, strict=True):
        assert row["success"]["text"] == own.success.text
        solver = data(pages, f"solvers/diagnosis.{slug(own.entry.name)}.json")
        assert solver["figures"][0]["value"] == own.success.value
        assert solver["paging"]["of"] >= 1


def test_what_has_no_grade_is_not_on_the_board_and_the_board_says_so(tmp_path):
    two_solvers(tmp_path, 3)
    ended(tmp_path, solver="good", task="later", graded=False)
    _, pages = pages_over(tmp_path)
    board = data(pages, "boards/finops.json")["boards"][0]
    assert board["tasks"] == 3
    assert board["warnings"][0].startswith("Not graded and not on this leaderboard: 1 result;")
    assert data(pages, "tasks/finops.later.json")["results"][0]["outcome"] == "not graded"


def test_two_solvers_are_compared_on_their_common_tasks(tmp_path):
    two_solvers(tmp_path)
    ended(tmp_path, solver="good", task="alone")
    _, pages = pages_over(tmp_path)
    compared = data(pages, "compare/finops.good.poor.json")
    assert compared["answer"] == "good is better than poor on 20 tasks."
    figure = compared["figures"][0]
    assert (figure["one"], figure["two"]) == (0.9, 0.15)
    assert figure["difference"] == pytest.approx(0.75)
    assert 0.3 < figure["low"] < 0.75 < figure["high"] <= 1.0
    assert compared["apart"] == {"one": 1, "two": 0}
    assert (compared["only_one"], compared["only_two"], len(compared["flipped"])) == (17, 2, 19)
    assert [row for row in compared["flipped"] if row["task"] == "t-02"] == []


def test_too_few_tasks_tell_nobody_apart(tmp_path):
    two_solvers(tmp_path, 4)
    _, pages = pages_over(tmp_path)
    answer = data(pages, "compare/finops.good.poor.json")["answer"]
    assert answer == "good and poor cannot be distinguished by 4 tasks."


def test_another_hash_under_the_same_name_is_another_solver(tmp_path):
    ended(tmp_path)
    ended(tmp_path, task="t-01", solver_hash="edited")
    _, pages = pages_over(tmp_path)
    assert sorted(one["name"] for one in data(pages)["domains"][0]["solvers"]) == ["good@edited", "good@hash of "]


def test_names_that_look_the_same_in_an_address_are_told_apart_there(tmp_path):
    for task in ("a b", "a/b", "a_b", "../a"):
        ended(tmp_path, task=task)
    _, pages = pages_over(tmp_path)
    rows = data(pages)["results"]
    assert len({row["task_page"] for row in rows}) == 4
    for row in rows:
        assert data(pages, row["task_page"].replace(".html", ".json"))["name"] == row["task"]


def truths(root):
    """Return what a store's truth calls the broken things."""
    truth = json.loads(next((root / "truth").glob("*/truth.json")).read_text())
    return {fault["type"] for fault in truth["faults"]}


def test_what_was_broken_is_on_the_page_that_reveals_it_and_on_no_other(tmp_path):
    root = golden("diagnosis_store", tmp_path)
    (fault,) = truths(root)
    _, pages = pages_over(root)
    run = data(pages)["results"][0]["page"]
    truth = run.replace("runs/", "truth/")
    assert fault in pages.answer(truth, PageQuery({"reveal": "1"})).text
    assert fault in pages.answer(truth.replace(".html", ".json"), PageQuery({"reveal": "1"})).text
    assert fault in pages.answer(run.replace("runs/", "whole/"), PageQuery({"reveal": "1"})).text
    with pytest.raises(NotFoundError):
        pages.answer(run.replace("runs/", "whole/"))
    addresses, waiting = {"index.html"}, ["index.html", truth]
    while waiting:
        answered = pages.answer(waiting.pop())
        assert fault not in answered.text
        waiting += answered.links - addresses
        addresses |= answered.links
    assert len(addresses) > 10


def test_the_truth_of_a_scenario_is_shown_from_what_the_store_keeps(tmp_path):
    root = golden("sre_store", tmp_path)
    before = contents(root)
    _, pages = pages_over(root)
    run = data(pages)["results"][0]["page"]
    address = run.replace("runs/", "truth/").replace(".html", ".json")
    assert json.loads(pages.answer(address, PageQuery({"reveal": "1"})).text)["answer"] == "config set {}"
    assert "config set" not in pages.answer(address).text
    assert 'class="lane' in pages.answer(run.replace("runs/", "whole/"), PageQuery({"reveal": "1"})).text
    assert contents(root) == before


def test_an_incident_that_lies_elsewhere_is_found_by_cases(tmp_path):
    root = golden("diagnosis_store", tmp_path)
    apart = tmp_path / "apart"
    apart.mkdir()
    for name in ("incidents", "truth"):
        shutil.move(root / name, apart / name)
    _, alone = pages_over(root)
    address = data(alone)["results"][0]["page"].replace("runs/", "truth/").replace(".html", ".json")
    asked = PageQuery({"reveal": "1"})
    assert "--cases" in json.loads(alone.answer(address, asked).text)["problem"]
    _, pages = pages_over(root, cases=apart)
    assert json.loads(pages.answer(address, asked).text)["answer"].startswith("In system chain, HTTPResponseAbort was")


def contents(root):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(root.rglob("*"))}


def test_nothing_is_written_to_a_store(tmp_path):
    root = golden("diagnosis_store", tmp_path)
    before = contents(root)
    pages_over(root)
    export(pages_over(root, live=False)[1], tmp_path / "out")
    assert contents(root) == before


def readonly(script, store):
    """Run *script* where *store* is mounted so that nobody can write to it, root neither."""
    mount = f"mount --bind {store} {store} && mount -o remount,ro,bind {store} {store}"
    probe = f"{mount} && ! touch {store}/written && {script}"
    return subprocess.run(["unshare", "-rm", "sh", "-c", probe], capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_disk_that_cannot_be_written_to_is_shown(tmp_path):
    store = tmp_path / "store"
    two_solvers(store, 3)
    if readonly("true", store).returncode:
        pytest.skip("no mount can be made read-only here: neither user namespaces nor root")
    done = readonly(f"{sys.executable} -m opsassay view {store} --export {tmp_path / 'out'}", store)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "index.html").exists()


def test_only_what_was_appended_to_the_log_is_read(tmp_path):
    two_solvers(tmp_path, 3)
    watcher, _ = pages_over(tmp_path)
    (store,) = watcher._stores
    assert store.follow() == []
    log = tmp_path / "attempts.jsonl"
    log.write_bytes(b"#" * log.stat().st_size)  # what stands before the end is never looked at again
    folder, run = begun(tmp_path, task="new")
    assert [(kind, one.run.item) for kind, one in store.follow()] == [("begun", "new")]
    finish(tmp_path, folder, run)
    assert [(kind, one.run.status.value) for kind, one in store.follow()] == [("ended", "done")]


def test_a_line_without_its_end_is_waited_for(tmp_path):
    ended(tmp_path)
    watcher, _ = pages_over(tmp_path)
    (store,) = watcher._stores
    folder, _ = begun(tmp_path, task="new")
    log = tmp_path / "attempts.jsonl"
    whole = log.read_bytes()
    log.write_bytes(whole[:-9])
    assert store.follow() == []
    with log.open("ab") as file:
        file.write(whole[-9:])
    assert [one.folder for _, one in store.follow()] == [folder]


def test_a_line_that_a_crash_tore_swallows_no_other(tmp_path):
    ended(tmp_path)
    watcher, _ = pages_over(tmp_path)
    with (tmp_path / "attempts.jsonl").open("ab") as log:
        log.write(b'{"event": "begun", "cell": "a')
    begun(tmp_path, task="new")
    assert [one.run.item for _, one in watcher._stores[0].follow()] == ["new"]


def test_a_whole_look_tells_what_it_finds(tmp_path):
    ended(tmp_path)
    watcher, _ = pages_over(tmp_path)
    assert watcher.events_after(0) == []
    folder, run = begun(tmp_path, task="new")
    watcher.read_changes()
    finish(tmp_path, folder, run)
    watcher.read_changes()
    found = [(one.number, one.kind, one.run.run.item) for one in watcher.events_after(0)]
    assert found == [(1, "begun", "new"), (2, "ended", "new")]
    assert watcher.last_event == 2


def test_a_store_that_vanishes_is_said_to_be_gone_and_comes_back(tmp_path):
    root, other = tmp_path / "one", tmp_path / "two"
    two_solvers(root, 3)
    ended(other, solver="third")
    watcher, pages = pages_over(root, other)
    run = next(row["page"] for row in data(pages)["results"] if row["solver"] == "good")
    root.rename(tmp_path / "away")
    assert pages.answer(run).text  # also before anybody has noticed
    watcher.read_changes()
    assert [store["state"] for store in data(pages)["stores"]] == ["the folder is gone", "there"]
    assert {row["solver"] for row in data(pages)["results"]} == {"third"}
    with pytest.raises(NotFoundError, match=r"index\.html"):
        pages.answer(run)
    (tmp_path / "away").rename(root)
    watcher.read_changes()
    assert pages.answer(run).text


def test_another_store_in_the_same_place_is_read_anew(tmp_path):
    root = tmp_path / "store"
    two_solvers(root, 3)
    watcher, pages = pages_over(root)
    shutil.rmtree(root)
    ended(root, solver="new")
    watcher.read_changes()
    assert {row["solver"] for row in data(pages)["results"]} == {"new"}


def test_grades_that_come_later_are_seen(tmp_path):
    folder = ended(tmp_path)
    kept = (folder / "verdicts").rename(tmp_path / "kept")
    _, pages = pages_over(tmp_path)
    assert data(pages)["results"][0]["outcome"] == "not graded"
    kept.rename(folder / "verdicts")
    assert data(pages)["results"][0]["outcome"] == "succeeded"


def test_a_board_follows_new_runs_and_new_grades(tmp_path):
    two_solvers(tmp_path, 3)
    watcher, pages = pages_over(tmp_path)

    def board():
        return data(pages, "boards/finops.json")["boards"][0]

    assert (board()["tasks"], board()["rows"][0]["success"]["text"][:4]) == (3, "100.")
    folder = ended(tmp_path, passed=False, solver="poor", task="t-03")
    watcher.read_changes()
    assert (board()["tasks"], board()["rows"][0]["success"]["text"][:4]) == (4, "75.0")
    (folder / "verdicts" / "default.json").unlink()
    assert board()["tasks"] == 3


@pytest.mark.parametrize(
    ("change", "sentence"),
    [({"schema_version": 9}, "written by a newer OpsAssay"), ({"schema_version": 9, "solver": 1}, "newer OpsAssay"),
     ({"solver": 1}, "solver: expected")],
)  # fmt: skip
def test_a_run_that_cannot_be_read_is_named_and_the_rest_is_shown(tmp_path, change, sentence):
    two_solvers(tmp_path, 2)
    folder = ended(tmp_path, task="newer")
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | change))
    _, pages = pages_over(tmp_path)
    home = data(pages)
    assert sentence in home["problems"][0]
    assert home["stores"][0]["unread"] == 1
    assert home["paging"]["of"] == 4


def test_a_run_whose_process_is_gone_is_lost_and_not_running(tmp_path):
    _, run = begun(tmp_path)
    begun(tmp_path, task="alive")
    log = tmp_path / "attempts.jsonl"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    lines[0]["process_started"] -= 100
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    _, pages = pages_over(tmp_path)
    home = data(pages)
    assert [row["task"] for row in home["running"]] == ["alive"]
    assert [(row["task"], row["status"], row["outcome"]) for row in home["results"]] == [
        (run.item, "lost", "no result")
    ]
    page = data(pages, home["results"][0]["page"].replace(".html", ".json"))
    assert page["answer"] == f"good came to no result on {run.item}: its process is gone."


def test_of_a_run_that_the_log_does_not_name_the_lease_says_whether_it_goes_on(tmp_path):
    _, run = begun(tmp_path)
    (tmp_path / "attempts.jsonl").unlink()
    lease = take_lease(tmp_path, run.cell)
    watcher, pages = pages_over(tmp_path)
    assert [row["task"] for row in data(pages)["running"]] == [run.item]
    lease.release()
    watcher.read_changes()
    assert data(pages)["running"] == []
    assert [row["status"] for row in data(pages)["results"]] == ["lost"]


def links_of(path):
    return re.findall(r'(?:href|src|action)="([^"]*)"', path.read_text())


@pytest.mark.slow
def test_exported_pages_lead_to_one_another_and_nowhere_else(tmp_path):
    root = golden("diagnosis_store", tmp_path)
    trials = golden("sre_store", tmp_path)
    for at in range(60):
        ended(tmp_path / "many", task=f"t {at}")
    out = tmp_path / "out"
    count, problems = export(pages_over(root, trials, tmp_path / "many", live=False)[1], out)
    assert problems == []
    files = [path for path in out.rglob("*") if path.is_file()]
    assert count == len(files)
    linked = {out / "index.html"}
    for path in files:
        if path.suffix == ".html" and path.parent.name != "traces":
            for link in links_of(path):
                if link.startswith("data:image/"):
                    continue
                assert urlsplit(link).scheme == urlsplit(link).netloc == ""
                linked.add((path.parent / link.partition("#")[0]).resolve() if not link.startswith("#") else path)
    assert linked == {path.resolve() for path in files}
    (fault,) = truths(root)
    assert [path for path in files if fault in path.read_text() or "config set" in path.read_text()] == []


@pytest.fixture(scope="module")
def gallery(tmp_path_factory):
    """Return the pages of the two small stores, and the folder with their files."""
    folder = tmp_path_factory.mktemp("gallery")
    _, pages = pages_over(golden("diagnosis_store", folder), golden("sre_store", folder), live=False)
    export(pages, folder / "out")
    return pages, folder / "out"


@pytest.mark.slow
def test_files_say_what_a_page_by_itself_says(gallery):
    pages, out = gallery
    for path in (path for path in out.rglob("*") if path.is_file()):
        assert path.read_text() == pages.answer(str(path.relative_to(out))).text


def test_one_of_a_thing_is_called_as_one(gallery):
    many = (
        "alerts|calls|cases|cells|comparisons|edges|faults|files|incidents|methods|pages|pairs|results|rows|runs|services|"
        "solvers|steps|systems|tasks|trials"
    )
    for path in gallery[1].rglob("*.html"):
        text = re.sub(r"<(style|script)\b.*?</\1>|<[^>]*>", " ", path.read_text(), flags=re.DOTALL)
        assert not re.findall(rf"(?<![\d.,~-])1\s+(?:graded |other |more |further |matched )?(?:{many})\b.*", text), (
            path
        )


def test_grades_that_come_during_an_export_are_on_none_of_its_pages(tmp_path):
    folder = ended(tmp_path / "store")
    watcher = Watcher([tmp_path / "store"])
    settled, following = StoredVerdicts(settled=True), StoredVerdicts()
    (one,) = watcher.catalogue.runs
    assert (settled.succeeded(one), following.succeeded(one)) == (True, True)
    board = settled.standing(watcher.catalogue, one.domain)
    shutil.rmtree(folder / "verdicts")
    assert (settled.succeeded(one), following.succeeded(one)) == (True, None)
    assert settled.standing(watcher.catalogue, one.domain) is board


def test_an_export_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    two_solvers(tmp_path / "store", 3)
    _, pages = pages_over(tmp_path / "store", live=False)
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine").write_text("kept")
    with pytest.raises(UserError, match="no empty folder"):
        export(pages, taken)
    files, left = pages.files, [5]

    class FullDisk:
        def files(self, address):
            left[0] -= 1
            if not left[0]:
                raise OSError(28, os.strerror(28))
            return files(address)

    with pytest.raises(OperationError, match="No space left"):
        export(FullDisk(), tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["store", "taken"]
    assert [path.name for path in taken.iterdir()] == ["mine"]
    assert exporting.export(pages, tmp_path / "out")[1] == []


def test_a_page_that_cannot_be_made_costs_itself_alone(tmp_path):
    ended(tmp_path / "store", domain="unheard-of")
    ended(tmp_path / "store", task="t-01")
    count, problems = export(pages_over(tmp_path / "store", live=False)[1], tmp_path / "out")
    assert [problem.partition(":")[0] for problem in problems] == ["boards/unheard-of.html"]
    assert "unheard-of" in (tmp_path / "out" / "boards" / "unheard-of.html").read_text()
    assert count > 10
