"""A single agent with tools, whose components are its phases: plan, operate tools, review, report."""

from __future__ import annotations

import json
from typing import Any

from team import PRICES, Model, items_of, main

_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "cost",
            "description": "Quantity times price of one item.",
            "parameters": {
                "type": "object",
                "properties": {"quantity": {"type": "integer"}, "item": {"type": "string"}},
                "required": ["quantity", "item"],
            },
        },
    }
]


def run(model: Model, order: str) -> str:
    """Return the report for *order*."""
    plan = model.say("Planner", "List the tool calls to make, one a line.", f"Order: {order}. What is the total?")
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are the Operator. Make the next planned call, or say done."},
        {"role": "user", "content": plan},
    ]
    for _ in range(2 * len(items_of(order)) + 2):
        answer = model.ask(messages, _TOOLS)
        messages.append({key: answer[key] for key in ("role", "content", "tool_calls") if answer.get(key) is not None})
        if not answer.get("tool_calls"):
            break
        for call in answer["tool_calls"]:
            result = cost(**json.loads(call["function"]["arguments"]))
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    done = "\n".join(m["content"] for m in messages if m["role"] == "tool" and "=" in m["content"])
    review = model.say(
        "Reviewer", "You have the duty to check that the calls made are those of the order.", f"Order: {order}\n{done}"
    )
    corrected = "\n".join(line for line in review.splitlines() if "=" in line) or done
    return model.say("Reporter", "Add the results and write one sentence.", corrected)


def cost(quantity: int, item: str) -> str:
    """Return the tool's result; an unknown item is an error."""
    if item not in PRICES:
        return f"Error: there is no {item}; did you mean {item}s?"
    return f"{quantity} {item} x {PRICES[item]} = {quantity * PRICES[item]}"


if __name__ == "__main__":
    main(run)
