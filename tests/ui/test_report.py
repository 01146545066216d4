"""The file on disk: whole, inert, the same bytes each time; and the vendored code it carries."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from opsassay.core.errors import OperationError
from opsassay.ui.page import inert_json
from opsassay.ui.report import render_report, write_report

from . import cases


class Page(HTMLParser):
    """Collects what a browser would run, load or style."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.styles, self.addresses, self.tags, self.policy = [], [], [], [], ""
        self._inside = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        self.addresses += [v for k, v in attrs if k in {"src", "href", "action", "data"}]
        self._inside = (tag, attributes.get("type"))
        if attributes.get("http-equiv") == "Content-Security-Policy":
            self.policy = attributes["content"]

    def handle_data(self, data):
        if self._inside == ("script", None):
            self.scripts.append(data)
        elif self._inside and self._inside[0] == "style":
            self.styles.append(data)

    def handle_endtag(self, _tag):
        self._inside = None


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return render_report([cases.hostile_case(tmp_path_factory.mktemp("pack"))], title=cases.HOSTILE)


def test_the_file_is_written_whole_and_twice_the_same(tmp_path):
    case = cases.full_case(tmp_path / "pack")
    out = write_report([case], tmp_path / "deep" / "report.html", title="shop")
    first = out.read_bytes()
    assert write_report([case], out, title="shop") == out
    assert out.read_bytes() == first
    assert [p.name for p in out.parent.iterdir()] == ["report.html"]


def test_a_report_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "report.html").mkdir()
    with pytest.raises(OperationError, match=r"report\.html cannot be written"):
        write_report([], tmp_path / "report.html", title="x")
    assert [p.name for p in tmp_path.iterdir()] == ["report.html"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(OperationError, match="choose another path"):
        write_report([], tmp_path / "file" / "report.html", title="x")


def test_the_policy_allows_exactly_the_inlined_code_and_nothing_else(hostile):
    page = Page(hostile)

    def hashes(texts):
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(t.encode()).digest()).decode()}'" for t in texts)

    assert page.policy == (
        f"default-src 'none'; script-src {hashes(page.scripts)}; style-src {hashes(page.styles)};"
        " img-src data:; base-uri 'none'; form-action 'none'"
    )
    assert [address for address in page.addresses if not address.startswith("data:image/")] == ["#main"]


def test_hostile_data_adds_no_element_to_the_page(hostile, tmp_path):
    harmless = Page(render_report([cases.full_case(tmp_path)], title="shop"))
    assert Page(hostile).tags == harmless.tags


def test_the_payload_survives_its_escaping():
    value = {"a": "</script><!-- & \u2028\u2029 <script>", "b": [1, None, 2.5]}
    text = inert_json(value)
    assert json.loads(text) == value
    assert not re.search("[<>&\u2028\u2029]", text)


def test_vendored_files_are_the_ones_that_are_listed_with_their_licences():
    vendor = files("opsassay.ui").joinpath("vendor")
    listed = re.findall(
        r"^\| (\S+) \|.*\| MIT, (licences/\S+) \| ([0-9a-f]{64}) \|$", vendor.joinpath("VENDORED.md").read_text(), re.M
    )
    assert {name for name, _, _ in listed} == {p.name for p in vendor.iterdir() if p.name.endswith((".js", ".css"))}
    for name, licence, digest in listed:
        assert hashlib.sha256(vendor.joinpath(name).read_bytes()).hexdigest() == digest
        assert "without restriction" in vendor.joinpath(licence).read_text()
