"""A planner and workers: plan, one worker per part, a verifier that sends wrong parts back, a writer."""

from __future__ import annotations

import re

from team import CATALOGUE, Model, main


def run(model: Model, order: str) -> str:
    """Return the writer's answer for *order*."""
    plan = model.say(
        "Planner", f"Split the order into parts. Prices: {CATALOGUE}.", f"Order: {order}. What is the total?"
    )
    parts = re.findall(r"part: (.+)", plan)
    results = [model.say("Worker", "Work out your part and nothing else.", f"Your part: {part}") for part in parts]
    verdict = model.say("Verifier", "You have the duty to check the arithmetic of every part.", "\n".join(results))
    for number in re.findall(r"wrong part (\d+)", verdict):
        at = int(number) - 1
        results[at] = model.say(
            "Worker", "Work out your part and nothing else.", f"Take care here. Your part: {parts[at]}"
        )
    return model.say("Writer", "Add the results and write one sentence.", "\n".join(results))


if __name__ == "__main__":
    main(run)
