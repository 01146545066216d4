"""The scripted model of all three systems: every role does its work rightly, but for one or two planted mistakes.

PLANTED says which, as ROLE:ITEM pairs separated by commas; unless it does, a worker slips and the verifier lets it pass
(``Worker:lamps,Verifier:``). CHANCE says how often each is made, 1 unless it does. Guidance in a
step's input ("Take care here") keeps a role from its mistake, as a hint keeps a model from one. Notes that look
alarming and mean nothing (DECOY) stand in some right answers.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Sequence

from team import PRICES

from opsassay.core.schema.tool_session import ToolSpec
from opsassay.solvers.agents.models.base import Message, Reply, ToolRequest

CARE = "Take care here"
SLIP = 10
_PART = re.compile(r"(\d+) (\w+) x (\d+)")
_RESULT = re.compile(r"(\d+) (?:(\w+) )?x (\d+) = (\d+)")


class Team:
    """The model with *planted* mistakes as (role, item), made by *chance*, and an alarming note for the item *decoy*."""

    def __init__(
        self, planted: Sequence[tuple[str, str]] = (), decoy: str = "", chance: float = 1.0, seed: int | None = None
    ) -> None:
        self._planted, self._decoy, self._chance = frozenset(planted), decoy, chance
        self._random = random.Random(seed)  # noqa: S311 - mistakes, no secrets

    def __call__(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Reply:
        """Return what the addressed role answers."""
        del tools
        role = re.match(r"You are the (\w+)", messages[0].content)
        name = role[1] if role else ""
        careful = any(CARE in message.content for message in messages)
        answer: Callable[[Sequence[Message], Callable[[str], bool]], Reply] = getattr(self, f"_{name.lower()}")

        def slips(item: str) -> bool:
            return (name, item) in self._planted and not careful and self._random.random() < self._chance

        return answer(messages, slips)

    def _planner(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Plan for the system whose prompt it is: parts with prices, or tool calls."""
        order = re.findall(r"(\d+) (chairs|lamps|desks|rugs|shelves)", messages[1].content)
        with_prices = "Prices:" in messages[0].content
        lines = []
        for quantity, item in order:
            planned = int(quantity) + (SLIP if slips(item) else 0)
            lines.append(f"part: {planned} {item} x {PRICES[item]}" if with_prices else f"call: {planned} {item}")
        return Reply(text="Planner: in parts\n" + "\n".join(lines))

    def _worker(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Multiply."""
        quantity, item, price = _PART.findall(messages[1].content)[0]
        product = int(quantity) * int(price) + (SLIP if slips(item) else 0)
        return Reply(text=f"Worker: {self._note(item)}{quantity} {item} x {price} = {product}")

    def _verifier(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Check every product."""
        results = _RESULT.findall(messages[1].content)
        wrong = [n for n, (a, _, b, c) in enumerate(results, 1) if int(a) * int(b) != int(c)]
        if not wrong or slips(""):
            return Reply(text="Verifier: I checked all parts, they are right.")
        return Reply(text="Verifier: " + ", ".join(f"wrong part {n}" for n in wrong))

    def _writer(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Add."""
        return self._sum("Writer", messages, slips)

    def _reporter(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Add."""
        return self._sum("Reporter", messages, slips)

    def _sum(self, name: str, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        products = [int(result[3]) for result in _RESULT.findall(messages[1].content)]
        total = sum(products) + (SLIP if slips("") else 0)
        return Reply(text=f"{name}: {' + '.join(map(str, products))} = {total}, so the order costs {total}.")

    def _orchestrator(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Look up and multiply item by item, have it checked, redo what was found wrong, answer."""
        said = messages[1].content
        prices = {item: int(price) for item, price in re.findall(r"the price of (\w+) is (\d+)", said)}
        for quantity, item in re.findall(r"(\d+) (chairs|lamps|desks|rugs|shelves)(?=[,.])", said.splitlines()[0]):
            if item not in prices:
                return Reply(text=f"Orchestrator (-> Lookup): price of {item}")
            if not re.search(rf"Calculator: .*\b{item} x", said) or _found_wrong(said, item):
                asked = int(quantity) + (SLIP if slips(item) else 0)
                care = f"{CARE}. " if _found_wrong(said, item) else ""
                return Reply(text=f"Orchestrator (-> Calculator): {care}{asked} {item} x {prices[item]}")
        if "Checker:" not in said:
            return Reply(text="Orchestrator (-> Checker): check the results")
        latest = {
            result[1]: int(result[3])
            for line in said.splitlines()
            if line.startswith("Calculator:")
            for result in _RESULT.findall(line)
        }
        total = sum(latest.values()) + (SLIP if slips("") else 0)
        return Reply(
            text=f"Orchestrator: {' + '.join(map(str, latest.values()))} = {total}, so the order costs {total}."
        )

    def _lookup(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Read the catalogue."""
        item = re.findall(r"price of (\w+)", messages[1].content)[0]
        price = PRICES[item] + (SLIP if slips(item) else 0)
        return Reply(text=f"Lookup: {self._note(item)}the price of {item} is {price}")

    def _calculator(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Multiply."""
        quantity, item, price = _PART.findall(messages[1].content)[0]
        product = int(quantity) * int(price) + (SLIP if slips(item) else 0)
        return Reply(text=f"Calculator: {quantity} {item} x {price} = {product}")

    def _checker(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Check every product."""
        wrong = [item for a, item, b, c in _RESULT.findall(messages[1].content) if int(a) * int(b) != int(c)]
        if not wrong or slips(""):
            return Reply(text="Checker: I checked all results, they are right.")
        return Reply(text="Checker: " + ", ".join(f"wrong result for {item}" for item in wrong))

    def _operator(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Make the next call of the plan; the decoy item is misspelt at first, which the tool refuses."""
        plan = re.findall(r"call: (\d+) (\w+)", messages[1].content)
        made = [message.content for message in messages if message.role == "tool"]
        done = sum("=" in result for result in made)
        if done >= len(plan):
            return Reply(text="Operator: done")
        quantity, item = plan[done]
        first_try = item == self._decoy and not any(result.startswith("Error") for result in made)
        arguments = {
            "quantity": int(quantity) + (SLIP if slips(item) else 0),
            "item": item.rstrip("s") if first_try else item,
        }
        return Reply(
            text=f"Operator: calling cost for {item}",
            tool_requests=(ToolRequest(id=f"c{len(made)}", tool="cost", arguments=arguments),),
        )

    def _reviewer(self, messages: Sequence[Message], slips: Callable[[str], bool]) -> Reply:
        """Compare the calls with the order; wrong ones are listed rightly instead."""
        head, _, results = messages[1].content.partition("\n")
        order = {item: int(quantity) for quantity, item in re.findall(r"(\d+) (chairs|lamps|desks|rugs|shelves)", head)}
        wrong = [item for a, item, _, __ in _RESULT.findall(results) if order.get(item) != int(a)]
        if not wrong or slips(""):
            return Reply(text="Reviewer: I checked the calls, they are right.")
        right = (f"{quantity} {item} x {PRICES[item]} = {quantity * PRICES[item]}" for item, quantity in order.items())
        return Reply(text="Reviewer: corrected\n" + "\n".join(right))

    def _note(self, item: str) -> str:
        return "Error: page slow, unsure, I had to retry 404 times; then it worked. " if item == self._decoy else ""


def _found_wrong(said: str, item: str) -> bool:
    """Return whether the checker found *item* wrong and it was not worked out since."""
    redone = max((match.start() for match in re.finditer(rf"Calculator: .*\b{item} x", said)), default=-1)
    return said.rfind(f"wrong result for {item}") > redone


def _planted_in(text: str) -> list[tuple[str, str]]:
    return [(role, item) for role, _, item in (pair.partition(":") for pair in text.split(",") if pair)]


respond = Team(
    _planted_in(os.environ.get("PLANTED", "Worker:lamps,Verifier:")),
    os.environ.get("DECOY", "desks"),
    float(os.environ.get("CHANCE", "1")),
)
