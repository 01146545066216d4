"""Resource metrics of a service, compared with its baseline and with other services, and when they began to deviate."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from opsassay.annotation.evidence.detectors import Severity, z_severity
from opsassay.annotation.evidence.states import NANO, NodeState
from opsassay.annotation.evidence.thresholds import ResourceThresholds
from opsassay.core.text import number_text

WINDOW_S = 5.0
"""Windows of pods, containers and hosts; wider where samples are farther apart."""


@dataclass(frozen=True)
class Family:
    """Metrics that mean the same: *pattern* matches their names, *utilisation* those of the share of the limit (D.5).

    *resolution*, in *unit*, is the least by which readings differ.
    """

    state: str
    pattern: str
    utilisation: str
    unit: str
    resolution: float


FAMILIES = {
    "cpu": Family("cpu", r"^(container|k8s\.pod)\.cpu[._]usage", r"cpu[._]limit_utilization$", "cores", 1e-3),
    "memory": Family(
        "mem", r"^(container|k8s\.pod)\.memory[._]working_set", r"memory[._]limit_utilization$", "bytes", 2.0**20
    ),
}
_TO_SD, _LEAST_SPREAD = 1.4826, 0.05
"""A median absolute deviation times the first is a normal distribution's sd; it is at least that share of the median."""
_HOST_CPU = r"^k8s\.node\.cpu[._]usage"
_COUNTED = {"restart": r"restarts?$", "unready": r"pod\.ready$"}
_POD = pl.coalesce("attr.k8s.pod.name", "service_name")
_PERIODS = {period: pl.col("period") == period for period in ("normal", "abnormal")}


@dataclass(frozen=True)
class Raised:
    """Whether a resource rose, and a sentence that says by how much.

    *used_up*: it reached its limit during the fault and about no other service's rose as much; *passed* needs certainty
    too.
    """

    passed: bool
    sentence: str
    used_up: bool = False


def _least_rise(family: str, limits: ResourceThresholds) -> tuple[float, float]:
    """Return (absolute rise in cores or bytes, ratio) that a rise of *family* (cpu, memory) must reach."""
    if family == "cpu":
        return limits.cpu_cores, limits.cpu_ratio
    return limits.memory_mb * 2**20, limits.memory_ratio


def _metric_levels(rows: pl.DataFrame, owner: pl.Expr, family: str) -> pl.DataFrame:
    """Return before, now, rise and deviation of each metric of *family* by *owner* and service, by falling rise.

    *before* is the median, *now* the upper quartile, *deviation* the sd by the median absolute deviation.
    """
    value = pl.col("value")
    normal = value.filter(_PERIODS["normal"])
    least = pl.max_horizontal(pl.col("before").abs() * _LEAST_SPREAD, pl.lit(FAMILIES[family].resolution))
    return (
        rows.group_by("service_name", "metric", owner=owner)
        .agg(
            before=normal.median(),
            deviation=_TO_SD * (normal - normal.median()).abs().median(),
            now=value.filter(_PERIODS["abnormal"]).quantile(0.75),
        )
        .drop_nulls(["owner", "before", "now"])
        .with_columns(rise=pl.col("now") - pl.col("before"), deviation=pl.max_horizontal("deviation", least))
        .sort("rise", "owner", descending=[True, False])
    )


def _select_family(metrics: pl.DataFrame, family: str) -> pl.DataFrame:
    """Return the rows of *metrics* with finite values whose metric name matches *family*, a key of FAMILIES."""
    return metrics.filter(pl.col("metric").str.contains(FAMILIES[family].pattern) & pl.col("value").is_finite())


