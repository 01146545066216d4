"""Answers that hold everything: who claims every edge has claimed the path too, and who picks rows has picked the number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import polars as pl
import pytest

from opsassay.core.schema.faults import FaultKind
from opsassay.scoring.profiles import PROFILES
from opsassay.scoring.verdict import grade
from opsassay.telemetry.sql import LockedSql
from scoring.cases import annotation, answer, finished_run, truth
from telemetry.packs import make_pack

from .evidence import BOTH, UP, graded

CLASS = "27 stuffed answers"
SERVICES = ("web", "order", "cart", "redis", "mail", "search", "ads")
CASCADE = annotation("cart>order order>web", alarms="web")


def path_of(edges: str, *roots: str, profile: str = "default") -> tuple[float | None, float | None]:
    said = answer(*((root, FaultKind.CPU_STRESS) for root in roots), edges=edges)
    found = grade(finished_run(), said, truth(("CPUStress", "cart")), CASCADE, None, PROFILES[profile]).metrics
    return found["path_reachability"].value, found["ungrounded"].value


STUFFED = {
    "every edge there is": " ".join(f"{a}>{b}" for a, b in permutations(SERVICES, 2)),
    "every edge from the root": " ".join(f"cart>{b}" for b in SERVICES if b != "cart"),
    "every edge to the alarm, and a way there": " ".join(f"{a}>web" for a in SERVICES if a != "web")
    + " cart>redis cart>mail cart>search cart>ads",
    "both directions": "cart>order order>cart order>web web>order",
}


@pytest.mark.parametrize("what", STUFFED)
def test_a_path_among_all_edges_grounds_nothing(what: str) -> None:
    assert path_of(STUFFED[what], "cart") == (0, 1)
    assert path_of(STUFFED[what], "cart", profile="openrca2") == (1, 0)  # Equation 10 as it is written


ALLOWED = {
    "the cascade": "cart>order order>web",
    "without a step": "cart>web",
    "with an edge too many": "cart>order order>web cart>redis",
    "beside the way of another claim": "cart>order order>web mail>search search>ads mail>ads mail>redis",
}


@pytest.mark.parametrize("what", ALLOWED)
def test_a_path_that_says_where_it_leads_does(what: str) -> None:
    assert path_of(ALLOWED[what], "cart", "mail") == (1, 0)


@pytest.fixture(scope="module")
def sql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LockedSql]:
    """Return tables in which cart got slow and no two spans take the same time."""
    pack = make_pack(tmp_path_factory.mktemp("pack") / "p", slow_in="cart")
    for path in sorted(pack.path.glob("*_traces.parquet")):
        table = pl.read_parquet(path)
        own = pl.int_range(pl.len()) * 7919 % 1_999_993 + (path.name.startswith("normal")) * 1003
        table.with_columns((pl.col("duration") + own).cast(table.schema["duration"])).write_parquet(path)
    with LockedSql(pack, timeout_s=20, max_rows=500) as locked:
        yield locked


OF_ITS_OWN = f"SELECT count(*) FROM {BOTH} WHERE service_name = $service AND period = $period AND "
PICKED = {
    "one span": "duration = {duration}",
    "three spans": "duration IN ({duration}, {duration} + 1, {duration} - 1)",
    "a narrow range": "duration BETWEEN {duration} - 9 AND {duration} + 9",
    "a moment": "time = TIMESTAMP '{time}'",
    "a remainder": "duration % 1000003 = {duration} % 1000003",
}


@pytest.mark.sampled
@pytest.mark.parametrize("what", PICKED)
def test_rows_that_are_picked_bind_nothing(sql: LockedSql, what: str) -> None:
    """Store is as fast as ever: any of its spans happened once, in one period."""
    found = sql.query(
        "SELECT duration, time::VARCHAR FROM abnormal_traces WHERE service_name = 'store' ORDER BY 1 DESC LIMIT 1"
    )
    duration, moment = found.rows[0]
    attack, metrics = graded(sql, OF_ITS_OWN + PICKED[what].format(duration=duration, time=moment), "store", UP)
    assert (attack.rows, metrics["evidence_bound"]) == (((1,),), 0.0), attack
    assert "picks its rows" in attack.finding


@pytest.mark.sampled
@pytest.mark.parametrize(
    "condition",
    ["duration > 100000000", "duration BETWEEN 300000000 AND 500000000", "time > TIMESTAMP '2026-01-02 03:04:20'"],
)
def test_a_threshold_or_a_time_binds(sql: LockedSql, condition: str) -> None:
    value = "avg(duration)" if condition.startswith("time") else "count(*)"
    control, _ = graded(sql, OF_ITS_OWN.replace("count(*)", value) + condition, "cart", UP)
    assert control.bound == pytest.approx(0.5), control
