"""An orchestrator with fixed roles: it sends each part to Lookup and Calculator, has a Checker look, then answers."""

from __future__ import annotations

import re

from team import CATALOGUE, Model, items_of, main

_ROLES = {
    "Lookup": f"Answer with the price of what is asked. Catalogue: {CATALOGUE}.",
    "Calculator": "Work out what is asked.",
    "Checker": "You have the duty to check the arithmetic of every result.",
}


def run(model: Model, order: str) -> str:
    """Return the orchestrator's answer for *order*."""
    said = [f"Order: {order}. What is the total?"]
    for _ in range(4 * len(items_of(order)) + 6):
        decision = model.say(
            "Orchestrator", "Send work to Lookup, Calculator or Checker, then answer.", "\n".join(said)
        )
        said.append(decision)
        sent = re.match(r"Orchestrator \(-> (\w+)\): (.+)", decision)
        if sent is None:
            return decision
        seen = "\n".join(line for line in said if line.startswith("Calculator:")) if sent[1] == "Checker" else sent[2]
        said.append(model.say(sent[1], _ROLES[sent[1]], seen))
    return "no answer in time"


if __name__ == "__main__":
    main(run)
