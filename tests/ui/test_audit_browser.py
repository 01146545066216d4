"""The audit report in a real browser: wide and narrow, light and dark, silent, nothing cut off."""

from __future__ import annotations

import pytest

from analysis.audit.made import QUICK, drawn
from opsassay.analysis.audit.audit import audit
from opsassay.ui.audit_report import write_audit

pytestmark = pytest.mark.browser
CUT_OFF = """[...document.querySelectorAll('svg.figure')].flatMap(svg => {
  const box = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(t => {
    const r = t.getBoundingClientRect();
    return r.left < box.left - 1 || r.right > box.right + 1 || r.top < box.top - 1 || r.bottom > box.bottom + 1;
  }).map(t => t.textContent);
})"""
CONTRAST = """(() => {
  const channel = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const rgb = text => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const page = rgb(getComputedStyle(document.querySelector('section')).backgroundColor);
  const ink = rgb(getComputedStyle(document.querySelector('.figure text')).fill);
  return [...document.querySelectorAll('.cell')].map(cell => {
    const fill = rgb(getComputedStyle(cell).fill), a = +cell.getAttribute('fill-opacity');
    const [x, y] = [light(page.map((p, i) => p * (1 - a) + fill[i] * a)), light(ink)].sort((p, q) => q - p);
    return (x + 0.05) / (y + 0.05);
  });
})()"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("audit")
    frame = drawn(methods=("baro", "max-|Z|", "alert-count", "a-method-with-a-long-name"), seed=5)
    write_audit(audit(frame, QUICK), made)
    return made


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_report_is_readable_and_silent(browser, folder, width, scheme):
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    problems, requests = [], []
    tab.on("console", lambda m: problems.append(m.text))
    tab.on("pageerror", lambda e: problems.append(str(e)))
    tab.on("request", lambda r: requests.append(r.url))
    address = (folder / "report.html").as_uri()
    tab.goto(address)
    assert problems == []
    assert requests == [address]
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.locator("svg.figure").count() == 2 + 6 + 6
    assert tab.evaluate(CUT_OFF) == []
    assert min(tab.evaluate(CONTRAST)) >= 4.5  # WCAG AA of the numbers in the heat map
    if width == 390:  # panels fit a phone without scrolling; the heat map may scroll in its own box
        widths = tab.evaluate("[...document.querySelectorAll('.panel')].map(p => p.getBoundingClientRect().right)")
        assert max(widths) <= 390
    tab.close()


def test_a_figure_stands_alone_in_both_schemes(browser, folder):
    inks = set()
    for scheme in ("light", "dark"):
        tab = browser.new_page(color_scheme=scheme)
        tab.goto((folder / "figures" / "heatmap.svg").as_uri())
        inks.add(tab.evaluate("getComputedStyle(document.querySelector('text')).fill"))
        assert tab.evaluate("document.querySelectorAll('text').length") > 20
        tab.close()
    assert len(inks) == 2


def test_parts_are_reached_by_their_links(browser, folder):
    tab = browser.new_page()
    tab.goto((folder / "report.html").as_uri())
    for link in tab.locator("nav a").all():
        target = link.get_attribute("href")
        assert tab.locator(target).count() == 1
    tab.close()
