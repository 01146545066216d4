"""What CI jobs read of a comparison: JUnit XML by two readers of it, Markdown by a renderer."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import junitparser
import numpy as np
import polars as pl
import pytest
from markdown_it import MarkdownIt

from opsassay.analysis.audit.compare import compare
from opsassay.analysis.audit.compare_report import junit, markdown
from opsassay.analysis.audit.settings import Columns
from opsassay.analysis.audit.table import long_scores
from opsassay.cli import run

from .made import QUICK, drawn, table


def long(system: str, share: float, method: str = "m"):
    dice = np.random.default_rng(0)
    return long_scores(table({system: {method: (dice.random(100) < share).astype(float)}}), Columns(), "t")


@pytest.fixture(params=["shop", "<s> & | *x*\x07\u00e9"])
def system(request):
    return request.param


def compared(system):
    a, b = long(system, 0.9), long(system, 0.2)
    return [compare(a, b, ("m", "m"), QUICK), compare(a, a, ("m", "m"), QUICK)]


def test_junit_fails_for_the_whole_alone(system):
    root = ET.fromstring(junit(compared(system)))
    assert (root.get("tests"), root.get("failures")) == ("4", "1")
    assert [(s.get("tests"), s.get("failures")) for s in root] == [("2", "1"), ("2", "0")]
    assert "worse" in root[0][0].find("failure").get("message")
    assert root[0][1].get("name") == f"m on {system}".replace("\x07", "\ufffd")
    assert root[0][1].find("failure") is None


def test_junitparser_counts_the_same(system, tmp_path):
    (tmp_path / "x.xml").write_text(junit(compared(system)), encoding="utf-8")
    read = junitparser.JUnitXml.fromfile(str(tmp_path / "x.xml"))
    read.update_statistics()  # counted from the cases, not taken from the attributes
    assert (read.tests, read.failures, read.errors, read.skipped) == (4, 1, 0, 0)
    (failed,) = [case for suite in read for case in suite if not case.is_passed]
    assert failed.name == "m"
    assert failed.classname == "opsassay.compare"
    assert isinstance(failed.result[0], junitparser.Failure)
    assert failed.result[0].type == "worse"


def test_markdown_is_one_table_whatever_a_system_is_called(system):
    page = markdown(compared(system), "runs/a|b", "runs/`b`")
    html = MarkdownIt("commonmark").enable("table").render(page)
    assert "<h2>opsassay compare: failed</h2>" in html
    assert html.count("<table>") == 1
    rows = re.findall(r"<tr>(.*?)</tr>", html, flags=re.DOTALL)
    assert [len(re.findall(r"<t[hd]", row)) for row in rows] == [8] * 5
    assert "<strong>worse</strong>" in rows[1]
    assert "<em>" not in html
    if system == "shop":
        assert "<td>shop</td>" in rows[2]
        assert "identical" in rows[3]


def test_a_gate_writes_both_files_and_fails_with_them(tmp_path, capsys):
    frame = drawn(sizes=(120, 120), families=("x", "x"), methods=("m",), seed=1)
    frame.write_csv(tmp_path / "a.csv")
    frame.head(200).with_columns(score=pl.lit(0.0)).write_csv(tmp_path / "b.csv")
    files = {"--junit": tmp_path / "ci" / "x.xml", "--markdown": tmp_path / "ci" / "x.md"}
    options = [str(part) for pair in files.items() for part in pair]
    assert run(["compare", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), *options]) == 1
    capsys.readouterr()
    assert junitparser.JUnitXml.fromfile(str(files["--junit"])).failures == 1
    page = files["--markdown"].read_text()
    assert page.startswith("## opsassay compare: failed\n")
    assert "only A has 40 cases" in page
    assert run(["compare", str(tmp_path / "a.csv"), str(tmp_path / "a.csv"), *options]) == 0
    capsys.readouterr()
    assert junitparser.JUnitXml.fromfile(str(files["--junit"])).failures == 0
    assert files["--markdown"].read_text().startswith("## opsassay compare: passed\n")
