"""Live cost tasks: the stored optimum, the account, and what is judged of the end, with every cheat that was thought of."""

from __future__ import annotations

import json

import pytest

from opsassay.core.errors import NotFoundError
from opsassay.core.schema.cost import CostAlertRule, CostBudget, PriceBook, ReportedCause, ResourceRequest
from opsassay.core.schema.run import Metric, MetricStatus
from opsassay.core.schema.trajectory import Phase
from opsassay.evals.cost.domain import FINOPS_DOMAIN
from opsassay.evals.cost.insight.keys import KPIS
from opsassay.evals.cost.live.score import MARKS, judge_cost, search, stored_optimum
from opsassay.evals.cost.live.tasks import LOCAL_TASKS, ON_KUBERNETES, TASKS, live_task, optimum_file
from opsassay.evals.cost.tables import cost_tables
from opsassay.evals.runner.results import ResultRow
from opsassay.testbed.operations.costs import Allocation, CostAccount

CERTIFIED = Metric(value=1.0, status=MetricStatus.SCORED)
NOT_CERTIFIED = Metric(value=0.0, status=MetricStatus.SCORED, reason="V_no_regression failed")
PHASES = [
    Phase(phase=name, time_ns=int(at * 1e9))
    for name, at in (("baseline", 10), ("triggered", 10), ("agent_started", 30), ("agent_ended", 40), ("ended", 70))
]
TASK = live_task("cost-autoscaler")
USUAL = 0.0249375


class Recording:
    """Readings second by second: the optimum from second 41 on, unless a test changes something."""

    def __init__(self):
        block = TASK.cost
        self.account = CostAccount(
            block.prices, CostBudget(hourly_usd=1.1 * USUAL, flexible_usd=0.05 * USUAL), CostAlertRule(), USUAL
        )
        self.requests = dict(block.requests)
        self.replicas = {"web": 2, "pricing": 3, "archive": 1}
        self.rps = {"web": 8.0, "pricing": 8.0, "archive": 0.0}
        self.memory_mb = 20
        self.scalers = list(block.autoscalers)

    def reading(self, at):
        services = {
            name: self.account.of_service(
                Allocation.for_replicas(count, self.requests[name]), self.rps[name] * 0.027 if name == "pricing" else 0.02,
                count * self.memory_mb * 2**20, self.rps[name],
            )
            for name, count in self.replicas.items()
        }  # fmt: skip
        return self.account.read(services, int(at * 1e9), self.scalers)

    def record(self, change=lambda _recording, _second: None):
        found = [self.reading(n) for n in range(1, 10)]
        for second in range(41, 70):
            change(self, second)
            found.append(self.reading(second))
        return found


def judged(change=lambda _recording, _second: None, causes=(), certificate=CERTIFIED):
    return judge_cost(
        TASK.cost, stored_optimum("cost-autoscaler"), Recording().record(change), PHASES, causes, certificate
    )


def rounded(found):
    """Return *found* to twelve digits: Python 3.12 adds floats up more exactly than 3.11, which stored it."""
    return json.loads(found.model_dump_json(), parse_float=lambda text: float(f"{float(text):.12g}"))


@pytest.mark.parametrize("name", TASKS)
def test_the_stored_optimum_is_what_the_search_gives(name):
    task = live_task(name)
    found, stored = search(task.cost), stored_optimum(name)
    assert rounded(found) == rounded(stored)
    assert len(stored.table) == 3 * 9 * 3
    for service, chosen in stored.chosen.items():
        allowed = [one for one in stored.table if one.service == service and not one.problem]
        cheapest = min(one.cpu_usd + one.memory_usd for one in allowed)
        assert chosen.cpu_usd + chosen.memory_usd == pytest.approx(cheapest)
    assert all(one.problem for one in stored.table if one.service == "pricing" and one.replicas < 3)


def test_the_optimum_by_hand():
    # 3 replicas of pricing at 0.1 core hold 8 requests of 27 ms below 77%; 6 replicas of 0.1 core and 32 MiB in all
    stored = stored_optimum("cost-autoscaler")
    assert stored.cpu_usd == pytest.approx(0.6 * 0.04)
    assert stored.memory_usd == pytest.approx(6 * 0.03125 * 0.005)


@pytest.mark.parametrize("name", TASKS)
def test_every_task_has_a_right_oracle_and_four_that_fail_for_a_reason(name):
    task = live_task(name)
    assert len(task.cost.fails) >= 4
    assert set(task.cost.fails.values()) <= {*MARKS, "certificate"}
    assert task.scenario.oracles["right"].certified


