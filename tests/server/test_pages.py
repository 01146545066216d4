"""The pages of the platform in a real browser: sign in, register, ask, watch it run, and nothing of anybody else."""

from __future__ import annotations

import pytest

from .conftest import finished

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
    assert "Nobody is ranked on these 3 tasks." in tab.content()
    assert problems == []
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 2560])
def test_pages_fit_and_can_be_used_by_keyboard(browser, platform, token, width, scheme):
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    sign_in(tab, platform, token)
    for path in ("/", "/agents", "/boards/bill", "/login"):
        tab.goto(f"{platform.url}{path}")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.tagName") == "A", path
        assert tab.locator("h1").count() == 1
        inputs = tab.locator("input:not([type=hidden]):not([hidden])")
        assert inputs.evaluate_all("all => all.every(one => one.labels.length)")
    tab.close()
