"""Queries of PromQL drawn from a grammar over the series of `samples.py`.

Left out is what has several right answers: rounding of values that were computed, whose last digit may differ, and the
largest of equal ones.
"""

from __future__ import annotations

from random import Random

COUNTERS = ("requests_total", "late_total", "gaps_total")
GAUGES = ("queue_depth", "limit_bytes", "early_depth", "build_info")
MATCHERS = (
    'service="s1"', 'service=~"s[0-3]"', 'service!~"s1|s2"', 'zone!="north"', 'zone=~".+th"', 'none=""', "zone=~`no\\w+`",
    'service!=""', 'zone="nowhere"', 'service=~"s1.*"',
)  # fmt: skip
RANGES = ("1m", "2m", "5m", "10m", "90s", "16s", "37s", "25m")
OF_COUNTERS = ("rate", "increase", "irate", "resets")
OF_GAUGES = (
    "delta", "idelta", "avg_over_time", "min_over_time", "max_over_time", "sum_over_time", "count_over_time",
    "last_over_time", "stddev_over_time", "stdvar_over_time", "present_over_time", "changes", "deriv",
)  # fmt: skip
AGGREGATIONS = ("sum", "avg", "min", "max", "count", "group", "stddev", "stdvar")
OF_VALUES = ("abs", "sqrt", "exp", "ln", "log2", "log10", "sgn", "sort", "sort_desc")
OF_RAW_VALUES = ("ceil", "floor", "round")
GROUPINGS = (
    "",
    "by (service)",
    "by (zone)",
    "by (zone, code)",
    "by ()",
    "without (service)",
    "without (code, zone)",
    "by (none)",
)
COMPARISONS = ("==", "!=", ">", "<", ">=", "<=")
MATCHINGS = ("", "on (service)", "ignoring (code)", "ignoring (zone, code)", "on (service, zone)", "on ()", "on (zone)")


