"""The self-contained HTML report: one file that opens from disk and asks the network for nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay.errors import AssayError, OperationError
from assay.web.payload import CaseReport
from assay.web.plain import plain
from assay.web.view import page_view

SCRIPTS = (
    "vendor/cytoscape.min.js",
    "vendor/cytoscape-dagre.min.js",
    "vendor/uPlot.iife.min.js",
    "static/dom.js",
    "static/graph.js",
    "static/charts.js",
    "static/sections.js",
    "static/explain.js",
    "static/report.js",
)
STYLES = ("vendor/uPlot.min.css", "static/report.css")


def write_report(cases: Sequence[CaseReport], out: Path, *, title: str) -> Path:
    """Write the report of *cases* to the file *out* and return its path; the same cases give the same bytes.

    The folder of *out* is made if need be; the file appears whole or not at all. Raises OperationError when it cannot
    be written.
    """
    return write_whole(Path(out), render_report(cases, title=title))


def render_report(cases: Sequence[CaseReport], *, title: str) -> str:
    """Return the HTML text of the report of *cases*.

    Scripts and styles are inlined and allowed by their hashes, everything else is forbidden by the page's own
    Content-Security-Policy. Data stands in an inert JSON block in which no markup can end or begin.
    """
    scripts, styles = [asset(name) for name in SCRIPTS], [asset(name) for name in STYLES]
    environment = Environment(
        loader=PackageLoader("assay.web"), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template("report.html").render(
        title=plain(title, 200),
        version=version("assay"),
        policy=content_security_policy(scripts, styles),
        scripts=[Markup(s) for s in scripts],  # noqa: S704 - our own files, allowed by hash
        styles=[Markup(s) for s in styles],  # noqa: S704 - our own files, allowed by hash
        payload=Markup(script_safe_json({"cases": page_view(cases)})),  # noqa: S704 - escaped by script_safe_json
    )


def content_security_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Return a policy that allows exactly these inline *scripts* and *styles* and no request at all."""
    allowed_scripts = " ".join(_source_hash(s) for s in scripts)
    allowed_styles = " ".join(_source_hash(s) for s in styles)
    allowed = f"script-src {allowed_scripts}; style-src {allowed_styles}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def script_safe_json(value: Any) -> str:
    """Return *value* as JSON that may stand inside a script element: nothing in it can close or open markup."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def asset(name: str) -> str:
    """Return the text of a file of the package that is inlined into pages."""
    text = files("assay.web").joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")
    if "</script" in text.lower() or "</style" in text.lower():
        raise AssayError(f"The inlined file {name} would end its own element; remove the closing tag from it.")
    return text


def _source_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_whole(out: Path, text: str) -> Path:
    """Write *text* to *out*, which appears whole or not at all; raises OperationError."""
    temporary: str | None = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(out)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise OperationError(f"The report {out} cannot be written: {error.strerror}; choose another path.") from error
    return out
