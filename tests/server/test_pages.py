"""The pages of the platform in a real browser: sign in, register, ask, watch it run, and nothing of anybody else."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from .conftest import BILL, finished

EXAMPLES = Path(__file__).parents[2] / "examples" / "platform"

pytestmark = [pytest.mark.live, pytest.mark.browser, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def token(platform):
    return platform.user("grace")._token


def sign_in(tab, platform, token):
    tab.goto(f"{platform.url}/login")
    tab.get_by_label("Token").fill(token)
    tab.get_by_role("button", name="Sign in").click()
    tab.wait_for_url(f"{platform.url}/agents")


def test_an_owner_registers_an_agent_asks_and_watches_it_run(browser, platform, token):
    tab = browser.new_page()
    problems = []
    tab.on("console", lambda message: problems.append(message.text))
    sign_in(tab, platform, token)
    tab.get_by_label("Name", exact=True).fill("by the page")
    tab.get_by_label("Kind").select_option("built in")
    tab.get_by_label("Name of the built-in agent or method").fill("chance")
    tab.get_by_label("finops").check()
    tab.get_by_role("button", name="Register").click()
    tab.get_by_role("heading", name="by the page").wait_for()
    tab.get_by_label("Task set").select_option("bill")
    tab.get_by_role("button", name="Ask for a benchmark").click()
    tab.get_by_text("of 3 cells have ended").wait_for()
    tab.get_by_text("Finished: 3 of 3 cells have ended").wait_for(timeout=90_000)  # without being loaded again
    tab.get_by_role("link", name="bill").click()
    tab.get_by_role("rowheader", name="chance").wait_for()
    assert "No solver is ranked on 3 tasks" in tab.content()
    assert problems == []
    tab.close()


def test_a_bundle_and_a_task_set_are_uploaded_in_the_page_and_refused_in_a_sentence(browser, platform, token, tmp_path):
    for name, folder in (("agent", EXAMPLES / "bundle"), ("tasks", tmp_path / "tasks")):
        if name == "tasks":
            folder.mkdir()
            (folder / "task_set.yaml").write_text(BILL)
        with tarfile.open(tmp_path / f"{name}.tar", "w") as archive:
            archive.add(folder, arcname=".")
    tab = browser.new_page()
    sign_in(tab, platform, token)

    def register(name, upload=None):
        tab.goto(f"{platform.url}/agents")
        tab.get_by_label("Name", exact=True).fill(name)
        tab.get_by_label("finops").check()
        if upload:
            tab.get_by_label("Bundle, of an agent").set_input_files(upload)
        tab.get_by_role("button", name="Register").click()

    register("of files", tmp_path / "agent.tar")
    tab.get_by_role("heading", name="of files").wait_for()
    register("without files")
    tab.get_by_text("A bundle has to be uploaded").wait_for()
    tab.get_by_role("button", name="Sign out").wait_for()  # the page of an error knows who has signed in
    register("of tasks", tmp_path / "tasks.tar")
    tab.get_by_text("agent.yaml").wait_for()
    assert tab.goto(f"{platform.url}/nowhere").status == tab.goto(f"{platform.url}/?domain=none").status == 404
    tab.get_by_text("There is no domain").wait_for()
    tab.goto(f"{platform.url}/nowhere")
    tab.get_by_role("heading", name="There is no such page").wait_for()
    tab.goto(platform.url)
    assert tab.get_by_role("button", name="Hand in").count() == 0  # an owner is no author
    sign_in(tab, platform, platform.admin)
    tab.get_by_role("link", name="OpsAssay").click()
    tab.get_by_label("Name of the task set").fill("by-the-page")
    tab.get_by_label("Tar").set_input_files(tmp_path / "tasks.tar")
    tab.get_by_role("button", name="Hand in").click()
    tab.get_by_role("heading", name="Leaderboard: by-the-page").wait_for()
    tab.get_by_role("link", name="This page as JSON").click()
    assert '"domain":"finops"' in tab.content()
    tab.close()


def test_a_wrong_token_is_said_and_a_page_of_somebody_else_is_not_shown(browser, platform, token):
    tab = browser.new_page()
    tab.goto(f"{platform.url}/agents")
    assert tab.url.endswith("/login")
    tab.get_by_label("Token").fill("ops_guess")
    tab.get_by_role("button", name="Sign in").click()
    tab.get_by_role("alert").wait_for()
    owner = platform.client(platform.user("heidi")._token)
    agent = owner.ask(
        "POST", "/api/agents", {"name": "of heidi", "kind": "built_in", "domains": ["finops"], "source": "chance"}
    )["id"]
    benchmark = owner.request(agent, "bill")
    sign_in(tab, platform, token)
    assert "of heidi" not in tab.content()
    tab.goto(f"{platform.url}/benchmarks/{benchmark}")
    assert "There is no such benchmark, or it is not yours." in tab.content()
    tab.close()
    finished(owner, benchmark)


def test_a_form_from_elsewhere_does_nothing(browser, platform, token):
    tab = browser.new_page()
    sign_in(tab, platform, token)
    tab.goto("about:blank")
    tab.set_content(
        f"<form method=post action='{platform.url}/agents'><input name=name value=forged>"
        "<input name=kind value=self_hosted><input name=domains value=sre><button>Send</button></form>"
    )
    tab.get_by_role("button").click()
    tab.wait_for_load_state()
    names = [one["name"] for one in platform.client(token).ask("GET", "/api/agents")["items"]]
    assert "forged" not in names
    tab.close()


@pytest.fixture(scope="module")
def pages(platform):
    """The addresses of every page, as the admin may see them, with results on them."""
    admin = platform.client()
    form = {"name": "guesses " * 9 + "a lot", "kind": "built_in", "domains": ["finops"], "source": "chance"}
    agent = admin.ask("POST", "/api/agents", form)["id"]
    benchmark = admin.request(agent, "bill")
    finished(admin, benchmark)
    report = {"agent": agent, "task_set": "bill", "said": {"passed": 1}, "source": "https://example.org/" + "x" * 300}
    admin.ask("POST", "/api/reports", report)
    run = admin.benchmark(benchmark)["cells"][0]["run"]
    board = "/leaderboards/bill"
    return (
        "/", "/?domain=finops", "/login", "/leaderboards",
        board, f"{board}?level=easy", f"{board}/self-hosted", f"{board}/runs",
        f"{board}/{run}",
        f"{board}/tasks", f"{board}/tasks/category-cost", f"{board}/compare?one=chance&two=constant", "/agents",
        f"/agents/{agent}", f"/benchmarks/{benchmark}", "/users", "/leaderboards/none",
    )  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_is_used_by_keyboard_and_says_first_what_it_has_to(browser, platform, pages, axe, scheme):
    tab = browser.new_page(color_scheme=scheme)
    problems = []
    tab.on("console", lambda message: problems.append(message.text))
    sign_in(tab, platform, platform.admin)
    for path in pages:
        for width in (2560, 1440, 390):
            tab.set_viewport_size({"width": width, "height": 900})
            if width == 2560:
                tab.goto(f"{platform.url}{path}")
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), (path, width)
            assert tab.locator(".answer").first.bounding_box()["y"] < 200, (path, width)
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Skip to the page", path
        assert tab.locator("h1").count() == 1
        tab.evaluate(axe)  # by the debugger, which no policy of the page holds back
        only = "'color-contrast'" if scheme == "dark" else "'wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'"
        kind = "rule" if scheme == "dark" else "tag"
        found = tab.evaluate(f"axe.run(document, {{runOnly: {{type: '{kind}', values: [{only}]}}}})")
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]] == [], path
        assert found["passes"], path
    assert [one for one in problems if "404" not in one] == []  # the last page is one that is not there
    tab.close()