def test_the_commitment_covers_the_cost_block_and_the_optimum(tmp_path, monkeypatch):
    before = TASK.committed.digest()
    assert before == TASK.committed.digest()
    assert before != TASK.scenario.digest()
    changed = TASK.model_copy(update={"cost": TASK.cost.model_copy(update={"tolerance": 9.0})})
    assert changed.committed.digest() != before
    file = tmp_path / "optimum.json"
    file.write_text(json.dumps(json.loads(optimum_file("cost-autoscaler").read_text()) | {"cpu_usd": 9}))
    monkeypatch.setattr("opsassay.evals.cost.live.tasks.optimum_file", lambda _: file)
    assert TASK.committed.digest() != before


def test_twenty_tasks_are_listed_and_those_of_live_systems_once_more_for_a_cluster():
    heads = list(FINOPS_DOMAIN.tasks([]))
    assert len(heads) == 20 + len(KPIS) + len(LOCAL_TASKS)
    assert sum(head.task_class == "alert" for head in heads) == 2 * len(LOCAL_TASKS)


def test_a_repaired_system_passes():
    found = judged(causes=[ReportedCause(time_ns=1, service="pricing", cause="autoscaler_threshold")])
    assert found["passed"].value == 1.0, found["passed"].reason
    assert found["diagnosis_right"].value == 1.0
    assert found["proximity_cpu_cost"].value == pytest.approx(1.0)
    assert found["proximity_memory_cost"].value == pytest.approx(1.0)


def test_an_autoscaler_that_aims_a_little_higher_passes():
    def a_little(recording, second):
        recording.scalers = [TASK.cost.autoscalers[0].model_copy(update={"min_replicas": 2, "target_utilization": 0.8})]

    assert judged(a_little)["passed"].value == 1.0


def over(recording, second):
    recording.replicas["pricing"] = 8


def one_good_tick(recording, second):
    recording.replicas["pricing"] = 3 if second == 60 else 8


def scaled_away(recording, second):
    recording.replicas["pricing"] = 1


def moved_away(recording, second):
    recording.rps["pricing"] = 1.0


def no_budget(recording, second):
    recording.account.budget = None


def unlimited_budget(recording, second):
    recording.account.budget = CostBudget(hourly_usd=1000, flexible_usd=0)


def no_alert(recording, second):
    recording.account.alert = None


def loose_alert(recording, second):
    recording.account.alert = CostAlertRule(ratio=100)


def under_requested(recording, second):
    recording.requests["web"] = ResourceRequest(cpu=0.1, memory_mb=1)


def others_squeezed(recording, second):
    recording.requests["web"] = ResourceRequest(cpu=0.03, memory_mb=32)


def no_autoscaler(recording, second):
    recording.scalers = []


def autoscaled_to_today(recording, second):
    recording.scalers = [TASK.cost.autoscalers[0].model_copy(update={"max_replicas": 3, "target_utilization": 0.15})]


def autoscaled_never(recording, second):
    recording.scalers = [TASK.cost.autoscalers[0].model_copy(update={"min_replicas": 3, "target_utilization": 9.0})]


@pytest.mark.parametrize(
    ("cheat", "mark"),
    [
        (over, "cost_alert_cleared"), (one_good_tick, "cost_alert_cleared"), (scaled_away, "requests_cover_usage"),
        (moved_away, "load_kept"), (no_budget, "budget_kept"), (unlimited_budget, "budget_kept"),
        (no_alert, "cost_alert_kept"), (loose_alert, "cost_alert_kept"), (under_requested, "requests_cover_usage"),
        (others_squeezed, "requests_cover_usage"),
        (no_autoscaler, "autoscalers_kept"), (autoscaled_to_today, "autoscalers_kept"),
        (autoscaled_never, "autoscalers_kept"),
    ],
)  # fmt: skip
def test_each_cheat_fails_its_mark(cheat, mark):
    found = judged(cheat)
    assert found[mark].value == 0.0
    assert found["passed"].value == 0.0
    assert mark in found["passed"].reason


def test_the_certificate_of_the_trial_is_needed():
    found = judged(certificate=NOT_CERTIFIED)
    assert found["passed"].value == 0.0
    assert "V_no_regression" in found["passed"].reason


def test_a_proximity_is_negative_raw_and_zero_clamped():
    def forty(recording, second):
        recording.replicas["pricing"] = 40

    found = judged(forty)
    assert found["proximity_cpu_cost"].value < 0
    assert found["proximity_cpu_cost_clamped"].value == 0.0


def test_the_last_report_counts_and_none_is_wrong():
    first = ReportedCause(time_ns=1, service="pricing", cause="autoscaler_threshold")
    last = ReportedCause(time_ns=2, service="web", cause="autoscaler_threshold")
    assert judged(causes=[first, last])["diagnosis_right"].value == 0.0
    assert judged()["diagnosis_right"].reason == "no cause was reported"


