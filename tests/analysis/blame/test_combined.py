"""The combined rule-based method on public data, by leave-one-out, beside the best single rule."""

from __future__ import annotations

import pytest
from benchmarks.papers.blame.fitting import fit, leave_one_out
from benchmarks.papers.blame.scores import score, summarise

from opsassay.analysis.blame.combined import FEATURES, shipped
from opsassay.analysis.blame.labelled import read_labelled
from opsassay.analysis.blame.rules import RULES
from opsassay.core.schema.trajectory import Attribution, LabelledTrace, Trace, TraceStep


@pytest.fixture(scope="module")
def whoandwhen(real_data):
    return read_labelled(real_data / "whoandwhen")


def accuracies(cases, answers):
    summary = summarise(score(case, answer) for case, answer in zip(cases, answers, strict=True))
    return summary.agent.value, summary.step.value


@pytest.mark.slow
@pytest.mark.parametrize("subset", ["algorithm-generated", "hand-crafted"])
def test_it_beats_the_best_single_rule_without_having_seen_the_label(whoandwhen, subset):
    cases = [case for case in whoandwhen if case.subset == subset]
    single = [accuracies(cases, [rule(case.trace) for case in cases]) for rule in RULES.values()]
    # What cross-validation inside the training traces chooses most often; choosing anew each time takes minutes.
    agent, step = accuracies(cases, leave_one_out(cases, penalties=(4.0,)))
    assert agent > max(a for a, _ in single)
    assert step > max(s for _, s in single)


@pytest.mark.slow
def test_it_learns_what_is_there_to_learn():
    def case(at):
        steps = tuple(
            TraceStep(
                step_id=i,
                agent_id="0",
                agent_name="A",
                input_context="",
                output_content="I assume so" if i == at else "yes",
            )
            for i in range(1, 8)
        )
        trace = Trace(task_id=str(at), task_instruction="", system_name="s", steps=steps)
        return LabelledTrace(id=str(at), subset="s", trace=trace, label=Attribution(agent_name="A", step_id=at))

    cases = [case(at) for at in (2, 3, 4, 5, 6, 3, 5)]
    assert [a.step_id for a in leave_one_out(cases, penalties=(0.1, 1.0))] == [2, 3, 4, 5, 6, 3, 5]
    assert fit(cases, (0.1,)).weights["hedges"] > 1
    assert fit(cases).attribute(cases[0].trace).reason.startswith("hedges")


def test_the_shipped_weights_fit_the_features_and_answer_any_trace():
    assert set(shipped().weights) == set(FEATURES)
    assert shipped().attribute(Trace(task_id="t", task_instruction="", system_name="s")).step_id is None
