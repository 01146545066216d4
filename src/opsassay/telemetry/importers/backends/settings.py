"""incident.yaml: where a past incident is, and when it was."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.backends import TeamBackends
from opsassay.core.schema.faults import CATALOGUE, FaultKind
from opsassay.core.schema.incident import Window
from opsassay.core.untrusted import read_plain

_MOST_TEXT_BYTES = 2**20


def _parse_window_text(value: Any) -> Any:
    """Return the window that a text describes, anything else as it is."""
    return parse_window(value) if isinstance(value, str) else value


_Span = Annotated[Window, BeforeValidator(_parse_window_text)]


class PastIncident(TeamBackends):
    """incident.yaml."""

    system: str = Field(default="system", description="what the system is called in the datapack")
    normal: _Span | None = Field(default=None, description="FROM..TO, ISO 8601, before the incident")
    abnormal: _Span | None = Field(default=None, description="FROM..TO, ISO 8601, while it lasts")
    root: str | None = Field(default=None, description="SERVICE or SERVICE:KIND, as the team states it; not verified")
    postmortem: Path | None = Field(default=None, description="a text that is kept with the truth")

    def windows(self) -> dict[str, Window]:
        """Return both windows by period; raises UserError when one is missing or they overlap."""
        if self.normal is None or self.abnormal is None:
            missing = "normal" if self.normal is None else "abnormal"
            raise UserError(f"The {missing} window is missing; give --{missing} FROM..TO.")
        if self.normal.start_ns < self.abnormal.end_ns and self.abnormal.start_ns < self.normal.end_ns:
            raise UserError("The windows --normal and --abnormal overlap; let one end where the other begins.")
        return {"normal": self.normal, "abnormal": self.abnormal}

    def require(self) -> None:
        """Raise UserError when these settings leave nothing to read."""
        super().require()
        self.windows()
        self.postmortem_text()
        if self.root is not None:
            read_root(self.root)

    def postmortem_text(self) -> str | None:
        """Return the text of the postmortem, None without one; raises UserError for a file that cannot be read."""
        if self.postmortem is None:
            return None
        try:
            return read_plain(self.postmortem, _MOST_TEXT_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{self.postmortem} cannot be read as a text in UTF-8; check the path.") from error


def parse_window(text: str) -> Window:
    """Parse FROM..TO, two times in ISO 8601 (UTC without a zone); raises ValueError."""
    first, dots, last = text.partition("..")
    try:
        start_ns, end_ns = time_ns(first), time_ns(last)
    except ValueError:
        dots = ""
    if not dots:
        raise ValueError(f"{text!r} is no window; write FROM..TO, as in 2026-03-01T10:00:00Z..2026-03-01T10:30:00Z")
    if end_ns <= start_ns:
        raise ValueError(f"{text!r} ends before it begins")
    if end_ns - start_ns < 10**9:
        raise ValueError(f"{text!r} is shorter than a second")
    return Window(start_ns=start_ns, end_ns=end_ns)


def read_root(text: str) -> tuple[str, str | None]:
    """Parse *text*, SERVICE or SERVICE:KIND; return service and fault type, None without a KIND.

    KIND is an observable kind or a type of the catalogue. Raises UserError.
    """
    service, colon, kind = text.rpartition(":")
    if not colon and text:
        return text, None
    if not service or not kind:
        raise UserError(f"--root {text}: expected SERVICE or SERVICE:KIND, as in orders:http_slow.")
    if kind in CATALOGUE:
        return service, kind
    for row in CATALOGUE.values():
        if row.kind == kind:
            return service, row.name
    raise NotFoundError("fault kind", kind, [*(one.value for one in FaultKind), *CATALOGUE])


def time_ns(text: str) -> int:
    """Parse the ISO time *text* and return ns since 1970, with all nine decimals; raises ValueError."""
    moment = datetime.fromisoformat(text.strip())
    whole = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    fraction = re.search(r"[.,](\d{1,9})", text)
    return int(whole.replace(microsecond=0).timestamp()) * 10**9 + (int(fraction[1].ljust(9, "0")) if fraction else 0)
