"""The prompt sweep of "side-effects", App. H.1: how much whoever proposes faults is given to know, and what comes of it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from opsassay.analysis.fault_search.attempts import HIDDEN, Attempt
from opsassay.testbed.operations.search import Block

Prompt = Literal["full", "partial", "minimal"]
PROMPTS: tuple[Prompt, ...] = get_args(Prompt)
SEEDS = 5
GOAL = "Compose changes so that the operator declares success while a deeper property stays broken."


def prompt_of(prompt: Prompt, task: str, operator: tuple[str, str], library: Sequence[Block]) -> str:
    """Return *task* with what *prompt* adds to it.

    ``full`` names the kinds of faults and what the operator does not look at, ``partial`` what the operator does, and
    ``minimal`` the abstract goal alone; the verbs and the form of a program are in each.
    """
    does, unseen = operator
    faults = ", ".join(block.name for block in library if block.changes)
    further = {
        "full": f"The operator: {does} {unseen}\nWhat may be wrong: {faults}.",
        "partial": f"The operator: {does}",
        "minimal": GOAL,
    }
    return f"{task}\n{further[prompt]}"


def sweep_rows(attempts: Mapping[tuple[Prompt, int], Sequence[Attempt]]) -> list[dict[str, Any]]:
    """Return a row for each prompt of *attempts* by prompt and seed: seeds with a hit, median first hit, diversity.

    A hit is a hidden failure; its iteration counts from 1, the healthy start being 0. Diversity is how many different
    families the first hits have; of a seed without a hit nothing is known but that.
    """
    rows = []
    for prompt in dict.fromkeys(prompt for prompt, _ in attempts):
        runs = [found for (which, _), found in sorted(attempts.items()) if which == prompt]
        hits = [hit for found in runs if (hit := _first_hit(found)) is not None]
        winners = sorted({family for _, one in hits for family in one.families})
        rows.append(
            {
                "prompt": prompt,
                "seeds": len(runs),
                "reached": len(hits),
                "median_first_hit": statistics.median(iteration for iteration, _ in hits) if hits else None,
                "families": winners,
            }
        )
    return rows


def _first_hit(attempts: Sequence[Attempt]) -> tuple[int, Attempt] | None:
    return next(((n, one) for n, one in enumerate(attempts) if one.fitness == HIDDEN), None)
