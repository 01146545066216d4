"""Hands the prompt to the model of OPENAI_BASE_URL and writes its answer down; standard library only."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path


def main(prompt: str, answer: str) -> None:
    """Ask once."""
    message = {"role": "user", "content": Path(prompt).read_text(encoding="utf-8")}
    request = urllib.request.Request(  # noqa: S310 - the URL is the runner's
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        data=json.dumps({"model": os.environ["OPENAI_MODEL"], "messages": [message]}).encode(),
        headers={"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as reply:  # noqa: S310 - the runner ends what takes too long
        said = json.load(reply)["choices"][0]["message"]["content"]
    Path(answer).write_text(said, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
