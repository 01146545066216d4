"""A run folder as the runner writes it: its trace, its clock, who broke availability, and what a command makes of it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from opsassay.analysis.blame.attribute import attribute
from opsassay.analysis.blame.operations import FLOOR, join, read_run
from opsassay.cli import cli
from opsassay.core.errors import DatapackError, UserError
from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.incident import Alert
from opsassay.core.schema.run import Run, RunStatus, Solver
from opsassay.core.schema.trajectory import AlertReading, Observation, Phase, Tick, ToolCall, TraceStep
from opsassay.evals.runner.store import RunStore
from opsassay.solvers.proxy.formats import read_one
from opsassay.telemetry.tree import resolve
from telemetry.packs import SECOND, START_NS, make_tree

ASKED = "[system]\nYou are ops.\n\n[user]\nThe shop is down.\nRepair it.\n\n[assistant]\nI look."


def at(seconds):
    return START_NS + int(seconds * SECOND)


def step(number, seconds, *calls):
    return TraceStep(
        step_id=number, agent_id="0", agent_name="ops", input_context=ASKED, output_content="", tool_logs=calls,
        started_at=at(seconds), ended_at=at(seconds + 1), kind="tool" if calls else "plain",
    )  # fmt: skip


def lines(path, *values):
    path.write_text("".join(f"{value}\n" for value in values))


@pytest.fixture
def run_dir(tmp_path):
    """A run of an agent that restarts everything: availability was 0.9 after the fault and falls to 0.2."""
    store = RunStore(tmp_path / "store")
    solver = Solver(name="sre", kind="agent", configuration={"model": "scripted"})
    given = Run(
        cell="c" * 16,
        attempt=0,
        item="gateway-wrong-port",
        item_hash="h",
        system="shop",
        solver=solver,
        solver_hash="s",
    )
    folder, run = store.begin(given)
    look = ToolCall(tool="sql", arguments={"q": "SELECT 1"}, output="store answered 500")
    act = ToolCall(tool="restart", arguments={"service": "all"}, output="done")
    lines(folder / "trace.jsonl", *(s.model_dump_json() for s in (step(1, 10, look), step(2, 15, act), step(3, 22))))
    restart = {"tool": "restart", "arguments": {"service": "all"}, "started_ns": at(16), "ended_ns": at(17)}
    lines(folder / "actions.jsonl", json.dumps({**restart, "mutating": True, "output_characters": 4}))
    ticks = [
        Tick(
            index=i, observations=(Observation(depth="D1", started_ns=at(5 * i), ended_ns=at(5 * i) + 1, value=value),)
        )
        for i, value in enumerate((1.0, 0.9, 0.9, 0.9, 0.2, 0.9))
    ]
    header = json.dumps({"boot_id": "b", "cadence_s": 5.0})
    lines(folder / "timeline.jsonl", header, *(tick.model_dump_json() for tick in ticks))
    phases = (Phase(phase="agent_started", time_ns=at(8)), Phase(phase="agent_ended", time_ns=at(25)))
    lines(folder / "phases.jsonl", *(phase.model_dump_json() for phase in phases))
    alert = Alert(time_ns=at(6), service="frontend", signal="error_rate", value=0.5, threshold=0.1, message="m")
    readings = [AlertReading(time_ns=at(i), firing=(alert,) if 6 <= i < 20 else ()) for i in range(0, 30, 2)]
    lines(folder / "alerts.jsonl", *(reading.model_dump_json() for reading in readings))
    answer = Diagnosis(root_causes=(RootCauseClaim(service="cart"),))
    store.end(folder, run.model_copy(update={"status": RunStatus.DONE}), answer)
    return folder


def test_a_run_folder_is_a_trace_with_its_metadata(run_dir):
    trace = read_one(run_dir)
    assert (trace.task_id, trace.system_name, trace.outcome) == ("gateway-wrong-port", "sre", "done")
    assert trace.task_instruction == "The shop is down.\nRepair it."
    assert trace.agent_configuration == {"sre": {"model": "scripted"}}
    assert [s.agent_name for s in trace.steps] == ["ops"] * 3


def test_the_step_that_broke_availability_is_found_from_the_folder_alone(run_dir):
    trace = read_one(run_dir)
    joined = join(trace, read_run(run_dir))
    (finding,) = joined.findings
    assert (finding.name, finding.step) == ("broke V_temporal", 2)
    assert "fell to 20%, from 90% when the agent began, after restart all" in finding.evidence
    assert [lane.name for lane in joined.lanes] == ["phases", "agent steps", "actions", "D1", "alerts"]
    assert [mark.text for mark in joined.lanes[-1].marks] == ["all quiet", "frontend error_rate", "all quiet"]
    blamed = attribute(trace, "joined", joined=joined)
    assert (blamed.attribution.agent_name, blamed.attribution.step_id, blamed.cost.calls) == ("ops", 2, 0)
    with pytest.raises(UserError, match="folder of a run"):
        attribute(trace, "joined")


def test_the_floor_is_that_of_the_scenario_and_the_agents_time_that_of_its_steps_when_nothing_else_says(run_dir):
    assert read_run(run_dir).floor == FLOOR == 0.85
    (run_dir / "phases.jsonl").unlink()
    assert [f.step for f in join(read_one(run_dir), read_run(run_dir)).findings] == [2]
    record = read_run(run_dir)
    quiet = join(read_one(run_dir), type(record)(**{**record.__dict__, "floor": 0.1}))
    assert quiet.findings == ()
    answer = attribute(read_one(run_dir), "joined", joined=quiet).attribution
    assert (answer.step_id, "neither" in answer.reason) == (None, True)


def test_with_the_case_the_patterns_and_the_truth_stand_on_the_same_clock(run_dir, tmp_path):
    make_tree(tmp_path / "tree", 1)
    (case,) = resolve(tmp_path / "tree")
    joined = join(read_one(run_dir), read_run(run_dir), case)
    assert [(f.name, f.step) for f in joined.findings] == [("premature commitment", 1), ("broke V_temporal", 2)]
    assert [lane.name for lane in joined.lanes][-2:] == ["faults", "causal graph"]
    (run_dir / "timeline.jsonl").unlink()
    without = join(read_one(run_dir), read_run(run_dir), case)
    assert attribute(read_one(run_dir), "joined", joined=without).attribution.step_id == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("actions.jsonl", '{"tool": "x"}\n', "actions.jsonl: a line is no action: arguments"),
        ("timeline.jsonl", "{}\n", "is no timeline"),
        ("trace.jsonl", '{"step_id": 0}\n', "no step of a trace"),
    ],
)
def test_a_part_that_is_broken_is_named(run_dir, name, text, message):
    (run_dir / name).write_text(text)
    with pytest.raises(DatapackError, match=message):
        join(read_one(run_dir), read_run(run_dir))


def test_the_commands_take_a_run_folder(run_dir, tmp_path):
    done = CliRunner().invoke(cli, ["trace", "blame", str(run_dir), "--technique", "joined", "--json"])
    (item,) = json.loads(done.stdout)["items"]
    assert (done.exit_code, item["agent"], item["step"]) == (0, "ops", 2)
    page = tmp_path / "trace.html"
    done = CliRunner().invoke(cli, ["trace", "blame", "view", str(run_dir), "-o", str(page)])
    assert "step 2 suggested" in done.stdout
    assert "broke V_temporal at step 2" in done.stderr
    assert "On one clock" in page.read_text()
    done = CliRunner().invoke(cli, ["trace", "blame", "view", str(run_dir), "-o", str(page), "--run", "elsewhere"])
    assert "no run folder elsewhere" in str(done.exception)
