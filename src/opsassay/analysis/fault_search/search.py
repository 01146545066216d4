"""Random search over building blocks ("side-effects", App. H.2), and the seeded mutation that evolution may use."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from opsassay.testbed.operations.search import CHANGES_LIMIT, Block, Composition

MOST_BLOCKS = 3
DRAWS = 20
"""How often is drawn for each candidate that is to be unlike all others."""


class FaultCandidate(NamedTuple):
    """A composition and the families of the blocks that it was made of."""

    composition: Composition
    families: tuple[str, ...]


def compose(blocks: Sequence[Block]) -> FaultCandidate:
    """Return the candidate with the changes of *blocks* in order; changes beyond `CHANGES_LIMIT` are dropped."""
    changes = tuple(change for block in blocks for change in block.changes)[:CHANGES_LIMIT]
    families = tuple(block.family for block in blocks if block.changes) or ("none",)
    return FaultCandidate(Composition(changes=changes), families)


def random_candidates(library: Sequence[Block], count: int, seed: int) -> Iterator[FaultCandidate]:
    """Yield *count* candidates of one to three blocks of *library*, drawn uniformly by *seed* with repeats."""
    chance = random.Random(seed)  # noqa: S311 - a repeatable search, not a secret
    for _ in range(count):
        yield compose(chance.choices(library, k=chance.randint(1, MOST_BLOCKS)))


def distinct_candidates(library: Sequence[Block], count: int, seed: int) -> Iterator[FaultCandidate]:
    """Yield the first *count* candidates with different changes that *seed* draws from *library*."""
    seen = set[str]()
    for one in random_candidates(library, DRAWS * count, seed):
        if len(seen) < count and (content := one.composition.digest()) not in seen:
            seen.add(content)
            yield one


def mutated(parent: Composition, library: Sequence[Block], chance: random.Random) -> Composition:
    """Return *parent* with one change added, removed or replaced by a block of *library*, drawn by *chance*."""
    changes = list(parent.changes)
    kind = chance.choice(("add", "remove", "replace")) if changes else "add"
    if kind in ("remove", "replace"):
        changes.pop(chance.randrange(len(changes)))
    if kind in ("add", "replace"):
        at = chance.randint(0, len(changes))
        changes[at:at] = chance.choice(library).changes
    return Composition(changes=tuple(changes[:CHANGES_LIMIT]))


def families_of(composition: Composition, library: Sequence[Block]) -> tuple[str, ...]:
    """Return the families (kinds of fault) of the *library* blocks in *composition*; "other" for further changes."""
    known = [block for block in library if block.changes and all(c in composition.changes for c in block.changes)]
    covered = [change for block in known for change in block.changes]
    rest = [change for change in composition.changes if change not in covered]
    return tuple(block.family for block in known) + (("other",) if rest else ()) or ("none",)
