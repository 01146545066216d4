"""The smallest agent: one question to whatever model OPENAI_BASE_URL and OPENAI_API_KEY say, over plain HTTP."""

from __future__ import annotations

import json
import os
import urllib.request


def main() -> None:
    """Ask, and print the answer."""
    question = {
        "role": "user",
        "content": "Which service failed first? Logs are in /home/ada/shop/logs, ask ada@example.org.",
    }
    asked = {"model": "any", "messages": [{"role": "system", "content": "You are the Analyst."}, question]}
    request = urllib.request.Request(  # noqa: S310 - the URL is the proxy's
        f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
        data=json.dumps(asked).encode(),
        headers={"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:  # noqa: S310
        print(json.load(answer)["choices"][0]["message"]["content"])


if __name__ == "__main__":
    main()
