"""What an agent's tools see under a mask, the topology that they tell, and which service a request touches."""

from __future__ import annotations

import time

import polars as pl
import pytest

from evals.remediation.test_trials import write_scenario
from opsassay.core.schema.task import Arm
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.telemetry.mask import Mask
from opsassay.telemetry.schema import SCHEMA
from opsassay.testbed.operations.telemetry_view import TelemetryView
from opsassay.testbed.operations.tools import VerbToolSession


def span(trace, name, parent, service, *, failed=False):
    return {
        "time": time.time_ns(),
        "trace_id": trace, "span_id": name, "parent_span_id": parent, "span_name": f"GET /{service}",
        "service_name": service, "attr.span_kind": "Server", "duration": 5_000_000,
        "attr.status_code": "Error" if failed else "Ok",
    }  # fmt: skip


class Given:
    """Telemetry of two services that call a third one, a log record and a reading."""

    def tables(self):
        spans, now = [], time.time_ns()
        for n in range(40):
            spans += [span(f"t{n}", f"a{n}", "", "front"), span(f"t{n}", f"c{n}", f"a{n}", "front"),
                      span(f"t{n}", f"b{n}", f"c{n}", "cart", failed=n < 10)]  # fmt: skip
        rows = {
            "traces": spans,
            "logs": [{"time": now, "level": "ERROR", "service_name": "cart", "message": "it broke"}],
            "metrics": [{"time": now, "metric": "cpu", "value": 0.5, "service_name": "cart"}],
            "metrics_sum": [],
        }
        return {name: pl.DataFrame(found, schema=SCHEMA[name]) for name, found in rows.items()}


class Alerting:
    def firing(self):
        return time.time_ns(), []


class Answering:
    def operate(self, _verb, arguments):
        return {"status": 200, **arguments}


@pytest.fixture
def box():
    recorded = []
    toolbox = VerbToolSession(Answering(), TelemetryView(Given(), Alerting()), recorded.append)
    toolbox.recorded = recorded
    return toolbox


def test_topology_is_who_called_whom_and_how_it_went(box):
    assert box.call("topology", {}).output == "front -> cart: 40 calls, 10 failed"
    assert box.call("topology", {"service": "cart"}).output == "front -> cart: 40 calls, 10 failed"
    assert "No call between services" in box.call("topology", {"service": "pay"}).output
    assert not box.recorded[0].mutating


@pytest.mark.parametrize(
    ("mask", "blind", "seeing"),
    [
        (Mask(drop=("traces",)), {"traces": {"service": "front"}, "topology": {}}, {"search_logs": {}}),
        (Mask(drop=("logs",)), {"search_logs": {}}, {"topology": {}}),
        (Mask(drop=("metrics",)), {"metrics": {}}, {"search_logs": {}}),
    ],
)
def test_a_mask_takes_from_the_tools_what_it_names_and_nothing_else(box, mask, blind, seeing):
    before = {tool: box.call(tool, arguments).output for tool, arguments in {**blind, **seeing}.items()}
    box.view.mask = mask
    after = {tool: box.call(tool, arguments).output for tool, arguments in {**blind, **seeing}.items()}
    assert all(after[tool] != before[tool] for tool in blind)
    assert all(after[tool] == before[tool] for tool in seeing)
    words = {"traces": "handled no request", "topology": "No call", "search_logs": "0 records", "metrics": "No metric"}
    assert all(words[tool] in after[tool] for tool in blind)


def test_a_share_of_the_traces_is_whole_traces(box):
    box.view.mask = Mask(trace_fraction=0.5)
    count = int(box.call("topology", {}).output.split()[3])
    assert 5 < count < 35


def test_masks_are_arms_of_a_plan_and_their_runs_say_so(tmp_path):
    write_scenario(tmp_path / "made.yaml")
    plan = {"scenarios": ["made.yaml"], "agents": ["oracle:gentle"], "masks": [{}, {"drop": ["traces"]}]}
    cells = cells_of(TrialPlan.model_validate(plan), tmp_path)
    labels = [cell.cell.arm.label for cell in cells]
    assert labels == ["baseline/probes-on", "baseline/probes-on/mask-traces"]
    assert Arm.parse(labels[1]).knob("mask") == "traces"
    assert Arm.parse(labels[1]).knob("probes") == "on"
    assert len({cell.cell.hash for cell in cells}) == 2
    with pytest.raises(ValueError, match="a trial has no windows to shorten"):
        TrialPlan.model_validate({**plan, "masks": [{"normal_s": 5}]})
    silent = TrialPlan.model_validate({**plan, "scenarios": ["node-not-ready"]})
    assert len(cells_of(silent)) == 1, "services that are stand-ins send nothing that could be masked"


def test_a_request_that_is_more_than_a_look_touches_whom_it_calls(box):
    url = "http://pay:8080/orders"
    box.call("exec_curl", {"source": "web", "url": url})
    box.call("exec_curl", {"source": "web", "url": url, "method": "POST"})
    look, write = box.recorded
    assert (look.mutating, look.touched) == (False, ())
    assert (write.mutating, write.touched) == (True, ("pay",))
