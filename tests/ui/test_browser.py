"""The report in a real browser: it draws, it answers to clicks and keys, it asks for nothing and runs nothing hostile."""

from __future__ import annotations

import time

import pytest

from opsassay.evals.diagnosis.results.repeats import summarise_runs
from opsassay.ui.report import write_report

from . import cases
from .test_solvers import right_answer, unsealed, whole

pytestmark = pytest.mark.browser
WIDTHS = (1280, 390)
INK = """canvases => canvases.some(c => {
  const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  return data.some((value, i) => i % 4 === 3 && value > 0);
})"""


class Opened:
    """A report in a tab, with all that went wrong or went out while it was open."""

    def __init__(self, browser, file, width, scheme="light", anchor=""):
        self.tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.problems, self.requests, self.dialogs = [], [], []
        self.tab.on("console", lambda m: self.problems.append(m.text))
        self.tab.on("pageerror", lambda e: self.problems.append(str(e)))
        self.tab.on("request", lambda r: self.requests.append(r.url))
        self.tab.on("dialog", lambda d: (self.dialogs.append(d.message), d.dismiss()))
        self.address = file.as_uri()
        self.tab.goto(self.address + anchor)
        self.until("window.opsassayReport.shown.view || !window.opsassayReport.payload.cases.length")

    def run(self, script):
        return self.tab.evaluate(script)

    def until(self, script, seconds=30):
        """Ask again until it holds: a waiting function of the browser's own is an eval, which the page's policy forbids."""
        deadline = time.monotonic() + seconds
        while not self.run(script):
            assert time.monotonic() < deadline, f"not within {seconds} s: {script}"
            time.sleep(0.02)

    def drawn(self, selector):
        return self.tab.eval_on_selector_all(selector, INK)

    def marks(self):
        """Return the classes of the graph by what they are on."""
        return self.run(
            """(() => { const { graph: { cy }, view } = opsassayReport.shown, name = id => view.services[+id.slice(1)].name;
            return [Object.fromEntries(cy.nodes().map(n => [name(n.id()), n.classes().join(' ')])),
                    Object.fromEntries(cy.edges('.over').map(e => [`${name(e.source().id())}>${name(e.target().id())}`,
                      e.classes().filter(c => c !== 'over').join(' ') + ' ' + e.style('line-style')]))] })()"""
        )

    def lay(self, layer):
        self.tab.locator("fieldset", has_text="Lay over the graph").get_by_label(layer, exact=True).check()

    def check_calm(self):
        """Fail on a message, a request beyond the file, a dialog, or a page wider than its window."""
        assert self.problems == []
        assert [u.partition("#")[0] for u in self.requests] == [self.address]
        assert self.dialogs == []
        assert self.run("document.documentElement.scrollWidth") <= self.run("innerWidth")


