"""Requests of OTLP/HTTP sent to a receiver of somebody else's."""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from urllib.parse import unquote, urlsplit

from opsassay.core.errors import OperationError, UserError

HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
"""``name=value,name=value``: headers of every request, of authorization for instance."""
PUSH_TIMEOUT_S = 20.0


def post(url: str, signal: str, body: bytes, *, gzipped: bool = False) -> None:
    """Send *body*, an export request of *signal*, to the receiver at *url*.

    Raises UserError for a refusal and for what is no URL, OperationError when nobody answers.
    """
    place = f"{require_url(url)}/v1/{signal}"
    headers = {"Content-Type": "application/x-protobuf", **_headers()}
    if gzipped:
        headers["Content-Encoding"] = "gzip"
    try:
        request = urllib.request.Request(place, body, headers)  # noqa: S310 - whose user names it
        with urllib.request.urlopen(request, timeout=PUSH_TIMEOUT_S):  # noqa: S310
            return
    except urllib.error.HTTPError as error:
        if error.code in {429, 502, 503, 504}:
            raise OperationError(f"{place} is too busy to take telemetry ({error.code}); try again later.") from error
        raise UserError(
            f"{place} answered {error.code}: {error.reason}; check the URL and {HEADERS_VARIABLE}."
        ) from error
    except OSError as error:
        raise OperationError(
            f"Nobody takes telemetry at {place} ({error}); start the receiver or check the URL."
        ) from error


def require_url(url: str) -> str:
    """Return *url* without its last slash; raises UserError for what is no URL of an OTLP/HTTP receiver."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise UserError(f"{url} is no URL of an OTLP/HTTP receiver; give one such as http://localhost:4318.")
    return url.rstrip("/")


def _headers() -> dict[str, str]:
    pairs = (pair.partition("=") for pair in os.environ.get(HEADERS_VARIABLE, "").split(",") if "=" in pair)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}
