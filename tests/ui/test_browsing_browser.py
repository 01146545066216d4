"""The pages over stores in a browser: they follow what happens, by keyboard, on a narrow screen, for everybody."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time

import pytest
import uvicorn

from opsassay.ui.browsing.app import view_app
from opsassay.ui.browsing.exporting import export
from opsassay.ui.browsing.site import StorePages
from opsassay.ui.browsing.verdicts import StoredVerdicts
from opsassay.ui.browsing.watching import Watcher
from opsassay.ui.loopback import LoopbackOnly

from .stores import a_trial, begun, ended, finish, two_solvers
from .test_browsing import GOLDEN

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install -e .[dev]").expect
pytestmark = pytest.mark.browser

PASS = "a-key-of-the-test"
PAGES = (
    "index.html",
    "tasks/finops.t-01.html",
    "solvers/finops.good.html",
    "boards/finops.html",
    "compare/finops.good.poor.html",
    "trials/finops.html",
    "trials/sre.html",
    "audit/finops.html",
    "incidents.html",
    "jobs.html",
    "systems.html",
    "nothing.html",
)
LONG = "an-agent-with-a-name-that-is-as-long-as-nobody-should-give-one-but-somebody-will-in-the-end"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = two_solvers(tmp_path_factory.mktemp("view") / "store")
    folder = ended(root, solver=LONG, task="t-05", error="it gave up " * 30, notes=("one", "two"))
    (folder / "solver.log").write_text("x" * 300 + "\nthe last words")
    (folder / "actions.jsonl").write_text('{"tool": "query", "arguments": {"sql": "SELECT 1"}, "status": "ok"}\n' * 60)
    a_trial(root, solver="rough")
    a_trial(root, solver="gentle", outage=False, passed=True)
    for name in ("incidents", "truth"):
        shutil.copytree(GOLDEN / "diagnosis_store" / name, root / name)
    return root


@contextlib.contextmanager
def serving(*roots):
    """Serve the pages over *roots* while the block runs."""
    watcher = Watcher(roots)
    watcher.start()
    pages = StorePages(lambda: watcher.catalogue, StoredVerdicts())
    app = LoopbackOnly(view_app(pages, watcher), PASS)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        watcher.close()
        server.should_exit = True
        thread.join()


def test_a_leaderboard_is_searched_and_its_columns_are_chosen_and_both_stand_in_the_address(browser, address):
    tab = browser.new_page()
    tab.goto(f"{address}/boards/finops.html?key={PASS}")
    rows = tab.locator("table.board tbody tr")
    everybody = rows.count()
    tab.get_by_label("Solver has").fill("POOR")
    expect(rows.locator("visible=true")).to_have_count(1)
    expect(tab.locator("output")).to_have_text(f"1 of {everybody} solvers")
    tab.get_by_text("Columns").click()
    tab.get_by_role("checkbox", name="last run").uncheck()
    expect(tab.get_by_role("columnheader", name="last run")).to_have_count(0)
    tab.goto("about:blank")
    tab.go_back()
    expect(rows.locator("visible=true")).to_have_count(1)
    expect(tab.get_by_role("columnheader", name="last run")).to_have_count(0)
    tab.get_by_label("Solver has").fill("")
    expect(rows.locator("visible=true")).to_have_count(everybody)
    assert tab.locator("table.board svg.interval").count() >= 2
    tab.get_by_role("link", name="OpsAssay").click()
    tab.wait_for_url(f"{address}/index.html")
    tab.close()


def test_on_a_phone_the_solver_stays_while_its_figures_are_scrolled(browser, address):
    tab = browser.new_page(viewport={"width": 390, "height": 900})
    tab.goto(f"{address}/boards/finops.html?key={PASS}")
    tab.locator("table.board").evaluate("table => { table.parentElement.scrollLeft = 4000; }")
    assert 0 <= tab.locator("table.board tbody th").first.bounding_box()["x"] < 40
    tab.close()


@pytest.fixture(scope="module")
def address(store):
    with serving(store) as address:
        yield address


@contextlib.contextmanager
def a_tab(browser, address, width=1440, scheme="light"):
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    tab.problems = []
    tab.on("console", lambda message: tab.problems.append(message.text))
    tab.on("pageerror", lambda error: tab.problems.append(str(error)))
    tab.goto(f"{address}/?key={PASS}")
    yield tab
    context.close()


def run_address(tab):
    """Return the address of the run with the longest texts."""
    tab.goto(f"{tab.url.partition('?')[0]}?solver={LONG}")
    return tab.get_by_role("link", name="Run of").first.get_attribute("href")


def further_pages(tab, address):
    """Return the addresses of pages whose names follow from what is in the store."""
    tab.goto(f"{address}/incidents.html")
    incident = tab.locator("tbody th a").first.get_attribute("href")
    tab.goto(f"{address}/trials/sre.html")
    trial = tab.locator("a.mark.did-not-succeed").first.get_attribute("href").removeprefix("../")
    tab.locator("tbody th a", has_text="gentle").first.click()
    tab.get_by_role("link", name="rough").first.click()
    beside = tab.locator("tbody th a[href*=beside]").first.get_attribute("href").removeprefix("../")
    sql = f"{incident.replace('incidents/', 'sql/')}?sql=SELECT+service_name+FROM+abnormal_traces"
    return [trial, beside, incident, f"{incident}?reveal=1", sql, f"{trial.replace('runs/', 'whole/')}?reveal=1"]


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_and_breaks_no_rule_of_its_own(browser, address, width, scheme):
    with a_tab(browser, address, width, scheme) as tab:
        run = run_address(tab)
        for page in (*PAGES[:-1], run, run.replace("runs/", "truth/"), *further_pages(tab, address)[:-1]):
            tab.goto(f"{address}/{page}")
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), page
            assert tab.locator(".answer").first.bounding_box()["y"] < 200, page
            light = int(tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")) > 128
            assert light == (scheme == "light"), page
        assert tab.problems == []


def test_the_first_page_follows_what_begins_and_ends(browser, tmp_path):
    two_solvers(tmp_path, 2)
    with serving(tmp_path) as address, a_tab(browser, address) as tab:
        tab.get_by_label("task has").fill("half typed")
        tab.wait_for_timeout(500)
        folder, run = begun(tmp_path, solver="slow", task="new-task", started_ns=2 * 10**18)
        tab.get_by_role("heading", name="Runs now").wait_for()
        assert tab.locator("#answer").inner_text().startswith("slow works on new-task now.")
        assert tab.locator("#said").inner_text() == "slow has begun: new-task"
        finish(tmp_path, folder, run)
        tab.get_by_role("heading", name="Runs now").wait_for(state="detached")
        assert (
            tab.locator("#answer").inner_text() == "Nothing runs now. The last: slow on new-task of focus, not graded."
        )
        assert tab.get_by_label("task has").input_value() == "half typed"
        assert tab.problems == []


def test_what_begins_before_a_page_listens_is_on_it_too(browser, tmp_path):
    two_solvers(tmp_path, 2)
    with serving(tmp_path) as address, a_tab(browser, address) as tab:
        held = []

        def hold(route):
            held.append(route)

        tab.goto("about:blank")  # what the page before still asks for is not held
        tab.route("**/events*", hold)
        with tab.expect_request("**/events*"):
            tab.goto(address)
        begun(tmp_path, solver="slow", task="new-task", started_ns=2 * 10**18)
        while "new-task" not in tab.request.get(f"{address}/index.json").text():
            tab.wait_for_timeout(100)
        (asked,) = held
        asked.continue_()
        tab.get_by_role("heading", name="Runs now").wait_for()


def test_a_server_that_ends_is_said(browser, tmp_path):
    ended(tmp_path)
    with contextlib.ExitStack() as tabs:
        with serving(tmp_path) as address:
            tab = tabs.enter_context(a_tab(browser, address))
            tab.wait_for_timeout(500)
        tab.get_by_text("The server does not answer").wait_for()


def test_filters_and_links_work_by_keyboard(browser, address):
    with a_tab(browser, address) as tab:
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Skip to the page"
        tab.keyboard.press("Enter")
        tab.get_by_label("solver has").focus()
        tab.keyboard.type("poor")
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/*solver=poor*")
        assert set(tab.locator("#rows tbody td:nth-child(4)").all_inner_texts()) == {"poor"}
        for _ in range(40):
            tab.keyboard.press("Tab")
            if tab.evaluate("document.activeElement.textContent") == "open":
                break
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/runs/*")
        assert "poor" in tab.locator(".answer").inner_text()
        tab.get_by_role("link", name="Solver poor").focus()
        tab.keyboard.press("Enter")
        tab.wait_for_url("**/solvers/*")
        tab.get_by_role("link", name="good").click()
        assert tab.locator(".answer").inner_text() == "good is better than poor on 20 tasks."
        assert tab.problems == []


def test_the_moment_is_moved_by_keyboard_and_by_links(browser, address):
    with a_tab(browser, address) as tab:
        trial = further_pages(tab, address)[0]
        tab.goto(f"{address}/{trial}#step-2")
        expect(tab.locator(".moment output")).to_have_text("11.5 s")
        expect(tab.locator(".step-rows li.now")).to_have_id("step-2")
        tab.locator(".dips a", has_text="12.0 s").click()
        readings = tab.locator(".readings")
        expect(readings).to_contain_text("restart at 12.0 s")
        expect(readings).to_contain_text("ready replicas 50.0%")
        lane = tab.get_by_role("img", name="workload")
        lane.focus()
        tab.keyboard.press("ArrowRight")
        expect(tab.locator(".moment output")).to_have_text("16.0 s")
        expect(readings).to_contain_text("ready replicas 100.0%")
        tab.keyboard.press("ArrowLeft")
        expect(tab.locator(".moment output")).to_have_text("12.0 s")
        slider = tab.get_by_label("Moment")
        slider.focus()
        tab.keyboard.press("End")
        expect(slider).to_have_attribute("aria-valuetext", "30.0 s")
        assert tab.problems == []


def test_a_moment_is_read_off_both_sides(browser, address):
    with a_tab(browser, address) as tab:
        tab.goto(f"{address}/{further_pages(tab, address)[1]}")
        tab.get_by_label("Moment").first.focus()
        tab.keyboard.press("End")
        expect(tab.locator(".moment output")).to_have_text(["30.0 s", "30.0 s"])


@pytest.mark.long
def test_tabs_that_nobody_sees_leave_the_connections_to_others(browser, address):
    context = browser.new_context()
    first = context.new_page()
    first.goto(f"{address}/?key={PASS}")
    first.evaluate("Object.defineProperty(document, 'visibilityState', {get: () => 'hidden', configurable: true})")
    tabs = []
    for _ in range(99):
        tab = context.new_page()
        tab.add_init_script(
            "Object.defineProperty(document, 'visibilityState', {get: () => 'hidden', configurable: true})"
        )
        tab.goto(f"{address}/index.html", timeout=10_000)
        tabs.append(tab)
    seen = context.new_page()
    seen.goto(f"{address}/index.html", timeout=10_000)
    assert seen.locator("#answer").inner_text().startswith("Nothing runs now")
    context.close()


def test_exported_pages_open_from_disk_without_a_request(browser, store, tmp_path):
    watcher = Watcher([store])
    export(StorePages(lambda: watcher.catalogue, StoredVerdicts(), live=False), tmp_path / "out")
    tab = browser.new_page()
    asked, problems = [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda message: problems.append(message.text))
    tab.goto((tmp_path / "out" / "index.html").as_uri())
    tab.get_by_role("link", name="good").first.click()
    tab.get_by_role("link", name="Leaderboard of finops").click()
    assert "stands first" in tab.locator(".answer").inner_text()
    tab.get_by_role("link", name="All runs").click()
    assert "Nothing runs now" in tab.locator("#answer").inner_text()
    assert tab.locator("form").count() == 0
    assert problems == []
    assert all(url.startswith("file://") for url in asked)
    tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_against_wcag_aa(browser, address, axe, scheme):
    with a_tab(browser, address, scheme=scheme) as tab:
        run = run_address(tab)
        truth = run.replace("runs/", "truth/")
        for page in (*PAGES, run, truth, f"{truth}?reveal=1", *further_pages(tab, address)):
            tab.goto(f"{address}/{page}")
            tab.evaluate(axe)  # by the debugger, which no policy of the page holds back
            found = tab.evaluate("axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})")
            said = [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]]
            assert said == [], page
            assert len(found["passes"]) > 5
