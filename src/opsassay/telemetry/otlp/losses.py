"""What of export requests has no place in the tables of a datapack: counted, so that no conversion loses it in silence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from opsassay.core.text import plural
from opsassay.telemetry.otlp.columns import attribute_keys
from opsassay.telemetry.otlp.metrics import MODALITIES, NO_RECORDED_VALUE
from opsassay.telemetry.otlp.traces import ATTRIBUTE_SOURCES, keeps_links

_NAMES_SHOWN = 5
_OF_SPANS = frozenset(key for keys in ATTRIBUTE_SOURCES.values() for key in keys)


class Losses:
    """Counts what `add` is given and no column takes; `notes` says it, a sentence for each kind."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._attributes: dict[str, set[str]] = {}
        self._backward = 0

    def add(self, signal: str, request: Any) -> None:
        """Count the parts of an export *request* of *signal* (traces, logs, metrics) that the tables cannot hold."""
        for group in getattr(request, f"resource_{signal.replace('traces', 'spans')}"):
            self._note_attributes(signal, group.resource, attribute_keys(signal))
            for scope in getattr(group, f"scope_{signal.replace('traces', 'spans')}"):
                if signal == "metrics":
                    self._add_metrics(scope.metrics)
                elif signal == "logs":
                    for record in scope.log_records:
                        self._note_attributes(signal, record, ())
                else:
                    self._add_spans(scope.spans)

    def notes(self) -> Iterator[str]:
        """Yield a sentence with the count for each kind of content that tables cannot hold."""
        if self._backward:
            yield f"{plural(self._backward, 'span')} without an end after the start: the duration is 0"
        for what, count in sorted(self._counts.items()):
            yield f"{plural(count, what)} not kept: a datapack has no place for such"
        for signal, names in sorted(self._attributes.items()):
            some = ", ".join(sorted(names)[:_NAMES_SHOWN])
            yield f"{plural(len(names), 'attribute')} of {signal} not kept: there is no column for {some}"

    def _add_spans(self, spans: Iterable[Any]) -> None:
        """Count the parts of *spans* that tables cannot hold: attributes, events, trace state, links."""
        for span in spans:
            self._note_attributes("traces", span, _OF_SPANS)
            self._counts["span event"] += len(span.events)
            self._counts["trace state"] += bool(span.trace_state)
            self._backward += 0 < span.start_time_unix_nano > span.end_time_unix_nano
            self._counts["span link"] += 0 if keeps_links(span) else len(span.links)
        self._counts = +self._counts

    def _add_metrics(self, metrics: Iterable[Any]) -> None:
        """Count what the tables cannot hold of *metrics*: attributes, exemplars, quantiles, buckets."""
        for metric in metrics:
            if not (form := metric.WhichOneof("data")):
                continue
            known = attribute_keys(MODALITIES[form])
            for point in getattr(metric, form).data_points:
                self._note_attributes("metrics", point, known)
                lacks = form in ("gauge", "sum") and point.WhichOneof("value") is None
                self._counts["point without a value"] += lacks or bool(point.flags & NO_RECORDED_VALUE)
                self._counts["exemplar"] += len(point.exemplars) if form != "summary" else 0
                self._counts["summary quantile"] += len(point.quantile_values) if form == "summary" else 0
                self._counts["histogram bucket"] += _count_buckets(form, point)
        self._counts = +self._counts

    def _note_attributes(self, signal: str, holder: Any, known_keys: Iterable[str]) -> None:
        """Remember the attribute keys of *holder*, an item of *signal*, that are not in *known_keys*."""
        if unknown := {pair.key for pair in holder.attributes}.difference(known_keys):
            self._attributes.setdefault(signal, set()).update(unknown)


def _count_buckets(form: str, point: Any) -> int:
    """Return how many buckets the histogram *point* of the kind *form* has, since tables only keep its total."""
    if form == "histogram":
        return len(point.bucket_counts) if len(point.bucket_counts) > 1 else 0
    if form == "exponential_histogram":
        return len(point.positive.bucket_counts) + len(point.negative.bucket_counts)
    return 0
