"""What the three systems share: asking the model over plain HTTP, and the orders that they work on."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ORDERS = (
    "4 chairs, 3 lamps, 2 desks",
    "7 lamps, 5 rugs, 6 chairs",
    "2 rugs, 9 shelves, 3 desks",
    "8 shelves, 4 lamps, 5 chairs",
    "6 desks, 2 chairs, 7 rugs",
    "3 shelves, 8 rugs, 4 desks",
)
PRICES = {"chairs": 31, "lamps": 13, "desks": 89, "rugs": 47, "shelves": 23}
CATALOGUE = ", ".join(f"{item} {price}" for item, price in PRICES.items())


@dataclass(frozen=True)
class Model:
    """A model behind an OpenAI-compatible URL."""

    base_url: str
    key: str

    def ask(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """Return the message of the answer."""
        asked: dict[str, Any] = {"model": "team", "messages": messages} | ({"tools": tools} if tools else {})
        request = urllib.request.Request(  # noqa: S310 - the URL is that of the model
            f"{self.base_url}/chat/completions",
            data=json.dumps(asked).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            message: dict[str, Any] = json.load(answer)["choices"][0]["message"]
        return message

    def say(self, role: str, prompt: str, text: str) -> str:
        """Return what the agent in *role* answers to *text*."""
        system = {"role": "system", "content": f"You are the {role}. {prompt}"}
        return str(self.ask([system, {"role": "user", "content": text}])["content"])


def items_of(order: str) -> list[tuple[int, str]]:
    """Return (quantity, item) pairs."""
    return [(int(quantity), item) for quantity, item in (part.split() for part in order.split(", "))]


def total_of(order: str) -> int:
    """Return what the order really costs."""
    return sum(quantity * PRICES[item] for quantity, item in items_of(order))


def main(run: Callable[[Model, str], str]) -> None:
    """Run a system on the order whose number is the first argument, and print its answer."""
    model = Model(os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])
    print(run(model, ORDERS[int(sys.argv[1]) if len(sys.argv) > 1 else 0]))
