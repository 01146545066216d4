"""The audit report as text: figures, Markdown, hostile names, no request and no script."""

from __future__ import annotations

import html
import itertools
import re
import xml.etree.ElementTree as ET

import polars as pl
import pytest

from analysis.audit.made import QUICK, drawn, table
from opsassay.analysis.audit.audit import audit
from opsassay.analysis.audit.settings import AuditSettings
from opsassay.ui.audit_figures import figures, shown_pairs
from opsassay.ui.audit_report import render_html, write_audit
from opsassay.ui.audit_svg import Axis
from opsassay.ui.audit_view import sections

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "<script>alert(1)</script>|`x`"


@pytest.fixture(scope="module")
def result():
    return audit(drawn(seed=5), QUICK)


def texts(path):
    return ["".join(node.itertext()) for node in ET.parse(path).getroot().iter(f"{SVG}text")]


def test_figures_are_whole_svg_files_with_text_as_text(result, tmp_path):
    write_audit(result, tmp_path)
    files = sorted(p.name for p in (tmp_path / "figures").iterdir())
    assert files == [
        *(f"forest-{i}.svg" for i in (1, 2, 3)), "heatmap.svg", "pooled.svg", *(f"regret-{i}.svg" for i in (1, 2, 3)),
    ]  # fmt: skip
    for name in files:
        root = ET.parse(tmp_path / "figures" / name).getroot()
        assert root.find(f"{SVG}title").text
        assert "prefers-color-scheme: dark" in root.find(f"{SVG}style").text
        assert not [n for n in root.iter() if n.tag in {f"{SVG}image", f"{SVG}script", f"{SVG}foreignObject"}]
    heat = texts(tmp_path / "figures" / "heatmap.svg")
    pair = result.pairs[0]
    stars = int(sum(((p.low > 0) | (p.high < 0)).sum() for p in result.pairs))
    assert sum(t.endswith("*") for t in heat) == stars
    shown = f"{100 * pair.paired.effect[0]:+.1f}".replace("-", "−")
    assert any(t.rstrip("*") == shown for t in heat)
    forest = texts(tmp_path / "figures" / "forest-1.svg")
    assert {"s0", "s3", "mean", "another system"} <= set(forest)


def test_in_the_heat_map_the_better_method_comes_first_so_that_a_colour_means_one_direction(tmp_path):
    turned = 0
    for seed in range(4):
        found = audit(drawn(seed=seed), QUICK)
        write_audit(found, tmp_path / str(seed))
        heat, names = texts(tmp_path / str(seed) / "figures" / "heatmap.svg"), found.matched.methods
        for pair in found.pairs:
            mean, first, second = pair.paired.effect.mean(), names[pair.a], names[pair.b]
            turned += mean < 0
            assert (f"{second} − {first}" if mean < 0 else f"{first} − {second}") in heat
    assert turned


def test_the_page_holds_every_part_and_no_script(result):
    page = render_html(result, sections(result), "A title")
    assert "<script" not in page
    assert "default-src 'none'; script-src 'none'; style-src 'sha256-" in html.unescape(page)
    assert not re.search(r"(?:src|href)=\"(?!#|data:image/)", page)
    assert "style=" not in page
    for part in (
        "advice",
        "inclusion",
        "scores",
        "effects",
        "heterogeneity",
        "regret",
        "families",
        "interaction",
        "power",
    ):
        assert f'id="{part}"' in page
    assert result.claim.split(",")[0] in page
    assert not re.search(r"\b(?:nan|inf)\b", re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL), re.IGNORECASE)


def test_markdown_says_the_same(result, tmp_path):
    write_audit(result, tmp_path)
    text = (tmp_path / "report.md").read_text()
    for part in sections(result):
        assert f"## {part.title}" in text
        for shown in part.tables:
            assert f"**{shown.caption}**" in text
    for link in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (tmp_path / link).exists()
    assert "Multiplicity: " in text


def test_hostile_names_stay_text(tmp_path):
    frame = drawn(seed=2).with_columns(
        method=pl.col("method") + HOSTILE,
        system=pl.col("system") + "\u202e" + HOSTILE,
        family=pl.col("family") + HOSTILE,
    )
    write_audit(audit(frame, QUICK), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "\u202e" not in page
    for path in (tmp_path / "figures").iterdir():
        ET.parse(path)
        assert "<script" not in path.read_text()
    markdown = (tmp_path / "report.md").read_text()
    assert "<script" not in markdown
    assert "\\|\\`x\\`" in markdown


@pytest.mark.slow
def test_many_pairs_are_cut_to_those_of_the_winner_and_the_page_says_so():
    result = audit(drawn(methods=tuple("abcdefgh"), seed=6), QUICK)
    winner = int(result.matched.means.mean(axis=0).argmax())
    shown = shown_pairs(result, 6)
    assert len(shown) == 6
    assert all(winner in (p.a, p.b) for p in shown)
    assert len(figures(result)["forest"]) == 6
    page = render_html(result, sections(result), "t")
    assert "Pairs with the pooled winner, 7 of 28" in page
    assert "The best 6 of 8 methods" in page


def test_one_system_has_a_shorter_report(result, tmp_path):
    write_audit(result, tmp_path)
    (tmp_path / "tables" / "mine.csv").write_text("kept")
    write_audit(audit(table({"s": {"a": [1, 0, 1], "b": [0, 0, 1]}}), QUICK), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "There is one system" in page
    assert 'id="heterogeneity"' not in page
    tables = {p.name for p in (tmp_path / "tables").iterdir()}
    assert "mine.csv" in tables
    assert not tables & {"regret.csv", "scenarios.csv", "scenarios.json"}  # of the report that stood here before
    assert sorted(p.name for p in (tmp_path / "figures").iterdir()) == ["forest-1.svg", "heatmap.svg", "pooled.svg"]


def test_further_analyses_have_tables_of_their_own(tmp_path):
    frame = drawn(seed=4).with_columns(size=pl.col("system").str.slice(1).cast(pl.Float64), protocol=pl.lit("v1"))
    other = frame.filter(pl.col("method") == "a").with_columns(protocol=pl.lit("v2"), score=1 - pl.col("score"))
    settings = AuditSettings(resamples=200, permutations=100, simulations=100, covariates=("size",), without=("s1",))
    write_audit(audit(pl.concat([frame, other]), settings), tmp_path)
    page = (tmp_path / "report.html").read_text()
    for caption in (
        "How much of a gap is preprocessing",
        "Protocols of a method",
        "Structural covariates",
        "without s1",
    ):
        assert caption in page
    assert {"protocols.csv", "protocol_gaps.csv", "covariates.csv", "scenarios.csv"} <= {
        p.name for p in (tmp_path / "tables").iterdir()
    }


@pytest.mark.parametrize(("low", "high"), [(-0.31, 0.29), (0, 1), (-1.5, 1.5), (0, 0.013), (-0.02, 0.9)])
def test_axes_have_a_few_round_ticks(low, high):
    ticks = Axis(low, high, 0, 100).ticks(4)
    assert 2 <= len(ticks) <= 6
    assert all(low - 1e-9 <= t <= high + 1e-9 for t in ticks)
    assert len({round(b - a, 9) for a, b in itertools.pairwise(ticks)}) <= 1
