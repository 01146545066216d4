"""The rule-based rows on the public data, exactly as published; scores by hand calculation."""

from __future__ import annotations

import pytest
from benchmarks.papers.blame.scores import breakdown, score, summarise

from opsassay.analysis.blame.labelled import read_labelled
from opsassay.analysis.blame.rules import RULES
from opsassay.core.schema.trajectory import Attribution, LabelledTrace, ToolCall, Trace, TraceStep

GENERATED, CRAFTED = "algorithm-generated", "hand-crafted"


@pytest.fixture(scope="module")
def whoandwhen(real_data):
    return read_labelled(real_data / "whoandwhen")


def accuracy(cases, subset, rule, **options):
    rows = [score(case, RULES[rule](case.trace), **options) for case in cases if case.subset == subset]
    return summarise(rows)


def test_the_published_figures_come_out_exactly(whoandwhen):
    strict = accuracy(whoandwhen, GENERATED, "before-tool-error")
    loose = accuracy(whoandwhen, GENERATED, "before-error-text")
    assert (strict.n, round(100 * strict.agent.value, 1), round(100 * strict.step.value, 1)) == (126, 54.8, 31.0)
    assert (loose.n, round(100 * loose.agent.value, 1), round(100 * loose.step.value, 1)) == (126, 56.3, 32.5)


def test_the_last_step_on_the_crafted_ones_at_hand(whoandwhen):
    last = accuracy(whoandwhen, CRAFTED, "last-step")
    assert (last.n, last.agent.value * last.n, last.step.value * last.n) == (29, 19, 2)  # published on 58: 35 and 7


def test_labels_that_disagree_with_the_speaker_are_named_and_kept(whoandwhen):
    noted = {case.id: case for case in whoandwhen if case.notes}
    assert set(noted) == {
        f"{GENERATED}/14", f"{GENERATED}/15", f"{GENERATED}/59", f"{CRAFTED}/20", f"{CRAFTED}/22"
    }  # fmt: skip
    case = noted[f"{GENERATED}/14"]
    assert case.label.agent_name == "Culinary_Awards_Expert"
    assert case.trace.steps[2].agent_name == "Computer_terminal"
    assert case.label.step_id == 3


def test_the_importer_counts_from_one_and_strips_role_suffixes(whoandwhen):
    crafted = [case.trace for case in whoandwhen if case.subset == CRAFTED]
    assert {name for trace in crafted for name in trace.agents()} == {
        "human", "Orchestrator", "WebSurfer", "FileSurfer", "Assistant", "ComputerTerminal"
    }  # fmt: skip
    assert all([step.step_id for step in t.steps] == list(range(1, len(t.steps) + 1)) for t in crafted)
    assert crafted[0].steps[0].agent_id == "0"


def case_of(n, agent, step):
    steps = [
        TraceStep(step_id=i, agent_id=str(i % 2), agent_name="AB"[i % 2], input_context="", output_content="")
        for i in range(1, n + 1)
    ]
    trace = Trace(task_id="t", task_instruction="", system_name="s", steps=tuple(steps))
    return LabelledTrace(id="x", subset="u", trace=trace, label=Attribution(agent_name=agent, step_id=step))


@pytest.mark.parametrize(
    ("label", "said", "found"),
    [(2, 13, {"whoandwhen"}), (1, 12, {"traceelephant"}), (1, 11, {"whoandwhen", "traceelephant"}), (3, 2, set())],
)
def test_the_scorers_of_papers_look_inside_the_answer_and_count_from_0_or_1(label, said, found):
    case, answer = case_of(14, "B", label), Attribution(agent_name="Big B", step_id=said)
    rows = {scorer: score(case, answer, scorer=scorer) for scorer in ("exact", "whoandwhen", "traceelephant")}
    assert {scorer for scorer, row in rows.items() if row.step} == found
    assert {scorer for scorer, row in rows.items() if row.agent} == {"whoandwhen", "traceelephant"}


def test_no_answer_is_wrong_and_shown_apart():
    row = score(case_of(3, "B", 1), Attribution())
    summary = summarise([row, score(case_of(3, "B", 1), Attribution(agent_name="B", step_id=2))])
    assert (row.answered, row.agent, row.step) == (False, False, False)
    assert (summary.n, summary.unanswered, summary.agent.value, summary.step.value) == (1, 0.5, 0.5, 0.0)
    assert summary.step_within.value == 0.5


def test_tolerance_thirds_and_intervals_by_hand():
    case = case_of(9, "B", 3)
    assert [score(case, Attribution(agent_name="A", step_id=s), tolerance=2).step_within for s in (1, 5, 6)] == [
        True,
        True,
        False,
    ]
    assert [score(case_of(9, "B", s), Attribution()).third for s in (1, 3, 4, 6, 7, 9)] == [
        "early", "early", "middle", "middle", "late", "late"
    ]  # fmt: skip
    assert breakdown([score(case, Attribution())], "third").keys() == {"early"}


def test_a_step_that_holds_its_own_failed_call_is_blamed_itself():
    case = case_of(4, "B", 3)
    called = ToolCall(tool="sql", arguments={"q": "x"}, output="no such table", status="error")
    steps = [s.model_copy(update={"tool_logs": (called,)}) if s.step_id == 3 else s for s in case.trace.steps]
    assert RULES["before-tool-error"](case.trace.model_copy(update={"steps": tuple(steps)})).step_id == 3


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_deterministic_and_answers_an_empty_trace_with_nothing(rule):
    empty = Trace(task_id="t", task_instruction="", system_name="s")
    assert RULES[rule](empty).step_id is None
    case = case_of(7, "B", 3)
    answer = RULES[rule](case.trace)
    assert answer == RULES[rule](case.trace)
    assert answer.agent_name == case.trace.steps[answer.step_id - 1].agent_name
