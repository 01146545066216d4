"""What all pages have in common: one file, its scripts and styles allowed by their hashes, everything else forbidden."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from opsassay import __version__
from opsassay.core.errors import OperationError, OpsAssayError
from opsassay.core.text import counted
from opsassay.ui.plain import plain


def render(
    template: str,
    title: str,
    *,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    later: Sequence[str] = (),
    policy: str | None = None,
    **values: Any,
) -> str:
    """Return the HTML text of *template*, which extends page.html.

    *styles*, *scripts* and *later* name files of the package, which are inlined: scripts after the main part, *later* at
    the very end. The page allows exactly these and no request at all, unless there is another *policy*; *values* are the
    template's own, a `Markup` among them has been made safe.
    """
    return (
        _environment()
        .get_template(template)
        .render(
            title=plain(title, 200),
            version=__version__,
            mark=_mark(),
            policy=policy or content_security_policy([*scripts, *later], styles),
            styles=_inlined(styles),
            scripts=_inlined(scripts),
            later=_inlined(later),
            **values,
        )
    )


def content_security_policy(scripts: Sequence[str], styles: Sequence[str], *, forms: str = "'none'") -> str:
    """Return a policy that allows exactly the inlined files *scripts* and *styles* and no request at all.

    Images stand in the page itself; *forms* says where forms may be sent to.
    """
    allowed_scripts, allowed_styles = (" ".join(map(_source_hash, names)) or "'none'" for names in (scripts, styles))
    allowed = f"script-src {allowed_scripts}; style-src {allowed_styles}"
    return f"default-src 'none'; {allowed}; img-src data:; base-uri 'none'; form-action {forms}"


def inert_json(value: Any) -> Markup:
    """Return *value* as JSON that may stand inside a script element: nothing in it can close or open markup."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 - escaped just now


@cache
def asset(name: str) -> str:
    """Return the text of a file of the package that is inlined into pages."""
    text = files("opsassay.ui").joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")
    if "</script" in text.lower() or "</style" in text.lower():
        raise OpsAssayError(f"The inlined file {name} would end its own element; remove the closing tag from it.")
    return text


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


@cache
def _mark() -> str:
    """Return OpsAssay's mark as an address that asks nobody: a scale's beam over a line that dips and comes back."""
    return "data:image/svg+xml;base64," + base64.b64encode(asset("static/mark.svg").encode()).decode()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("opsassay.ui"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        auto_reload=False,
    )
    environment.filters["plain"] = plain
    environment.filters["counted"] = counted
    return environment


def _inlined(names: Sequence[str]) -> list[Markup]:
    return [Markup(asset(name)) for name in names]  # noqa: S704 - our own files, allowed by hash


@cache
def _source_hash(name: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(asset(name).encode()).digest()).decode()}'"