class Grammar:
    """Draws queries; the same *seed* draws the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def query(self) -> str:
        """Return one query, an instant vector or a number."""
        return self._number(2) if self._happens(0.04) else self._vector(3)

    def _one(self, *of: str) -> str:
        return self._random.choice(of)

    def _happens(self, share: float) -> bool:
        return self._random.random() < share

    def _selector(self, *names: str) -> str:
        matchers = self._random.sample(MATCHERS, self._random.choice((0, 1, 1, 2)))
        if self._happens(0.05):
            return f'{{__name__=~"{"|".join(self._random.sample((*COUNTERS, *GAUGES), 2))}",{",".join(matchers)}}}'
        name = self._one(*names)
        if name == "requests_total" and self._happens(0.3):
            matchers.append(self._one('code="200"', 'code=~"[45].."', 'code!="200"'))
        return f"{name}{{{','.join(matchers)}}}" if matchers else name

    def _moved(self) -> str:
        at = self._one("@ start()", "@ end()", "@ 1767324600.5", "@ 1767325211.5")
        offset = self._one("offset 3m", "offset 11s", "offset -2m", "offset 20m")
        draw = self._random.random()
        return "" if draw < 0.75 else f" {offset}" if draw < 0.87 else f" {at}" if draw < 0.95 else f" {at} {offset}"

    def _range(self, *names: str) -> str:
        if self._happens(0.2):
            step = self._one("15s", "30s", "1m", "7s", "")
            inner = self._raw(*names) if self._happens(0.4) else f"({self._vector(1, within=True)})"
            return f"{inner}[{self._one('5m', '10m', '3m')}:{step}]{self._moved()}"
        return f"{self._selector(*names)}[{self._one(*RANGES)}]{self._moved()}"

    def _raw(self, *names: str) -> str:
        return self._selector(*(names or (*GAUGES, *COUNTERS))) + self._moved()

    def _of_range(self, *, within: bool) -> str:
        if self._happens(0.35):
            ranged = f"{self._selector(*COUNTERS)}[{self._one(*RANGES)}]" if within else self._range(*COUNTERS)
            return f"{self._one(*OF_COUNTERS)}({ranged})"
        ranged = f"{self._selector(*GAUGES)}[{self._one(*RANGES)}]" if within else self._range(*GAUGES)
        draw = self._random.random()
        if draw < 0.08:
            return f"quantile_over_time({self._one('0.5', '0', '0.93', '1', '2')}, {ranged})"
        if draw < 0.14:
            return f"predict_linear({ranged}, {self._one('60', '-300', '3600')})"
        if draw < 0.18:
            return f"absent_over_time({ranged})"
        return f"{self._one(*OF_GAUGES)}({ranged})"

    def _number(self, depth: int) -> str:
        draw = self._random.random()
        if draw < 0.6 or depth < 1:
            return self._one("2", "0.5", "-3", "0", "1e3", "Inf", "60", "NaN", "50")
        if draw < 0.75:
            return self._one("time()", f"scalar({self._selector(*GAUGES)})", 'scalar(queue_depth{service="s1"})')
        return f"({self._number(depth - 1)} {self._one('+', '-', '*', '/', '^')} {self._number(depth - 1)})"

    def _aggregated(self, depth: int, *, within: bool) -> str:
        draw, grouping = self._random.random(), self._one(*GROUPINGS)
        if draw < 0.12:
            distinct = self._one(
                "queue_depth", "early_depth", 'queue_depth{zone!="south"}', "avg_over_time(early_depth[5m])"
            )
            return f"{self._one('topk', 'bottomk')} {grouping} ({self._one('1', '2', '3', '0')}, {distinct})"
        inner = self._vector(depth - 1, within=within)
        if draw < 0.22:
            return f"quantile {grouping} ({self._one('0.5', '0.9', '0', '1', '-1')}, {inner})"
        op = self._one(*AGGREGATIONS)
        if op.startswith("std"):  # of NaN and of infinity alone, 3.0 says NaN and 2.42 says 0
            inner = self._one("limit_bytes", "early_depth", "rate(requests_total[5m])", "delta(gaps_total[10m])")
        return f"{op} {grouping} ({inner})" if self._happens(0.5) else f"{op}({inner}) {grouping}"

    def _between(self, depth: int, *, within: bool) -> str:
        if self._happens(0.4):
            left, right = self._vector(depth - 1, within=within), self._number(1)
            op = self._one("+", "-", "*", "/", "^") if self._happens(0.6) else self._compared()
            return f"({left}) {op} {right}" if self._happens(0.7) else f"{right} {op} ({left})"
        matching, draw = self._one(*MATCHINGS), self._random.random()
        if draw < 0.3:
            sides = self._vector(depth - 1, within=within), self._vector(depth - 1, within=within)
            return f"({sides[0]}) {self._one('and', 'or', 'unless')} {matching} ({sides[1]})"
        if draw < 0.65:
            many, group = (
                self._one("requests_total", "rate(requests_total[5m])", "latency_seconds_bucket", "queue_depth"),
                "",
            )
            one = self._one("queue_depth", "build_info", "sum by (service) (queue_depth)", "limit_bytes", "late_total")
            matching = self._one("on (service)", "ignoring (code, le)", "on (service, zone)", "on (zone)")
            group = self._one("group_left", "group_left (version)", "group_left (zone)")
            op = self._one("+", "*", "/", ">", "<= bool")
            if self._happens(0.3):
                return f"{one} {op} {matching} {group.replace('left', 'right')} {many}"
            return f"{many} {op} {matching} {group} {one}"
        op = self._one("+", "-", "*", "/") if self._happens(0.6) else self._compared()
        return f"({self._vector(depth - 1, within=within)}) {op} {matching} ({self._raw()})"

    def _compared(self) -> str:
        return self._one(*COMPARISONS) + (" bool" if self._happens(0.4) else "")

    def _relabelled(self, depth: int, *, within: bool) -> str:
        inner = self._vector(depth - 1, within=within)
        if self._happens(0.35):
            return f'label_join({inner}, "{self._one("to", "zone")}", "-", "service", "none", "zone")'
        template = self._one("$1", "${1}x", "$1x", "x", "", "$$", "$n-$1")
        regex = self._one("s(.)", "(?P<n>.*)", "s([0-3])", "(no|so)(.*)", ".*")
        target, source = self._one("to", "zone"), self._one("service", "zone")
        return f'label_replace({inner}, "{target}", "{template}", "{source}", "{regex}")'

    def _quantile(self) -> str:
        buckets = self._one(
            "latency_seconds_bucket", "rate(latency_seconds_bucket[5m])", 'latency_seconds_bucket{le!="+Inf"}',
            "sum by (le) (rate(latency_seconds_bucket[2m]))", "sum by (zone, le) (increase(latency_seconds_bucket[10m]))",
            "latency_seconds_bucket offset 7m",
        )  # fmt: skip
        return f"histogram_quantile({self._one('0.5', '0.9', '0.99', '0', '1', '1.1', '-1', 'NaN')}, {buckets})"

    def _vector(self, depth: int, *, within: bool = False) -> str:
        """Return an instant vector, *depth* deep at most; *within* a subquery without another one."""
        draw = self._random.random()
        if depth < 1 or draw < 0.1:
            return self._selector(*GAUGES, *COUNTERS) if within else self._raw()
        if draw < 0.38:
            return self._of_range(within=within)
        if draw < 0.44:
            return self._quantile()
        drawn = self._random.choices(
            (self._aggregated, self._between, self._relabelled, self._of_value, self._of_one), (20, 18, 6, 4, 8)
        )
        return drawn[0](depth, within=within)

    def _of_value(self, depth: int, *, within: bool) -> str:
        return f"{self._one(*OF_VALUES)}({self._vector(depth - 1, within=within)})"

    def _of_one(self, depth: int, *, within: bool) -> str:
        raw = self._selector(*GAUGES, *COUNTERS) if within else self._raw()
        return self._one(
            f"{self._one(*OF_RAW_VALUES)}({raw})", f"round({raw}, 0.25)", f"clamp({raw}, 10, 60)", f"clamp_min({raw}, 40)",
            f"clamp_max({raw}, 40)", f"absent({raw})", f"-{raw}", f"vector({self._number(1)})", f"({raw}) % 7",
            f"-({self._vector(depth - 1, within=within)})",
        )  # fmt: skip