def test_a_record_with_a_hole_or_without_an_end_is_not_judged():
    readings = Recording().record()
    optimum = stored_optimum("cost-autoscaler")
    holed = [one for one in readings if not 55e9 <= one.time_ns <= 65e9]
    for given, phases in ((holed, PHASES), (readings, PHASES[:-1]), ([], PHASES)):
        found = judge_cost(TASK.cost, optimum, given, phases, (), CERTIFIED)
        assert found["passed"].status is MetricStatus.FAILED
        assert FINOPS_DOMAIN.succeeded(found) is False


def test_a_replica_is_charged_for_the_larger_of_request_and_usage():
    account = CostAccount(PriceBook(core_hour_usd=1, gb_hour_usd=1))
    request = ResourceRequest(cpu=0.5, memory_mb=512)
    idle = account.of_service(Allocation.for_replicas(2, request), 0.1, 0, 0)
    assert (idle.cpu_usd, idle.memory_usd) == (1.0, 1.0)
    busy = account.of_service(Allocation.for_replicas(2, request), 3.0, 4 * 2**30, 0)
    assert (busy.cpu_usd, busy.memory_usd) == (3.0, 4.0)
    assert account.of_service(Allocation.for_replicas(0, request), 0.0, 0.0, 0.0).cpu_usd == 0.0


def test_the_alert_needs_a_record_of_last_week_and_heeds_the_budget():
    account = CostAccount(PriceBook(core_hour_usd=1, gb_hour_usd=1))
    services = {"a": account.of_service(Allocation.for_replicas(2, ResourceRequest(cpu=1, memory_mb=1024)), 0, 0, 0)}
    assert not account.read(services, 1).firing
    account.last_week_usd = 2.0
    assert account.read(services, 1).firing
    account.budget = CostBudget(hourly_usd=5.0, flexible_usd=0.0)
    assert not account.read(services, 1).firing


def test_an_unknown_task_is_refused():
    with pytest.raises(NotFoundError, match="cost-memory"):
        live_task("cost-memry")


@pytest.mark.slow
def test_table_32_has_pass_at_k_and_means_with_sd_over_all_runs():
    def row(task, seed, passed, proximity):
        values = {"passed": passed, "diagnosis_right": 1.0, "proximity_cpu_cost": proximity}
        metrics = {name: Metric(value=value, status=MetricStatus.SCORED) for name, value in values.items()}
        return ResultRow("finops", task, "mine", "default", seed, None, None, metrics)

    runs = [("cost-idle", 0.0, 0.5), ("cost-idle", 1.0, 1.0), ("cost-memory", 0.0, -0.5), ("cost-memory", 0.0, 0.0)]
    table = cost_tables([row(task, n % 2, passed, near) for n, (task, passed, near) in enumerate(runs)])[-1]
    (found,) = (dict(zip(table.columns, one, strict=True)) for one in table.rows)
    assert (found["mitigation pass@1 %"], found["k"], found["mitigation pass@k %"]) == ("25.0", 2, "50.0")
    assert found["diagnosis pass@k %"] == "100.0"
    assert found["proximity_cpu_cost"] == "0.25 ± 0.65"


def test_a_plan_names_classes_and_the_cluster_that_tasks_for_kubernetes_happen_on(tmp_path):
    def jobs(*tasks):
        part = {"tasks": list(tasks), "agents": ["oracle:right", "chance"], "cluster": {"context": "kind-mine"}}
        return FINOPS_DOMAIN.jobs(part, tmp_path, "plan")

    assert len(jobs("all")) == 2 * 16
    assert {job.task.name for job in jobs("kpi")} == set(KPIS)
    on_cluster = jobs("alert-on-kubernetes")
    assert [job.scenario.id for job in on_cluster] == [name + ON_KUBERNETES for name in LOCAL_TASKS]
    assert {job.cluster.context for job in on_cluster} == {"kind-mine"}
    assert [job.scenario.id for job in jobs("alert")] == list(LOCAL_TASKS)


@pytest.mark.parametrize("name", LOCAL_TASKS)
def test_a_task_on_a_cluster_is_the_same_but_for_how_it_breaks_and_what_pods_need(name):
    here, there = live_task(name), live_task(name + ON_KUBERNETES)
    assert there.scenario.cluster is not None
    assert there.scenario.cluster.changes
    assert here.scenario.trigger.operations
    assert there.scenario.alert == here.scenario.alert
    assert there.scenario.verification == here.scenario.verification
    assert {n: (o.fails, o.expect) for n, o in there.scenario.oracles.items()} == {
        n: (o.fails, o.expect) for n, o in here.scenario.oracles.items()
    }
    for what in ("prices", "budget_share", "cause", "service", "tolerance", "fails", "autoscalers"):
        assert getattr(there.cost, what) == getattr(here.cost, what)
