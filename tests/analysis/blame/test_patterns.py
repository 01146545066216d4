"""Failure patterns and the joined clock, on runs of a scripted agent that really asks hand-made recordings by SQL."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

from opsassay.analysis.blame.joined import first_break, lanes
from opsassay.analysis.blame.patterns import find_patterns
from opsassay.core.schema.diagnosis import Diagnosis, RootCauseClaim
from opsassay.core.schema.trajectory import Action, Observation, Probe, Tick, Timeline, ToolCall, Trace, TraceStep
from opsassay.solvers.agents.models.base import Message, Reply, ToolRequest
from opsassay.solvers.agents.models.scripted import ScriptedModel
from telemetry.packs import SECOND, START_NS, make_annotation, make_incident, make_pack, make_truth

ALL_SERVICES = "SELECT service_name, count(*) AS spans FROM normal_traces GROUP BY ALL ORDER BY 1"
NOW = "SELECT service_name, count(*) AS spans FROM abnormal_traces GROUP BY ALL ORDER BY 1"
ERRORS = (
    "SELECT service_name, count(*) FROM abnormal_traces WHERE \"attr.status_code\" = 'Error' GROUP BY ALL ORDER BY 1"
)
STORE = "SELECT count(*) FROM abnormal_traces WHERE service_name = 'store'"


def solve(pack, *statements):
    """Return the trace of an agent whose model is scripted to run *statements* one after the other and then to stop."""
    script = iter(statements)

    def respond(*_):
        statement = next(script, None)
        requests = (ToolRequest(id="q", tool="sql", arguments={"query": statement}),) if statement else ()
        return Reply(text="" if statement else "I am done.", tool_requests=requests)

    model, messages, steps = ScriptedModel(respond), [Message(role="user", content="What broke?")], []
    with duckdb.connect() as database:
        for period in ("normal", "abnormal"):
            database.execute(f"CREATE VIEW {period}_traces AS FROM '{pack.path}/{period}_traces.parquet'")
        while not steps or steps[-1].tool_logs:
            reply = model.complete(messages)
            logs = tuple(
                ToolCall(
                    tool="sql", arguments=r.arguments, output=str(database.execute(r.arguments["query"]).fetchall())
                )
                for r in reply.tool_requests
            )
            at = START_NS + len(steps) * SECOND
            steps.append(
                TraceStep(
                    step_id=len(steps) + 1, agent_id="0", agent_name="solver", input_context="", output_content=reply.text,
                    tool_logs=logs, started_at=at, ended_at=at + SECOND // 2,
                )
            )  # fmt: skip
    return Trace(task_id="t", task_instruction="What broke?", system_name="solver", steps=tuple(steps))


def blaming(*services):
    return Diagnosis(root_causes=tuple(RootCauseClaim(service=service) for service in services))


@pytest.fixture(scope="module")
def truth():
    return make_annotation(make_incident()).graph  # store breaks cart breaks frontend


@pytest.fixture(scope="module")
def silent(tmp_path_factory):
    return make_pack(tmp_path_factory.mktemp("silent") / "pack", silent="store", error_in="cart")


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    return make_pack(tmp_path_factory.mktemp("failing") / "pack", error_in="store")


def found(trace, answer, truth, view):
    return {finding.name: finding for finding in find_patterns(trace, answer, truth, view)}


def test_an_answer_with_all_true_roots_has_no_pattern(truth, silent):
    assert found(solve(silent, ALL_SERVICES), blaming("store"), truth, silent) == {}
    assert found(solve(silent, ALL_SERVICES), blaming("store", "cart"), truth, silent) == {}


def test_premature_commitment_is_the_step_that_had_the_root_in_view_and_was_not_followed(truth, failing):
    finding = found(solve(failing, NOW, ERRORS), blaming("frontend"), truth, failing)["premature commitment"]
    assert finding.step == 1
    assert "none of the 1 later steps" in finding.evidence
    assert "store" in finding.evidence
    followed = found(solve(failing, NOW, STORE, ERRORS), blaming("frontend"), truth, failing)
    assert "premature commitment" not in followed
    never_seen = found(solve(failing, "SELECT 1"), blaming("frontend"), truth, failing)
    assert "premature commitment" not in never_seen


def test_presence_bias_is_a_silent_root_and_a_blamed_service_that_only_suffers(truth, silent, failing):
    finding = found(solve(silent, ERRORS, NOW), blaming("cart"), truth, silent)["presence bias"]
    assert finding.step == 1  # the first to list services of the abnormal window without the silent one
    assert "1.0 to 0.0 spans/s" in finding.evidence
    with duckdb.connect() as database:  # the query that it gives really shows the silence
        for period in ("normal", "abnormal"):
            database.execute(f"CREATE VIEW {period}_traces AS FROM '{silent.path}/{period}_traces.parquet'")
        assert database.execute(finding.evidence.rpartition("shown it: ")[2]).fetchall() == [(60, 0)]
    assert "presence bias" not in found(solve(silent, NOW), blaming("elsewhere"), truth, silent)
    assert "presence bias" not in found(solve(failing, NOW), blaming("cart"), truth, failing)  # the root is not silent


def test_the_loudest_signal_is_a_blamed_service_that_complains_most_and_is_no_root(truth, silent, failing):
    finding = found(solve(silent, "SELECT 1", ERRORS), blaming("cart"), truth, silent)["loudest signal"]
    assert finding.step == 2
    assert finding.evidence.startswith("cart complains most")
    assert "store 0" in finding.evidence
    assert "loudest signal" not in found(solve(silent, ERRORS), blaming("frontend-2"), truth, silent)
    # Where a true root complains as much, nobody was deafened by another one.
    assert "loudest signal" not in found(solve(failing, ERRORS), blaming("cart"), truth, failing)


CLAIM = "SEVERE claim: request to cart timed out after 30 s, cart is not responding"


@pytest.fixture(scope="module")
def lying(tmp_path_factory):
    """Store is slow; a line of frontend claims that cart timed out, though the span it stands in is as fast as ever."""
    return _with_line(tmp_path_factory.mktemp("lying") / "pack", CLAIM, duration_ns=None)


def _with_line(path, message, *, duration_ns):
    pack = make_pack(path, slow_in="store", slow_ms=1)
    file = path / "abnormal_logs.parquet"
    logs, spans = pl.read_parquet(file), pl.read_parquet(path / "abnormal_traces.parquet")
    own = spans.filter(pl.col("service_name") == "frontend").row(7, named=True)
    if duration_ns is not None:
        is_own = pl.col("span_id") == own["span_id"]
        longer = pl.when(is_own).then(duration_ns).otherwise(pl.col("duration")).cast(pl.UInt64).alias("duration")
        spans.with_columns(longer).write_parquet(path / "abnormal_traces.parquet")
    line = logs.head(1).with_columns(
        pl.lit("SEVERE").alias("level"), pl.lit(message).alias("message"), pl.lit("frontend").alias("service_name"),
        pl.lit(own["span_id"]).alias("span_id"), pl.lit(own["trace_id"]).alias("trace_id"),
    )  # fmt: skip
    pl.concat([logs, line.cast(logs.schema)]).write_parquet(file)
    return pack


def read_of(text):
    call = ToolCall(tool="logs", arguments={}, output=text)
    steps = [
        TraceStep(
            step_id=i,
            agent_id="0",
            agent_name="solver",
            input_context="",
            output_content="",
            tool_logs=logs,
            kind="tool",
        )
        for i, logs in enumerate([(), (call,), (call,)], 1)
    ]
    return Trace(task_id="t", task_instruction="", system_name="solver", steps=tuple(steps))


def test_the_loudest_text_is_a_line_taken_at_its_word_that_its_own_span_contradicts(truth, lying, tmp_path):
    shown = read_of(f"12:00 frontend SEVERE\n{CLAIM[:40]}\n   {CLAIM[40:]}".replace("  ", " "))
    for blamed in ("cart", "frontend"):  # the one that the line names, and the one that wrote it
        finding = found(shown, blaming(blamed), truth, lying)["loudest signal"]
        assert finding.step == 2
        assert CLAIM in finding.evidence
        assert f"spoke for {blamed} being at fault" in finding.evidence
        assert finding.evidence.endswith("returned without failure in 31 ms, normal p99 30 ms")
    assert "loudest signal" not in found(shown, blaming("elsewhere"), truth, lying)
    assert "loudest signal" not in found(read_of("nothing"), blaming("cart"), truth, lying)  # never in view
    slow = _with_line(tmp_path / "slow", CLAIM, duration_ns=30 * SECOND)  # the line tells the truth
    assert "loudest signal" not in found(shown, blaming("cart"), truth, slow)


def timeline_of(*values, cadence_s=5):
    """Return a timeline with a D1 reading every five seconds from the start on, None for a missed one."""
    ticks = tuple(
        Tick(
            index=i,
            observations=(
                Observation(depth="D1", started_ns=at(i * cadence_s), ended_ns=at(i * cadence_s) + 1, value=value),
            ),
            probes=(Probe(id="p", target="shop", started_ns=at(7), ended_ns=at(8), latency_s=1.0, reachable=False),),
        )
        for i, value in enumerate(values)
    )
    return Timeline(boot_id="b", cadence_s=cadence_s, ticks=ticks)


def at(seconds):
    return START_NS + int(seconds * SECOND)


def act(tool, seconds, **more):
    return Action(tool=tool, arguments={"target": "cart"}, started_ns=at(seconds), ended_ns=at(seconds + 1), **more)


def steps_at(*seconds):
    steps = (
        TraceStep(
            step_id=i,
            agent_id="0",
            agent_name="ops",
            input_context="",
            output_content="",
            started_at=at(s),
            ended_at=at(s + 1),
        )
        for i, s in enumerate(seconds, 1)
    )
    return Trace(task_id="t", task_instruction="", system_name="ops", steps=tuple(steps))


def broken(timeline, actions, trace, **more):
    limits = {"floor": 0.85, "started_ns": at(8), "ended_ns": at(40)} | more
    return first_break(timeline, actions, trace, **limits)


def test_the_first_break_is_blamed_on_the_last_action_before_it_and_its_step():
    timeline = timeline_of(1.0, 0.9, 0.9, None, 0.5, 0.2)  # the fault left 0.9 standing
    actions = [act("logs", 11), act("restart", 16), act("scale", 22)]
    found_ = broken(timeline, actions, steps_at(10, 15, 21))
    assert (found_.value, found_.standing, found_.at_ns) == (0.5, 0.9, at(20) + 1)
    assert (found_.action.tool, found_.step) == ("restart", 2)
    named = broken(timeline, [act("restart", 16, step_id=1)], steps_at(10, 15, 21))
    assert named.step == 1


def test_what_the_fault_itself_broke_is_not_the_agents_doing():
    assert broken(timeline_of(1.0, 0.4, 0.4, 0.4, 0.4), [act("logs", 11)], steps_at(10)) is None
    worse = broken(timeline_of(1.0, 0.4, 0.4, 0.3, 0.4), [act("logs", 11)], steps_at(10))
    assert (worse.value, worse.standing) == (0.3, 0.4)
    assert broken(timeline_of(1.0, 1.0, 1.0, 0.2), [act("x", 30)], steps_at(10)).action is None  # it came too late
    assert broken(timeline_of(1.0, 1.0, 1.0, 0.2), [], steps_at(10), ended_ns=at(14)) is None


def test_all_that_happened_stands_on_one_clock(truth):
    incident = make_incident()
    shown = lanes(
        steps_at(10, 15), actions=[act("restart", 16)], timeline=timeline_of(1.0, None, 0.5),
        faults=make_truth(incident).faults, graph=truth,
    )  # fmt: skip
    by_name = {lane.name: lane.marks for lane in shown}
    assert list(by_name) == ["agent steps", "actions", "probes", "D1", "faults", "causal graph"]
    assert [mark.kind for mark in by_name["D1"]] == ["good", "missed", "bad"]
    assert (by_name["actions"][0].step, by_name["agent steps"][1].step) == (2, 2)
    assert len(by_name["probes"]) == 1  # reported by every tick, sent once
    assert by_name["faults"][0].start_ns == make_truth(incident).faults[0].start_ns
    assert by_name["causal graph"][0].text == "service|store: ERRORING"