def _select_host_metrics(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of *metrics* with finite values on the CPU of hosts: those without a pod."""
    no_pod = pl.col("attr.k8s.pod.name").fill_null("") == ""
    return metrics.filter(pl.col("metric").str.contains(_HOST_CPU) & no_pod & pl.col("value").is_finite())


def raised(metrics: pl.DataFrame, service: str, family: str, limits: ResourceThresholds, growth: float = 1.0) -> Raised:
    """Return whether *family* (cpu, memory, restart, unready) of *service* rose from the normal to the abnormal window.

    *metrics* is the metrics table with a column `period`; CPU is in cores, memory in bytes. *growth* is the factor by
    which the service's traffic grew, by which its CPU use may grow too. *before* is the median and sd the median
    absolute deviation (with a floor) of the normal window, *now* the upper quartile of the abnormal one. The largest
    rise of the service's pods counts when now - growth * before >= least and now >= ratio * growth * before (or the
    limit of the resource is reached, growth being below ratio), when now - before >= dominance * the largest rise of
    any service, and when (now - before) / sd is above the critical one of z_levels. Restarts count when one was added,
    unready when readiness fell.
    """
    if family in _COUNTED:
        return _detect_counter(metrics, service, family)
    levels = _metric_levels(_select_family(metrics, family), _POD, family)
    mine = levels.filter(pl.col("service_name") == service).head(1)
    if not mine.height:
        return Raised(passed=False, sentence=f"no {family} metric of {service}")
    used_up = growth < _least_rise(family, limits)[1] and _is_saturated(
        metrics, mine.item(0, "owner"), FAMILIES[family].utilisation, limits.utilisation
    )
    return _judge_level(mine, levels, family, service, limits, growth=growth, used_up=used_up)


def host_raised(metrics: pl.DataFrame, host: str, limits: ResourceThresholds) -> Raised:
    """Return whether the CPU use of *host*, cores, rose, by the rule of `raised` among all hosts."""
    levels = _metric_levels(_select_host_metrics(metrics), pl.col("attr.k8s.node.name"), "cpu")
    mine = levels.filter(pl.col("owner") == host).head(1)
    if not mine.height:
        return Raised(passed=False, sentence=f"no processor metric of {host}")
    return _judge_level(mine, levels, "cpu", host, limits)


def _judge_level(
    level_rows: pl.DataFrame,
    levels: pl.DataFrame,
    family: str,
    name: str,
    limits: ResourceThresholds,
    *,
    growth: float = 1.0,
    used_up: bool = False,
) -> Raised:
    """Return whether the row *level_rows*, of *name*, rose beyond noise, enough, and about as much as the top *levels*.

    *growth*: factor of traffic, by which use may grow; *used_up*: the resource's limit was reached, which is enough.
    """
    row, (least, ratio) = level_rows.row(0, named=True), _least_rise(family, limits)
    usual = row["before"] * growth
    much = used_up or (row["now"] - usual >= least and row["now"] >= ratio * usual)
    first = row["rise"] >= limits.dominance * levels.item(0, "rise")
    severity = int(z_severity(row["now"], row["before"], row["deviation"], limits.z_levels))
    before, now = number_text(row["before"]), number_text(row["now"])
    words = f"{family} of {name} went from {before} to {now} {FAMILIES[family].unit}"
    certain = severity == Severity.CRITICAL
    return Raised(passed=much and first and certain, sentence=words, used_up=used_up and first)


def resource_states(metrics: pl.DataFrame, start_ns: int, limits: ResourceThresholds) -> dict[str, NodeState]:
    """Return component ("pod|...", "container|...", "node|...") to its states (cpu, mem, restart) with onsets, ns.

    A resource deviates from the first window on in which it is as high as `raised` asks: windows of WINDOW_S from
    *start_ns* on, wider where samples are farther apart. A host takes the state of its largest metric, a container that
    of its pods.
    """
    found: dict[str, dict[str, int]] = {}
    widths: dict[str, int] = {}
    for family, rows, owner, kinds in (
        ("cpu", _select_family(metrics, "cpu"), _POD, ("pod", "container")),
        ("memory", _select_family(metrics, "memory"), _POD, ("pod", "container")),
        ("cpu", _select_host_metrics(metrics), pl.col("attr.k8s.node.name"), ("node",)),
    ):
        for service, name, first_ns, width_ns in _first_deviations(rows, owner, family, start_ns, limits).iter_rows():
            for kind in kinds:
                component = f"{kind}|{service if kind == 'container' else name}"
                onsets, state = found.setdefault(component, {}), FAMILIES[family].state
                onsets[state] = min(first_ns, onsets.get(state, first_ns))
                widths[component] = max(width_ns, widths.get(component, 0))
    for service, pod, first_ns in _restarted_pods(metrics).iter_rows():
        for component in (f"pod|{pod}", f"container|{service}"):
            onsets = found.setdefault(component, {})
            onsets["restart"] = min(first_ns, onsets.get("restart", first_ns))
    usual_ns = int(WINDOW_S * NANO)
    return {name: NodeState(dict(sorted(o.items())), widths.get(name, usual_ns)) for name, o in sorted(found.items())}


def _first_deviations(
    rows: pl.DataFrame, owner: pl.Expr, family: str, start_ns: int, limits: ResourceThresholds
) -> pl.DataFrame:
    """Return the owners whose use of *family* deviates: service_name, owner, first_ns (the window's start), width_ns."""
    least, ratio = _least_rise(family, limits)
    by = ["service_name", "owner", "metric"]
    now = rows.filter(_PERIODS["abnormal"]).with_columns(owner=owner, at_ns=pl.col("time").dt.epoch("ns")).sort("at_ns")
    apart = now.group_by(by).agg(apart_ns=pl.col("at_ns").diff().median().fill_null(0).cast(pl.Int64))
    windows = (
        now.join(apart, on=by)
        .with_columns(width_ns=pl.max_horizontal("apart_ns", pl.lit(int(WINDOW_S * NANO))))
        .with_columns(first_ns=start_ns + (pl.col("at_ns") - start_ns) // pl.col("width_ns") * pl.col("width_ns"))
        .group_by(*by, "width_ns", "first_ns")
        .agg(level=pl.col("value").mean())
    )
    usual = _metric_levels(rows, owner, family).select(*by, "before", "deviation")
    far = pl.col("level") - pl.col("before") > limits.z_levels[2] * pl.col("deviation")
    much = (pl.col("level") >= pl.col("before") + least) & (pl.col("level") >= ratio * pl.col("before"))
    high = windows.join(usual, on=by).filter(much & far)
    return high.group_by("service_name", "owner").agg(pl.col("first_ns").min(), pl.col("width_ns").max()).sort("owner")


def _restarted_pods(metrics: pl.DataFrame) -> pl.DataFrame:
    """Return the pods that restarted: service_name, owner, first_ns (time of the first sample that shows it)."""
    rows = metrics.filter(pl.col("metric").str.contains(_COUNTED["restart"]) & pl.col("value").is_finite())
    rows = rows.with_columns(owner=_POD, at_ns=pl.col("time").dt.epoch("ns"))
    before = pl.coalesce(
        pl.col("value").filter(_PERIODS["normal"]).max(), pl.col("value").filter(_PERIODS["abnormal"]).min()
    )
    first = pl.col("at_ns").filter(_PERIODS["abnormal"] & (pl.col("value") > before)).min()
    return rows.group_by("service_name", "owner").agg(first_ns=first).drop_nulls().sort("owner")


def _is_saturated(metrics: pl.DataFrame, pod: str, pattern: str, limit: float) -> bool:
    """Return whether the P75 of *pod*'s metric like *pattern*, a share, is above *limit*, and its old median was not."""
    rows = metrics.filter(pl.col("metric").str.contains(pattern) & (pod == _POD) & pl.col("value").is_finite())
    now, before = (rows.filter(_PERIODS[period]).get_column("value") for period in ("abnormal", "normal"))
    return bool(now.len() and before.len() and now.quantile(0.75) > limit >= before.median())  # type: ignore[operator]


def _detect_counter(metrics: pl.DataFrame, service: str, family: str) -> Raised:
    """Return whether restarts of a pod of *service* grew, or (*family* unready) its readiness fell, beyond the baseline."""
    rows = metrics.filter(
        pl.col("metric").str.contains(_COUNTED[family])
        & (pl.col("service_name") == service)
        & pl.col("value").is_finite()
    )
    per_pod = rows.group_by(_POD).agg(
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
    """Return whether metrics show that no pod of *service* restarted between the windows.

    False also when restarts are not counted in both windows, or a pod of the abnormal window is new.
    """
    rows = metrics.filter(pl.col("metric").str.contains(_COUNTED["restart"]) & (pl.col("service_name") == service))
    pods = {
        period: set(rows.filter(pl.col("period") == period).get_column("attr.k8s.pod.name").drop_nulls())
        for period in ("normal", "abnormal")
    }
    counted = bool(pods["normal"] and pods["abnormal"])
    return counted and pods["abnormal"] <= pods["normal"] and not _detect_counter(metrics, service, "restart").passed
