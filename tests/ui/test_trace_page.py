"""The trace page and the annotation form in a real browser: ten thousand steps, search, keys, hostile text, saving."""

from __future__ import annotations

import json

import pytest

from opsassay.analysis.blame.annotations import read_annotations
from opsassay.analysis.blame.joined import ClockLane, ClockMark
from opsassay.analysis.blame.patterns import PatternFinding
from opsassay.core.schema.trajectory import Attribution, ToolCall, Trace, TraceStep
from opsassay.ui.trace_view import TracePage, render_trace_page, write_trace_page

pytestmark = pytest.mark.browser
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\u202e\x1b[31m"


def trace_of(n, text=""):
    steps = tuple(
        TraceStep(
            step_id=i,
            agent_id=str(i % 3),
            agent_name=("Planner", "Worker", "Verifier")[i % 3],
            input_context=f"input {i} {text}",
            output_content=f"output {i} {text}",
            tool_logs=(ToolCall(tool="sql", arguments={"q": f"q{i}"}, output=f"row {i} {text}", status="error"),)
            if i % 5 == 0
            else (),
            kind="tool" if i % 5 == 0 else "plain",
        )
        for i in range(1, n + 1)
    )
    return Trace(task_id="t", task_instruction=f"do it {text}", system_name="team", steps=steps)


class Page:
    """The page in a tab, with all that went wrong or went out while it was open."""

    def __init__(self, browser, folder, pages, width=1280, scheme="light", **options):
        file = write_trace_page(pages, folder / "trace.html", title="Trace", **options)
        self.tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.tab.set_default_timeout(10_000)
        self.problems, self.requests = [], []
        self.tab.on("console", lambda m: self.problems.append(m.text))
        self.tab.on("pageerror", lambda e: self.problems.append(str(e)))
        self.tab.on("request", lambda r: self.requests.append(r.url))
        self.address = file.as_uri()
        self.tab.goto(self.address)
        self.until("Boolean(window.opsassayTrace?.ready && window.opsassayTrace.flow)")
        self.until("document.querySelector('#detail h2') !== null || !opsassayTrace.store.traces[0].steps.length")

    def until(self, expression):
        """Wait for *expression*: the page's own policy forbids the polling of the browser driver."""
        for _ in range(400):
            if self.tab.evaluate(expression):
                return
            self.tab.wait_for_timeout(25)
        raise AssertionError(f"never came: {expression}; {self.problems}")

    def open_step(self):
        return self.tab.inner_text("#detail h2")

    def wait_for_step(self, number):
        self.until(f"document.querySelector('#detail h2')?.textContent.startsWith('Step {number} ')")


@pytest.fixture
def opened(browser, tmp_path):
    pages = []

    def open_(*args, **options):
        pages.append(Page(browser, tmp_path, *args, **options))
        return pages[-1]

    yield open_
    for page in pages:
        assert page.problems == []
        assert {url.split("#")[0] for url in page.requests if not url.startswith("blob:")} == {page.address}
        page.tab.close()


def suggested(n=9, **more):
    return TracePage("team", trace_of(n), Attribution(agent_name="Planner", step_id=6, reason="it slipped"), **more)


def test_ten_thousand_steps_are_painted_at_once_and_found_again(opened):
    page = opened([TracePage("big", trace_of(10_000), Attribution(agent_name="Worker", step_id=7_003, reason="r"))])
    assert page.open_step().startswith("Step 7003")
    assert page.tab.locator(".step").count() < 80  # only what is visible is in the page
    page.tab.fill("#search", "output 9999 ")
    page.wait_for_step(9999)
    assert "1 of 10000 steps" in page.tab.inner_text(".filter")
    page.tab.fill("#search", "")
    page.until("opsassayTrace.list.positions.length === 10000")
    page.tab.focus(".steps")
    page.tab.keyboard.press("End")
    page.wait_for_step(10_000)


def test_keys_walk_search_and_jump_to_the_suggestion(opened):
    page = opened([suggested()])
    assert page.open_step().startswith("Step 6")
    assert "it slipped" in page.tab.inner_text(".suggested-here")
    page.tab.keyboard.press("j")
    page.wait_for_step(7)
    page.tab.keyboard.press("k")
    page.tab.keyboard.press("k")
    page.wait_for_step(5)
    assert "q5" in page.tab.inner_text("#detail .tool")
    assert page.tab.url.endswith("#step-5")
    page.tab.keyboard.press("s")
    page.wait_for_step(6)
    page.tab.keyboard.press("/")
    page.tab.keyboard.type("input 3")
    page.wait_for_step(3)
    page.tab.keyboard.press("Escape")
    page.tab.select_option("#who", label="Verifier")
    page.until(
        "opsassayTrace.list.positions.length === 1 || document.querySelector('.filter').innerText.includes('of 9')"
    )


def test_the_flow_between_agents_is_drawn_and_listed_and_filters(opened):
    page = opened([suggested()])
    assert page.tab.evaluate("opsassayTrace.flow.nodes().length") == 3
    assert page.tab.evaluate("opsassayTrace.flow.edges().map(e => e.data('label')).sort()") == ["2", "3", "3"]
    page.tab.click("#flow summary")
    assert "Planner" in page.tab.inner_text("#flow table")
    page.tab.evaluate("opsassayTrace.flow.nodes()[0].emit('tap')")
    page.until("opsassayTrace.list.positions.length === 3")


def test_the_clock_and_the_patterns_lead_to_their_steps(opened):
    lanes = (
        ClockLane("agent steps", (ClockMark("step 3", 10**18, 10**18 + 10**9, "plain", 3),)),
        ClockLane("faults", (ClockMark("PodKill", 10**18, 10**18 + 9 * 10**9, "fault"),)),
    )
    page = opened([suggested(lanes=lanes, findings=(PatternFinding("loudest signal", 8, "cart complains most"),))])
    page.tab.click("#section-findings a")
    page.wait_for_step(8)
    page.tab.locator(".trace-clock .mark.plain").click()
    page.wait_for_step(3)
    page.tab.click("#section-clock summary")
    assert "PodKill" in page.tab.inner_text("#section-clock table")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_wide_and_narrow_light_and_dark(opened, width, scheme):
    page = opened([suggested(findings=(PatternFinding("presence bias", 2, "x" * 300),))], width=width, scheme=scheme)
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_short_trace_leaves_no_empty_box_and_a_narrow_page_flows_downwards(opened):
    page = opened([suggested()], width=390)
    assert page.tab.evaluate("document.querySelector('.steps').clientHeight") <= 9 * 38
    ys = page.tab.evaluate("opsassayTrace.flow.nodes().map(node => node.position('y'))")
    assert len(set(ys)) == 3
    wide = opened([suggested()])
    xs = wide.tab.evaluate("opsassayTrace.flow.nodes().map(node => node.position('x'))")
    assert len(set(xs)) == 3


def test_hostile_text_is_text(opened):
    hostile = trace_of(6, HOSTILE)
    steps = tuple(step.model_copy(update={"agent_name": HOSTILE}) for step in hostile.steps)
    evil = hostile.model_copy(update={"steps": steps, "system_name": HOSTILE})
    said = Attribution(agent_name=HOSTILE, step_id=5, reason=HOSTILE)
    page = opened([TracePage(HOSTILE, evil, said, (PatternFinding(HOSTILE, 2, HOSTILE),))])
    assert page.tab.evaluate("window.hacked") is None
    assert "onerror" in page.tab.inner_text("#detail")
    assert "\u202e" not in page.tab.inner_text("body")


def test_an_empty_trace_says_so(opened):
    page = opened([TracePage("none", Trace(task_id="t", task_instruction="", system_name="s"))])
    assert "no steps" in page.tab.inner_text("#detail")


def test_the_form_takes_the_open_step_keeps_it_and_saves_what_agree_reads(opened, tmp_path):
    page = opened([TracePage("one", trace_of(6)), TracePage("two", trace_of(4))], annotator="ada")
    assert page.tab.locator(".suggestion").count() == 0
    assert "earliest step from which" in page.tab.inner_text(".annotate")  # what is asked is shown, not folded away
    order = page.tab.evaluate("[...document.querySelectorAll('#main > section')].map(s => s.id || s.className)")
    assert order.index("section-facts") < order.index("browse")
    page.tab.keyboard.press("j")
    page.wait_for_step(2)
    page.tab.click("#take-step")
    page.tab.fill("#blamed-reason", HOSTILE)
    page.tab.check("#blamed-uncertain")
    page.tab.select_option("#which", "1")
    page.tab.fill("#blamed-step", "4")
    page.tab.select_option("#blamed-agent", "Worker")
    assert "2 of 2 annotated" in page.tab.inner_text(".annotate")
    with page.tab.expect_download() as download:
        page.tab.click("#save")
    download.value.save_as(tmp_path / "ada.json")
    other = json.loads((tmp_path / "ada.json").read_text()) | {"annotator": "ben"}
    (tmp_path / "ben.json").write_text(json.dumps(other))
    ada, _ = read_annotations([tmp_path / "ada.json", tmp_path / "ben.json"])
    one, two = ada.attributions["one"], ada.attributions["two"]
    assert (ada.annotator, one.agent_name, one.step_id, one.uncertain, one.reason) == (
        "ada",
        "Verifier",
        2,
        True,
        HOSTILE,
    )
    assert (two.agent_name, two.step_id, two.uncertain) == ("Worker", 4, False)


def test_the_same_trace_gives_the_same_bytes():
    assert render_trace_page([suggested()], title="x") == render_trace_page([suggested()], title="x")
