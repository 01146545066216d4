"""Texts of the pages: explanations of labels, and the format of a metric's value."""

from __future__ import annotations

import re

from opsassay.core.schema.incident import Label
from opsassay.core.schema.metric_words import word
from opsassay.core.text import number_text
from opsassay.scoring.figures import percent

BASELINES = frozenset({"constant", "chance", "random", "loudest", "gap", "row_count_gap", "row-count-gap"})
"""Solvers without skill, which tables show for comparison."""

_PREDICATE = re.compile(r"\bV_[a-z_]+\b")


SORTED_BY = ("any_service", "exact_match", "f1", "path_reachability", "edge_f1")
"""Metrics by which answers are sorted, in this order: the first one that differs decides."""

LABELS: dict[Label, str] = {
    Label.ATTRIBUTED: "attributed: the cascade was verified from the root to the alarms",
    Label.NO_EFFECT: "no effect: the fault did not bite at this load",
    Label.ABSORBED: "absorbed: the fault bit, but no alarm followed from it",
    Label.UNEXPLAINED: "unexplained: alarms fired that no verified path explains",
    Label.DRIFTED: "drifted: the system changed for other reasons",
}


def in_words(text: str) -> str:
    """Return *text* with each metric's name, such as V_temporal, replaced by its title."""
    return _PREDICATE.sub(lambda found: f"\u201c{word(found[0].lower()).title.lower()}\u201d", text)


def format_value(value: float, unit: str) -> str:
    """Return *value* as text: a share in percent, anything else with up to four digits and its *unit*."""
    if unit == "share":
        return str(percent(value))
    number = number_text(value, 4)
    return f"{number} {unit}".rstrip()
