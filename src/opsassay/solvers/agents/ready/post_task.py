"""Post a task to an agent by HTTP, poll for its answer, and print it; needs the standard library only.

``python post_task.py URL PROMPT_FILE`` posts ``{"task": TEXT}``. After a reply 202 it asks the URL in Location again, at
the pace of Retry-After, until the status is another.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

MOST_BYTES = 16 * 2**20
PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0


def main() -> None:
    """Send the prompt file (second argument) to the agent at the URL (first argument), and print its answer."""
    url, prompt = sys.argv[1], Path(sys.argv[2]).read_text(encoding="utf-8")
    request = urllib.request.Request(  # noqa: S310
        url, data=json.dumps({"task": prompt}).encode(), headers={"Content-Type": "application/json"}
    )
    try:
        print(answer_in(_ask_until_answered(request)))
    except (OSError, ValueError) as error:
        sys.exit(f"The agent at {url} did not answer: {error}")


def answer_in(body: bytes) -> str:
    """Return the member ``answer`` of the JSON *body*, else the whole body as text."""
    text = body.decode("utf-8", "replace")
    try:
        read = json.loads(text)
    except ValueError:
        return text
    if not isinstance(read, dict) or "answer" not in read:
        return text
    answer = read["answer"]
    return answer if isinstance(answer, str) else json.dumps(answer)


def _ask_until_answered(request: urllib.request.Request) -> bytes:
    """Send *request*, poll at Location after each 202, and return the response's body, at most `MOST_BYTES`."""
    while True:
        with urllib.request.urlopen(request) as reply:  # noqa: S310 - the user's own URL
            if reply.status != 202:
                return bytes(reply.read(MOST_BYTES))
            place = _poll_address(request.full_url, reply.headers.get("Location"))
            pause_s = _pause_s(reply.headers.get("Retry-After"))
        time.sleep(pause_s)
        request = urllib.request.Request(place)  # noqa: S310


def _poll_address(url: str, location: str | None) -> str:
    """Return the URL in the header *location*, *url* for None; raises ValueError if it is on another server."""
    if not location:
        return url
    place = urljoin(url, location)
    if urlsplit(place)[:2] != urlsplit(url)[:2]:
        raise ValueError(f"it sends on to {place}, which is another server")
    return place


def _pause_s(text: Any) -> float:
    """Return the seconds in a Retry-After header, from 0.05 to `LONGEST_PAUSE_S`; `PAUSE_S` when it is no number."""
    try:
        return min(max(float(text), 0.05), LONGEST_PAUSE_S)
    except (TypeError, ValueError):
        return PAUSE_S


if __name__ == "__main__":
    main()
