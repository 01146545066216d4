"""Small recordings with given samples; `from apis.recordings import ...`."""

from __future__ import annotations

from contextlib import contextmanager
from urllib.parse import urlencode

import polars as pl
import requests

from opsassay.core.schema.incident import Alert, Incident, Window
from opsassay.telemetry.backends.serving import ApiServer, serving_on_port
from opsassay.telemetry.datapack import Datapack, write_datapack
from opsassay.telemetry.schema import MODALITIES, PERIODS, empty

SECOND = 10**9
START_S = 1_767_323_000
MINUTE = 60
AWKWARD = 'we"ird\n\\na{me}'


def recorded(path, series, *, alerts=(), spans=(), logs=(), seconds=3600):
    """Write and open a datapack: *series* are (metric, labels, {second: value}), in the table *metrics_sum*.

    The columns of labels are made by their names. *spans* are rows of traces, *logs* of
    logs. The abnormal window is the second half.
    """
    rows = [
        {"time_s": at, "metric": metric, "value": float(value), "service_name": None, **labels}
        for metric, labels, samples in series
        for at, value in samples.items()
    ]
    tables = {(period, name): empty(name) for period in PERIODS for name in MODALITIES}
    if rows:
        tables["normal", "metrics_sum"] = timed(pl.DataFrame(rows, infer_schema_length=None))
    plain = {"trace_id": "t0", "span_id": "s0", "parent_span_id": "", "span_name": "GET /", "service_name": "front",
             "duration": 10**6, "time_s": 1}  # fmt: skip
    found = [{**plain, **span} for span in spans] or [plain]
    tables["normal", "traces"] = timed(pl.DataFrame(found, infer_schema_length=None))
    tables["abnormal", "traces"] = timed(pl.DataFrame([{**plain, "trace_id": "t1", "time_s": seconds - 1}]))
    if logs:
        tables["normal", "logs"] = timed(pl.DataFrame(list(logs), infer_schema_length=None))
    half, end = ((START_S + at) * SECOND for at in (seconds // 2, seconds))
    incident = Incident(
        id="made", system="made", normal=Window(start_ns=START_S * SECOND, end_ns=half),
        abnormal=Window(start_ns=half, end_ns=end), alerts=tuple(alerts),
    )  # fmt: skip
    write_datapack(path, tables, incident, {})
    return Datapack.open(path)


def timed(frame):
    time = pl.from_epoch(((pl.col("time_s") + START_S) * SECOND).cast(pl.Int64), time_unit="ns")
    return frame.select(time.dt.replace_time_zone("UTC").alias("time"), pl.exclude("time_s"))


def every(step_s, *values):
    """Return samples *step_s* apart from second 0."""
    return {at * step_s: value for at, value in enumerate(values)}


def alert(**knobs):
    given = {"time_ns": (START_S + 1800) * SECOND + 123_456_789, "service": "front", "signal": "error_rate", "value": 0.5,
             "threshold": 0.1, "message": "half of the requests fail"}  # fmt: skip
    return Alert(**{**given, **knobs})


@contextmanager
def served(view):
    with serving_on_port(ApiServer.over(view)) as url:
        yield url


def got(url, path, expected=200, *, text=False, **parameters):
    """Return the JSON, or *text*, that GET *path* answers, whose status has to be *expected*."""
    answer = requests.get(f"{url}{path}?{urlencode(parameters, doseq=True)}", timeout=60)
    assert answer.status_code == expected, answer.text[:500]
    return answer.text if text else answer.json()
