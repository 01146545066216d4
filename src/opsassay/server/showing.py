"""How the pages of the platform are answered: one policy for all, and a sentence where there is nothing to show."""

from __future__ import annotations

from typing import Any

from sqlalchemy.exc import DataError
from starlette.responses import HTMLResponse

from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
from opsassay.server.access import ForbiddenError, User
from opsassay.ui.page import content_security_policy, render
from opsassay.ui.plain import plain

STYLES = ("static/report.css", "static/board.css", "static/platform.css")
SCRIPTS = ("static/platform.js",)


def shown(template: str, title: str, user: User | None, **values: Any) -> HTMLResponse:
    """Return the page of *template* for *user*; it may send forms to this server and ask it, and nobody else."""
    policy = content_security_policy(SCRIPTS, STYLES, forms="'self'") + "; connect-src 'self'"
    who = {"name": plain(user.name, 80), "admin": user.role == "admin"} if user else None
    text = render(template, title, styles=STYLES, later=SCRIPTS, policy=policy, user=who, **values)
    return HTMLResponse(text, headers={"Content-Security-Policy": policy})


def sorry(error: OpsAssayError | DataError) -> HTMLResponse:
    """Return the page that says why there is none."""
    if isinstance(error, DataError):
        error = UserError("A text holds a character that cannot be kept, such as NUL; leave it out.")
    answer = shown("platform_sorry.html", "It cannot be done", None, why=plain(str(error), 1000))
    answer.status_code = 403 if isinstance(error, ForbiddenError) else 404 if isinstance(error, NotFoundError) else 400
    return answer
