"""The title, unit and description of every metric, for all tables and pages."""

from __future__ import annotations

from opsassay.core.schema.base import Noun
from opsassay.core.schema.files import packaged_yaml


class MetricWord(Noun):
    """A metric's column title, its *unit* ("share" is shown in percent) and a sentence *about* it."""

    title: str
    unit: str
    about: str


def _read_metric_words() -> dict[str, MetricWord]:
    """Return metric name to its title, unit and description, read from metric_words.yaml."""
    rows = packaged_yaml(__package__, "metric_words.yaml")
    return {metric: MetricWord(title=title, unit=unit, about=about) for metric, (title, unit, about) in rows.items()}


METRICS = _read_metric_words()
"""The metrics of `metric_words.yaml` in the order of their columns."""


def is_share(metric: str, unit: str = "share") -> bool:
    """Return whether *metric* is a share in [0, 1]; *unit* is the unit to assume for a metric that is not in the table."""
    return (METRICS[metric].unit if metric in METRICS else unit) == "share"


def word(metric: str) -> MetricWord:
    """Return title, unit and description of *metric* as pages show them; for an unknown metric its own name as title."""
    return METRICS.get(metric) or MetricWord(title=metric, unit="", about="")