@pytest.fixture
def open_report(browser, tmp_path):
    opened = []

    def open_(made, width=1280, solvers=(), **more):
        file = write_report(made, tmp_path / "report.html", title="Report of a test", solvers=solvers)
        opened.append(Opened(browser, file, width, **more))
        return opened[-1]

    yield open_
    for page in opened:
        page.tab.close()


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    return cases.full_case(tmp_path_factory.mktemp("pack"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_everything_is_drawn_and_nothing_is_asked_for(open_report, full, width, scheme):
    page = open_report([full], width, scheme=scheme)
    assert page.run("opsassayReport.shown.graph.cy.nodes().length") == 7
    assert page.run("opsassayReport.shown.graph.cy.edges('.call').length") == 7
    page.tab.wait_for_timeout(100)
    assert page.drawn("#graph canvas")
    assert page.tab.locator(".chart canvas").count() == 3
    assert all(page.drawn(f".chart:nth-child({i}) canvas") for i in (1, 2, 3))
    assert page.run("opsassayReport.shown.charts.plots.every(p => p.bbox.width > 150 && p.bbox.height > 90)")
    page.tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.check_calm()


def test_the_truth_layer_shows_roots_alarms_and_cascade(open_report, full):
    nodes, edges = open_report([full]).marks()
    assert nodes["pricing"] == "root"
    assert set(nodes["gateway"].split()) == {"affected", "alarm"}
    assert nodes["payment"] == ""
    assert edges["pricing>cart"] == "cascade solid"
    assert len(edges) == 5


def test_another_answer_changes_the_layer_and_differs_in_line_style(open_report, full):
    page = open_report([full])
    page.lay("trace-walk")
    nodes, edges = page.marks()
    assert nodes["pricing"] == "agrees"
    assert edges["pricing>cart"] == "agrees solid"
    assert edges["catalogue>frontend"] == "wrong dashed"
    assert edges["cart>checkout"] == "missing dotted"
    assert page.tab.locator(".layer-words").inner_text() == (
        "Roots: 1 right, 0 missing, 0 wrong. Edges: 3 right, 2 missing, 1 wrong."
    )
    page.lay("loudest")
    nodes, _ = page.marks()
    assert (nodes["pricing"], nodes["frontend"]) == ("missing", "wrong")
    page.check_calm()


def test_layers_can_be_switched_with_the_keyboard_alone(open_report, full):
    page = open_report([full])
    page.tab.locator("input[name=layer]").first.focus()
    page.tab.keyboard.press("ArrowRight")
    assert page.marks()[0]["pricing"] == "agrees"
    assert page.run("getComputedStyle(document.activeElement.parentElement).outlineStyle") == "solid"


def test_grades_show_values_reasons_and_failures(open_report, full):
    page = open_report([full])
    rows = {
        r.split("\t")[0].strip(): r.split("\t")[1:] for r in page.tab.locator(".grades tbody").inner_text().split("\n")
    }
    walk = next(cells for name, cells in rows.items() if name.startswith("trace-walk"))
    assert [c.strip() for c in walk] == [*["100.0%"] * 6, "66.7%", "100.0%"]
    not_applicable = page.tab.locator("td.not_applicable span").first
    not_applicable.focus()
    assert page.tab.locator(".reason").inner_text() == "n/a: the method names no propagation edges"
    assert not_applicable.get_attribute("title") == "the method names no propagation edges"
    page.tab.locator("td.failed span").hover()
    assert page.tab.locator(".reason").inner_text().startswith("failed: the edge grader stopped")
    assert "the answer carries no SQL" in page.tab.locator(".footnotes").inner_text()
    assert "timeout: no answer within 600 s" in page.tab.locator(".grades").inner_text()
    assert page.tab.locator(".grades tr.baseline").count() == 2


def test_a_column_title_orders_the_table_and_keeps_unscored_rows_last(open_report, full):
    page = open_report([full])
    first = page.tab.locator(".grades tbody th")
    page.tab.locator("[data-metric=edge_f1]").click()
    assert first.first.inner_text() == "trace-walk"
    page.tab.locator("[data-metric=path_reachability]").click()
    page.tab.locator("[data-metric=path_reachability]").click()
    assert [name.split("\n")[0] for name in first.all_inner_texts()][:2] == ["correlation", "trace-walk"]
    assert page.tab.locator("th[aria-sort=ascending]").count() == 1


def test_an_answer_shows_its_sql_with_status_and_rows(open_report, full):
    page = open_report([full])
    answer = page.tab.locator("details.answer", has_text="trace-walk")
    answer.locator("summary").click()
    text = answer.inner_text()
    assert "quantile_cont(duration, 0.99)" in text
    assert "trace · ok" in text
    assert "418.21" in text
    assert "jvm_method_latency" in text
    assert "windows\nnormal, abnormal" in text.replace("\t", "\n")


def test_on_a_phone_names_of_services_and_solvers_have_room_for_a_word(open_report, full):
    page = open_report([full], 390)
    page.tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    shares = "nodes => nodes.map(one => one.firstElementChild.clientWidth / one.clientWidth)"
    ranked = page.tab.eval_on_selector_all(".ranking li", shares)
    assert ranked
    assert min(ranked) > 0.5
    widths = page.tab.eval_on_selector_all(".grades th[scope=row]", "nodes => nodes.map(one => one.clientWidth)")
    assert min(widths) >= 120
    page.check_calm()


def test_charts_begin_with_root_and_entry_and_take_any_service(open_report, full):
    page = open_report([full])
    labels = "opsassayReport.shown.charts.plots[0].series.slice(1).map(s => s.label)"
    assert page.run(labels) == ["pricing", "gateway"]
    page.tab.locator(".chooser summary").click()
    page.tab.locator(".chooser").get_by_label("checkout").check()
    assert page.run(labels) == ["pricing", "gateway", "checkout"]
    page.check_calm()


def test_a_service_tells_its_details_when_it_is_chosen(open_report, full):
    page = open_report([full])
    page.run("void opsassayReport.shown.graph.cy.nodes('.root').select()")
    assert page.tab.locator(".details").inner_text() == (
        "pricing; ◆ root cause; states: slow; onset +0.4 s from the fault; no alert."
    )


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_text_is_shown_as_text_and_runs_nowhere(open_report, tmp_path, width):
    page = open_report([cases.hostile_case(tmp_path / "pack")], width)
    page.tab.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    page.lay("javascript:alert(5)")
    page.tab.wait_for_timeout(150)
    text = page.tab.locator("main").inner_text()
    for hostile in (cases.HOSTILE, "{{7*7}}", "<script>alert(3)</script>", "<u>odd</u>", "<i>message</i>", "__proto__"):
        assert hostile in text
    assert "⟨U+202E⟩" in text
    assert "\u202e" not in text
    assert "1790000000123456789" in text
    assert page.tab.locator("main :is(img, script, iframe, svg, style, u, i)").count() == 0
    assert (
        page.run("opsassayReport.shown.graph.cy.nodes().length") == 9
    )  # seven of the system and two that were made up
    page.check_calm()


@pytest.mark.parametrize("width", WIDTHS)
def test_a_case_of_telemetry_alone_is_shown(open_report, tmp_path, width):
    page = open_report([cases.bare_case(tmp_path / "pack")], width)
    text = page.tab.locator("main").inner_text()
    assert "what was broken is not part of this report" in text
    assert "No solver has answered yet" in text
    assert "No alert fired" in text
    assert page.run("opsassayReport.shown.graph.cy.nodes().length") == 7
    page.check_calm()


def test_truth_without_annotation_judges_roots_but_no_edges(open_report, full):
    page = open_report([full.model_copy(update={"annotation": None})])
    assert page.marks()[0]["pricing"] == "root"
    page.lay("trace-walk")
    nodes, edges = page.marks()
    assert nodes["pricing"] == "agrees"
    assert set(edges.values()) == {"claimed dashed"}
    page.check_calm()


def test_an_answer_without_truth_is_shown_without_a_judgement(open_report, full):
    page = open_report([full.model_copy(update={"truth": None, "annotation": None})])
    assert page.tab.get_by_label("Truth", exact=True).count() == 0
    assert page.marks()[0]["pricing"] == "claimed"
    page.check_calm()


def test_in_a_no_fault_case_a_blamed_service_is_wrong_and_silence_is_an_answer(open_report, tmp_path):
    page = open_report([cases.no_fault_case(tmp_path / "pack")])
    assert "Nothing was broken" in page.tab.locator(".headline").inner_text()
    assert "nothing is wrong" in page.tab.locator("details.answer", has_text="careful").inner_text()
    page.lay("eager")
    assert page.marks()[0]["cart"] == "wrong"
    page.check_calm()


@pytest.mark.parametrize("width", WIDTHS)
def test_several_cases_can_be_filtered_followed_and_linked(open_report, tmp_path, width):
    made = [cases.full_case(tmp_path / "a"), cases.hostile_case(tmp_path / "b"), cases.no_fault_case(tmp_path / "c")]
    page = open_report(made, width, anchor="#quiet")
    assert page.run("opsassayReport.shown.view.id") == "quiet"
    page.tab.locator("#cases a").nth(1).click()
    page.until("opsassayReport.shown.view.id === 'a/b?c#<i>%'")
    assert page.tab.locator("#cases tr[aria-current]").count() == 1
    page.tab.go_back()
    page.until("opsassayReport.shown.view.id === 'quiet'")
    page.tab.locator("input[type=search]").fill("no fault")
    assert page.tab.locator("#cases tbody tr:visible").count() == 1
    assert page.tab.locator("#cases .filter").inner_text().endswith("1 of 3 cases")
    page.check_calm()


@pytest.mark.parametrize("width", WIDTHS)
def test_who_is_not_ranked_is_seen_and_solvers_are_summed_up(open_report, full, width):
    best = whole(right_answer())
    loose = unsealed(whole(best.model_copy(update={"run": best.run.model_copy(update={"cell": "loose"})})))
    case = full.model_copy(update={"answers": (*full.answers, loose)})
    summaries = summarise_runs([best.run, loose.run], [best.verdict, loose.verdict], [])
    page = open_report([case], width, solvers=summaries)
    table = page.tab.locator("#solvers table")
    assert table.locator("thead").inner_text().split("\n")[0].split("\t")[0] == "Solver"
    assert "no: it ran unsealed" in table.locator("tbody tr").last.inner_text()
    last = page.tab.locator(".grades tbody tr").last
    assert "loose" in last.inner_text()
    mark = last.locator(".unranked").bounding_box()
    head = last.locator("th").bounding_box()
    assert head["x"] <= mark["x"] <= mark["x"] + mark["width"] <= head["x"] + head["width"]  # not cut away
    page.check_calm()


def test_a_report_of_no_cases_says_so(open_report):
    page = open_report([])
    assert "no cases" in page.tab.locator("main").inner_text()
    page.check_calm()


def test_turning_a_phone_keeps_everything_inside(open_report, full):
    page = open_report([full], 390)
    page.tab.set_viewport_size({"width": 844, "height": 390})
    page.until("opsassayReport.shown.charts.plots[0].width > 340 || innerWidth < 500")
    page.tab.set_viewport_size({"width": 390, "height": 844})
    page.until("opsassayReport.shown.charts.plots.every(p => p.width < 380)")
    page.check_calm()


def test_it_prints_in_light_colours_with_every_detail_open(open_report, full):
    page = open_report([full], scheme="dark")
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run("opsassayReport.shown.charts.plots.every(p => p.width < 360)")
    assert page.run("document.querySelectorAll('details:not([open])').length") == 0
    assert page.run("getComputedStyle(document.documentElement).getPropertyValue('--surface').trim()") == "#ffffff"
    page.run("dispatchEvent(new Event('afterprint'))")
    assert page.run("document.querySelectorAll('details:not([open])').length") > 0
    page.check_calm()
