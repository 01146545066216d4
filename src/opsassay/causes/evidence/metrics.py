"""Resource metrics of a service against its baseline and against everyone else's."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opsassay.causes.evidence.detectors import Severity, over_utilised, z_severity


@dataclass(frozen=True)
class Family:
    """Metrics that mean the same: *pattern* matches their names; a rise counts from *least* and *ratio* times on.

    *utilisation* matches the share of the limit, which counts when it goes above 80 percent (D.5).
    """

    pattern: str
    utilisation: str
    least: float
    ratio: float
    unit: str


FAMILIES = {
    "cpu": Family(r"^(container|k8s\.pod)\.cpu[._]usage", r"cpu[._]limit_utilization$", 0.1, 2.0, "cores"),
    "memory": Family(
        r"^(container|k8s\.pod)\.memory[._]working_set", r"memory[._]limit_utilization$", 32 * 2**20, 1.2, "bytes"
    ),
}
_HOST_CPU = r"^k8s\.node\.cpu[._]usage"
_COUNTED = {"restart": r"restarts?$", "unready": r"pod\.ready$"}

DOMINANCE = 0.5
"""A rise below this share of the largest one in the system is somebody else's."""


@dataclass(frozen=True)
class Raised:
    """Whether a resource rose, with the sentence that says by how much."""

    passed: bool
    sentence: str


def raised(metrics: pl.DataFrame, service: str, family: str, growth: float = 1.0) -> Raised:
    """Return whether *family* (cpu, memory, restart, unready) of *service* rose; *metrics* has a column `period`.

    *growth* is how many times its usual traffic the service has: so many times its usual processor use is no rise.
    """
    if family in _COUNTED:
        return _counted(metrics, service, family)
    spec = FAMILIES[family]
    rows = metrics.filter(pl.col("metric").str.contains(spec.pattern) & pl.col("value").is_finite())
    pod = pl.coalesce("attr.k8s.pod.name", "service_name")
    series = (
        rows.group_by("service_name", pod.alias("pod"), "metric")
        .agg(
            before=pl.col("value").filter(pl.col("period") == "normal").mean(),
            deviation=pl.col("value").filter(pl.col("period") == "normal").std(),
            now=pl.col("value").filter(pl.col("period") == "abnormal").quantile(0.75),
        )
        .drop_nulls(["before", "now"])
        .with_columns(rise=pl.col("now") - pl.col("before"))
        .sort("rise", "pod", descending=[True, False])
    )
    mine = series.filter(pl.col("service_name") == service).head(1)
    if not mine.height:
        return Raised(passed=False, sentence=f"no {family} metric of {service}")
    row = mine.row(0, named=True)
    severity = int(z_severity(row["now"], row["before"], row["deviation"] or 0.0))
    usual = row["before"] * growth
    enough = row["now"] - usual >= spec.least and row["now"] >= spec.ratio * usual
    enough = enough or (growth < spec.ratio and _saturated(metrics, row["pod"], spec.utilisation))
    first = row["rise"] >= DOMINANCE * series.item(0, "rise")
    words = f"{family} of {service} went from {row['before']:.3g} to {row['now']:.3g} {spec.unit}"
    return Raised(passed=enough and first and severity == Severity.CRITICAL, sentence=words)


def host_raised(metrics: pl.DataFrame, host: str) -> Raised:
    """Return whether the processor use of *host* rose, among the largest of all hosts."""
    spec = FAMILIES["cpu"]
    rows = metrics.filter(
        pl.col("metric").str.contains(_HOST_CPU)
        & (pl.col("attr.k8s.pod.name").fill_null("") == "")
        & pl.col("value").is_finite()
    )
    value = pl.col("value")
    series = (
        rows.group_by(host="attr.k8s.node.name")
        .agg(
            before=value.filter(pl.col("period") == "normal").mean(),
            deviation=value.filter(pl.col("period") == "normal").std(),
            now=value.filter(pl.col("period") == "abnormal").quantile(0.75),
        )
        .drop_nulls(["host", "before", "now"])
        .with_columns(rise=pl.col("now") - pl.col("before"))
        .sort("rise", "host", descending=[True, False])
    )
    mine = series.filter(pl.col("host") == host)
    if not mine.height:
        return Raised(passed=False, sentence=f"no processor metric of {host}")
    row = mine.row(0, named=True)
    severity = int(z_severity(row["now"], row["before"], row["deviation"] or 0.0))
    enough = row["rise"] >= spec.least and row["now"] >= spec.ratio * row["before"]
    first = row["rise"] >= DOMINANCE * series.item(0, "rise")
    words = f"cpu of {host} went from {row['before']:.3g} to {row['now']:.3g} {spec.unit}"
    return Raised(passed=enough and first and severity == Severity.CRITICAL, sentence=words)


def _saturated(metrics: pl.DataFrame, pod: str, pattern: str) -> bool:
    """Tell whether the share of its limit that *pod* uses went above 80 percent."""
    rows = metrics.filter(
        pl.col("metric").str.contains(pattern)
        & (pl.coalesce("attr.k8s.pod.name", "service_name") == pod)
        & pl.col("value").is_finite()
    )
    used = dict(rows.group_by("period").agg(pl.col("value").quantile(0.75)).iter_rows())
    if len(used) < 2:
        return False
    now, before = over_utilised([used["abnormal"], used["normal"]])
    return bool(now and not before)


def _counted(metrics: pl.DataFrame, service: str, family: str) -> Raised:
    rows = metrics.filter(
        pl.col("metric").str.contains(_COUNTED[family])
        & (pl.col("service_name") == service)
        & pl.col("value").is_finite()
    )
    per_pod = rows.group_by(pl.coalesce("attr.k8s.pod.name", "service_name")).agg(
        before=pl.col("value").filter(pl.col("period") == "normal").max(),
        low=pl.col("value").filter(pl.col("period") == "abnormal").min(),
        high=pl.col("value").filter(pl.col("period") == "abnormal").max(),
    )
    change = (
        pl.col("high") > pl.coalesce("before", "low") if family == "restart" else (pl.col("low") < pl.col("before"))
    )
    seen = bool(per_pod.select(change.any()).item()) if per_pod.height else False
    return Raised(passed=seen, sentence=f"{family} of {service}: {'yes' if seen else 'no'}")


def kept_running(metrics: pl.DataFrame, service: str) -> bool:
    """Tell whether the metrics speak against a restart of *service*: its restarts are counted, and none is.

    False when they are not counted in both windows, when a count rose, and when there is a pod that was not there before.
    """
    rows = metrics.filter(pl.col("metric").str.contains(_COUNTED["restart"]) & (pl.col("service_name") == service))
    pods = {
        period: set(rows.filter(pl.col("period") == period).get_column("attr.k8s.pod.name").drop_nulls())
        for period in ("normal", "abnormal")
    }
    counted = bool(pods["normal"] and pods["abnormal"])
    return counted and pods["abnormal"] <= pods["normal"] and not _counted(metrics, service, "restart").passed
