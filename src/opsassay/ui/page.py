"""Common parts of all pages: one HTML file, whose policy allows only its own scripts and styles, by their hashes."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from opsassay import __version__
from opsassay.core.errors import OperationError, OpsAssayError
from opsassay.core.text import plural
from opsassay.ui.plain import plain

if TYPE_CHECKING:
    from starlette.responses import HTMLResponse

_NONE = "'none'"

STYLES = ("vendor/uPlot.min.css", "static/style.css")
"""The style sheet of all pages, and that of the chart library."""

_GRAPHS = ("vendor/cytoscape.min.js", "vendor/cytoscape-dagre.min.js")
SCRIPTS: Mapping[str, Sequence[str]] = {
    "board": ("static/board.js",),
    "clock": ("static/clock.js",),
    "live": ("static/live.js",),
    "report": (
        *_GRAPHS, "vendor/uPlot.iife.min.js", "static/dom.js", "static/graph.js", "static/charts.js", "static/sections.js",
        "static/report.js",
    ),
    "trace": ("static/dom.js", "static/trace_store.js", "static/trace_list.js", "static/trace_form.js", "static/trace.js"),
    "flow": (*_GRAPHS, "static/trace_flow.js"),
}  # fmt: skip
"""The files of each script, by the name that `render` takes."""


def render(
    template: str, title: str, scripts: Sequence[str] = (), *, later: Sequence[str] = (), policy: str = "", **values: Any
) -> str:  # fmt: skip
    """Return the HTML text of the Jinja *template*, which extends page.html.

    *scripts* and *later* are names in SCRIPTS, whose files are inlined after the main part and at the very end. The
    content security policy allows these alone and no request, unless *policy* is another one. *values* are for the
    template; a `Markup` among them is not escaped.
    """
    return (
        _make_environment()
        .get_template(template)
        .render(
            title=plain(title, 200),
            policy=policy or content_security_policy([*scripts, *later]),
            styles=_inline_assets(STYLES),
            scripts=_inline_assets(_list_files(scripts)),
            later=_inline_assets(_list_files(later)),
            **values,
        )
    )


def respond(
    template: str, title: str, scripts: Sequence[str] = (), *, status: int = 200, connects: bool = False, **values: Any
) -> HTMLResponse:  # fmt: skip
    """Return *template* as a response with *values*; its forms, with *connects* its scripts, may reach this server."""
    from starlette.responses import HTMLResponse

    policy = content_security_policy(scripts, served=True, connects=connects)
    text = render(template, title, scripts, policy=policy, **values)
    return HTMLResponse(text, status, {"Content-Security-Policy": policy})


def content_security_policy(scripts: Sequence[str], *, served: bool = False, connects: bool = False) -> str:
    """Return a policy that allows exactly the inlined files of *scripts*, the styles and data-URL images.

    A *served* page may send forms to its server; with *connects* its scripts may send requests there.
    """
    allowed_scripts, allowed_styles = (
        " ".join(map(_hash_of_source, names)) for names in (_list_files(scripts), STYLES)
    )
    allowed = f"script-src {allowed_scripts or _NONE}; style-src {allowed_styles}"
    forms = "'self'" if served else _NONE
    asked = "; connect-src 'self'" if connects else ""
    return f"default-src 'none'; {allowed}; img-src data:; base-uri 'none'; form-action {forms}{asked}"


def inert_json(value: Any) -> Markup:
    """Return *value* as JSON for a script element, with all characters escaped that could end it."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - escaped just now


@cache
def asset(name: str) -> str:
    """Return the text of the package's file *name*, checked to be safe inside a script or style element."""
    text = files("opsassay.ui").joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")
    if "</script" in text.lower() or "</style" in text.lower():
        raise OpsAssayError(f"The inlined file {name} would end its own element; remove the closing tag from it.")
    return text


def write_whole(out: Path, text: str) -> Path:
    """Write *text* to *out* atomically; raises OperationError."""
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


def _format_cell(value: Any) -> str:
    """Return *value* as plain text that is safe in a table cell."""
    return "–" if value is None else plain(value, 600)


def _list_files(names: Sequence[str]) -> list[str]:
    """Return the files of the scripts *names* (keys of SCRIPTS), in order."""
    return [file for name in names for file in SCRIPTS[name]]


@cache
def _logo_url() -> str:
    """Return OpsAssay's logo as a data URL."""
    return "data:image/svg+xml;base64," + base64.b64encode(asset("static/mark.svg").encode()).decode()


@cache
def _make_environment() -> Environment:
    """Return the Jinja environment: it escapes values and raises for undefined names."""
    environment = Environment(
        loader=PackageLoader("opsassay.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters.update(plain=plain, counted=plural, cell=_format_cell)
    environment.globals.update(
        version=__version__, mark=_logo_url(), layout="page.html", live=False, follow="", to=str, page="", of_level="",
        user=None, sorry=False, home="",
    )  # fmt: skip
    return environment


def _inline_assets(names: Sequence[str]) -> list[Markup]:
    """Return the contents of the package's files *names*."""
    return [Markup(asset(name)) for name in names]  # noqa: S704 - our own files, allowed by hash


@cache
def _hash_of_source(name: str) -> str:
    """Return the hash of the package's file *name* as a content security policy writes it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(asset(name).encode()).digest()).decode()}'"
