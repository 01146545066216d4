"""The built-in agent on live systems, played by its scripted twin: at its tools with a system that is made up, and live."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from opsassay.cli import run as command_line
from opsassay.core.schema.cost import AutoscalerSettings, CostBudget, ReportedCause, ResourceRequest
from opsassay.core.schema.json_lines import whole_lines
from opsassay.core.schema.run_folder import COST_CAUSES
from opsassay.evals.cost.live.tasks import LOCAL_TASKS, live_task
from opsassay.solvers.agents.asking import Asker
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.models.named import model_named
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.sre import SreAgent
from opsassay.testbed.operations.cost_tools import LiveCostToolSession
from opsassay.testbed.operations.costs import CostAccount, CostWatch
from opsassay.testbed.operations.tool_session import OperatorToolSession
from opsassay.testbed.operations.tools import VerbToolSession
from opsassay.testbed.substrates.local.costed import LocalCost

TWIN = Path(__file__).parents[3] / "examples" / "cost" / "live_twin.py"


class Till:
    """A till that scales at once and uses what its declaration says."""

    def __init__(self):
        self.counts, self.rps = {"web": 2, "pricing": 3, "archive": 1}, {"web": 8.0, "pricing": 8.0, "archive": 0.0}

    def operate(self, verb, arguments):
        if verb == "scale":
            self.counts[arguments["service"]] = arguments["replicas"]
        return {"replicas": [{"service": name} for name, count in self.counts.items() for _ in range(count)]}


class Spending(CostWatch):
    """What the till costs whenever it is asked."""

    @property
    def latest(self):
        cpu, rps = {"web": 0.004, "pricing": 0.027, "archive": 0.0}, self.till.rps
        services = {
            name: self.account.of_service(one, rps[name] * cpu[name], one.replicas * 20 * 2**20, rps[name])
            for name, one in self.system.allocations().items()
        }  # fmt: skip
        return self.account.read(services, 1)


@pytest.fixture
def at_work(tmp_path, monkeypatch):
    monkeypatch.setattr(OperatorToolSession, "pause", lambda _, seconds: f"Waited {seconds:g} s.")
    till, block = Till(), live_task("cost-growth").cost
    system = LocalCost(till, dict(block.requests), {one.service: one for one in block.autoscalers})
    usual = 0.0249375
    account = CostAccount(
        block.prices, CostBudget(hourly_usd=1.1 * usual, flexible_usd=0.8 * usual), last_week_usd=usual
    )
    watch = Spending(account, system, None, tmp_path)
    watch.till = till
    toolbox = LiveCostToolSession(VerbToolSession(till, None, lambda _: None), watch, tmp_path)

    def work():
        asker = Asker(model_named(f"scripted:{TWIN}"), Meter(Limits()), AgentRecorder(tmp_path))
        report = SreAgent(asker, toolbox, list(till.counts)).run("It costs too much.")
        causes = [ReportedCause.model_validate(one) for one in whole_lines((tmp_path / COST_CAUSES).read_bytes())]
        return report, causes[-1]

    return till, watch, work


BROKEN = {
    "cost-growth": lambda till, _: (till.rps.update(web=15.2, pricing=15.2), till.counts.update(pricing=6)),
    "cost-autoscaler": lambda till, watch: (
        till.counts.update(pricing=8),
        watch.system.set_autoscaler(AutoscalerSettings(service="pricing", max_replicas=8, target_utilization=0.15)),
    ),
    "cost-memory": lambda _, watch: watch.system.set_requests("web", ResourceRequest(cpu=0.1, memory_mb=4096)),
    "cost-idle": lambda till, _: till.counts.update(archive=6),
}


@pytest.mark.parametrize("name", LOCAL_TASKS)
def test_the_twin_names_each_cause_and_quiets_the_alert(at_work, name):
    till, watch, work = at_work
    BROKEN[name](till, watch)
    assert watch.latest.firing
    report, cause = work()
    assert (cause.service, cause.cause) == (live_task(name).cost.service, live_task(name).cost.cause)
    assert report.mitigation is not None, report.notes
    assert not watch.latest.firing
    assert till.counts["web"] == 2


@pytest.mark.live
@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_scripted_twin_finds_the_cause_and_takes_it_away(tmp_path, capsys):
    part = {"domain": "finops", "tasks": ["cost-idle"], "agents": [{"name": "finops", "model": f"scripted:{TWIN}"}]}
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump(part))
    assert command_line(["run", str(tmp_path / "plan.yaml"), "-o", str(tmp_path / "store")]) == 0
    capsys.readouterr()
    assert command_line(["score", "run", str(tmp_path / "store"), "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert item["metrics"]["passed"]["value"] == 1.0, item["metrics"]["passed"]["reason"]
    assert item["metrics"]["diagnosis_right"]["value"] == 1.0
