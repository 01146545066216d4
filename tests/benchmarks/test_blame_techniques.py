"""Techniques of papers: the spectrum by hand and on runs of a real system, votes, corrections, published prompts."""

from __future__ import annotations

import json
import math
import random
import sys
from pathlib import Path

import pytest
from benchmarks.papers.blame.__main__ import cli
from benchmarks.papers.blame.bench import Bench, bench
from benchmarks.papers.blame.echo import ANALYSTS, echo, elected, in_levels
from benchmarks.papers.blame.prompts import read_prompts
from benchmarks.papers.blame.settings import BenchSettings
from benchmarks.papers.blame.spectrum import suspects
from benchmarks.papers.running import run

from opsassay.analysis.blame.asking import BlameAsker
from opsassay.analysis.blame.rerun import ProxyRerun
from opsassay.core.errors import ConfigError, UserError
from opsassay.core.schema.trajectory import Attribution, LabelledTrace, ToolCall, Trace, TraceStep
from opsassay.solvers.agents.models.base import Reply
from opsassay.solvers.agents.models.scripted import ScriptedModel
from opsassay.solvers.agents.models.server import running_server

EXAMPLES = Path(__file__).parents[2] / "examples" / "multi_agent"
sys.path.insert(0, str(EXAMPLES))
import analyst  # noqa: E402
import failures  # noqa: E402

WHO_AND_WHEN = Path(__file__).parents[3] / "shared" / "data" / "whoandwhen"
ONCE = BenchSettings(runs=1, retries=0)


def trace(*said, id_="t", reference="42"):
    """Return a trace of (agent, text) steps."""
    steps = tuple(
        TraceStep(step_id=n, agent_id=agent, agent_name=agent, input_context="given", output_content=text)
        for n, (agent, text) in enumerate(said, 1)
    )
    return Trace(task_id=id_, task_instruction="add", system_name="s", steps=steps, reference_answer=reference)


def labelled(one, step=2):
    label = Attribution(agent_name=one.steps[step - 1].agent_name, step_id=step)
    return LabelledTrace(id=one.task_id, subset="u", trace=one, label=label)


def test_suspiciousness_is_that_of_the_formula_by_hand():
    failed = trace(("A", "plan"), ("B", "wrong"), ("B", "wrong"), ("A", "end"))
    others = [
        (trace(("A", "plan"), ("B", "right"), ("A", "end")), True),
        (trace(("A", "plan"), ("B", "wrong"), ("B", "right"), ("A", "end")), True),
        (trace(("A", "plan"), ("B", "wrong"), ("A", "end")), False),
    ]
    found = {one.action: one for one in suspects(failed, others, factors=True)}
    plain = {one.action: one.suspiciousness for one in suspects(failed, others)}
    # wrong: twice in the failed run (weight 0.9), once in another failed one, once in one that succeeds; B acts in all four
    weight = 0.9 + 1
    kulczynski = (weight / weight + weight / (weight + 1)) / 2
    by_hand = kulczynski * (1 + math.log(2) / math.log(1 / 0.9))
    assert plain["wrong"] == pytest.approx(by_hand)
    assert found["wrong"].suspiciousness == pytest.approx(by_hand * (1 + 3 / 4) * (1 + 4 / 6))
    assert (found["wrong"].failed, found["wrong"].succeeded, found["wrong"].step) == (2, 1, 2)
    plan = (2 / 2 + 2 / 4) / 2
    assert plain["plan"] == pytest.approx(plan)
    assert found["plan"].suspiciousness == pytest.approx(plan * (1 + 4 / 4) * (1 + 4 / 8))


def test_with_the_agents_factors_what_every_run_does_outranks_what_only_failed_runs_do():
    failed = trace(("A", "plan"), ("B", "wrong"))
    for failing in range(6):
        others = [(trace(("A", "plan"), ("B", "wrong")), False)] * failing
        others += [(trace(("A", "plan"), ("B", "right")), True)] * (5 - failing)
        assert suspects(failed, others, factors=True)[0].action == "plan"
        assert suspects(failed, others)[0].action == ("wrong" if failing < 5 else "plan")


def test_an_action_that_only_some_failed_runs_have_counts_less_and_calls_are_part_of_it():
    call = ToolCall(tool="add", arguments={"n": 1}, output="2", status="ok")
    with_call = trace(("A", "x"))
    with_call = with_call.model_copy(update={"steps": (with_call.steps[0].model_copy(update={"tool_logs": (call,)}),)})
    (alone,) = suspects(with_call, [(trace(("A", "x")), False)])
    assert (alone.failed, alone.succeeded) == (1, 0)  # the other one says the same and calls nothing
    assert alone.suspiciousness == pytest.approx((1 / 2 + 1) / 2)


def test_alike_actions_are_one_where_the_setting_says_so_and_times_never_tell_them_apart():
    failed = trace(("A", "at 12:00:01 I found a total of 41 for the whole order of yours"))
    other = trace(("A", "at 12:09:55 I found a total of 42 for the whole order of yours"))
    assert [one.succeeded for one in suspects(failed, [(other, True)])] == [0]
    assert [one.succeeded for one in suspects(failed, [(other, True)], alike=0.9)] == [1]
    same = trace(("A", "at 12:30:00 I found a total of 41 for the whole order of yours"))
    assert [one.failed for one in suspects(failed, [(same, False)])] == [2]


def planted(name):
    return next(one for one in failures.failures() if one.name == name)


def team(failure, chance):
    """Return the planted model as it is for the failed run, and by chance from the second run on."""
    draw = random.Random(5)
    always, sometimes = failure.model(), failures.Team(failure.planted, failure.decoy)
    sometimes._random, sometimes._chance = draw, chance
    return always, sometimes


@pytest.mark.slow
def test_further_runs_of_a_real_system_point_at_the_mistake_that_was_planted(tmp_path):
    failure = planted("planner-workers-0-3")  # the writer adds wrongly, at the last step
    always, sometimes = team(failure, 0.5)
    with running_server(always) as upstream:
        one, exchanges = failures.record(failure, upstream)
    case = LabelledTrace(
        id=failure.name, subset="u", trace=one, label=Attribution(agent_name=failure.agent, step_id=failure.step)
    )
    with running_server(sometimes) as upstream:
        again = ProxyRerun(failure.start, exchanges, upstream)
        how = Bench(settings=ONCE.model_copy(update={"repeats": 12}), rerun_of=lambda _: again, folder=tmp_path)
        result = bench([case], ["spectrum"], how)
    (line,) = [one for one in result.answers if one.technique == "spectrum"]
    assert (line.agent, line.step, line.calls, line.model) == ("Writer", failure.step, 0, None)
    assert "failed runs and in 0 of" in line.reason
    row = next(one for one in result.rows if one.technique == "spectrum")
    assert (row.summary.n, row.summary.step.value) == (1, 1.0)


@pytest.mark.slow
def test_the_earliest_correction_that_makes_the_run_succeed_is_decisive():
    failure = planted("planner-workers-0-0")  # the planner plans ten too many, at the first step
    with running_server(failure.model()) as upstream:
        one, exchanges = failures.record(failure, upstream)
        again = ProxyRerun(failure.start, exchanges, upstream)
        model = ScriptedModel(analyst.respond, "analyst")
        case = LabelledTrace(id="x", subset="u", trace=one, label=Attribution(agent_name="Planner", step_id=1))
        result = bench([case], ["counterfactual"], Bench(settings=ONCE, model=model, rerun_of=lambda _: again))
    (line,) = [one for one in result.answers if one.technique == "counterfactual"]
    assert (line.agent, line.step) == ("Planner", 1), line.reason
    assert line.reason.startswith("corrected, the run succeeds")


def test_what_runs_systems_again_needs_a_system_and_a_reference_answer():
    case = labelled(trace(("A", "x"), ("B", "y"), reference=None))
    for technique in ("spectrum", "counterfactual"):
        with pytest.raises(UserError, match="none of the 1 traces can be"):
            bench([case], [technique], Bench(settings=ONCE))
    with pytest.raises(UserError, match="no reference answer"):
        bench([case], ["spectrum"], Bench(settings=ONCE, rerun_of=lambda _: object()))


def voting(votes):
    """Return a model that answers what the analyst of its first line votes for."""

    def respond(messages, _):
        name = next(one for one in ANALYSTS if f"the {one} analyst" in messages[0].content)
        return Reply(text=json.dumps(votes[name]))

    return ScriptedModel(respond, "m")


def test_votes_are_weighted_by_confidence_agents_first_then_their_steps():
    one = trace(("A", "x"), ("B", "y"), ("A", "z"))
    votes = {name: {"agent": "A", "step": 1, "confidence": 0.1} for name in ANALYSTS}
    votes["detail"] = {"agent": "B", "step": 2, "confidence": 0.45}
    votes["pattern"] = {"agent": "A", "step": 3, "confidence": 0.3, "reason": "again"}
    asker = BlameAsker(voting(votes), 0.3)
    found = echo(one, asker, ONCE)
    # A has 4 x 0.1 + 0.3 = 0.7 against 0.45; of A's votes step 1 has 0.4 against 0.3
    assert (found.agent_name, found.step_id, asker.cost.calls) == ("A", 1, 6)
    assert found.reason.startswith("0.40 of 1.15 confidence")
    nothing = elected([(0.9, Attribution()), (0.5, Attribution(reason="?"))])
    assert (nothing.step_id, nothing.reason) == (None, "no analyst named a step of the trace")
    tied = elected([(0.5, Attribution(agent_name="B", step_id=2)), (0.5, Attribution(agent_name="A", step_id=1))])
    assert tied.agent_name == "A"


def test_steps_are_shown_in_less_detail_the_further_they_are_from_the_end():
    text = in_levels(trace(*[("A", f"{n} " + "word " * 900) for n in range(12)]))
    lengths = [len(part) for part in text.split("\n\n=== ")]
    assert lengths[-1] > 4_400 and lengths[-2] > 4_400  # noqa: PT018
    assert all(2_000 < one < 2_200 for one in lengths[-4:-2])
    assert all(500 < one < 650 for one in lengths[-7:-4])
    assert all(one < 300 for one in lengths[:-7])
    assert text.count("given") == 2


PROMPTS = """
all-at-once: {system: Be brief., user: "Task $problem\\nAnswer: $answer\\n$conversation\\nWho?"}
step-by-step: {user: "$conversation\\nStep $step by $agent?"}
binary-search: {user: "$segment\\nupper $upper, lower $lower"}
"""


def asked(tmp_path, name, respond, one, text=PROMPTS):
    (tmp_path / "prompts.yaml").write_text(text)
    technique, _ = read_prompts(tmp_path / "prompts.yaml")[f"prompts:{name}"]
    seen = []

    def answer(messages, tools):
        seen.append(messages)
        return Reply(text=respond(messages[-1].content))

    return technique(one, BlameAsker(ScriptedModel(answer, "m"), 0.0), ONCE, None), seen


def test_published_prompts_are_asked_and_read_as_their_code_does(tmp_path):
    one = trace(*[("AB"[n % 2], f"text {n}") for n in range(5)])
    said = "1. Agent Name: B\n2. Step Number: 3\nReason for Mistake: it says so"
    found, seen = asked(tmp_path, "all-at-once", lambda _: said, one)
    assert (found.agent_name, found.step_id, found.reason) == ("B", 4, "it says so")  # they count from 0
    assert [m.content for m in seen[0]] == [
        "Be brief.",
        "Task add\nAnswer: 42\nA: text 0\nB: text 1\nA: text 2\nB: text 3\nA: text 4\nWho?",
    ]
    _, seen = asked(tmp_path, "all-at-once", lambda _: said, one.model_copy(update={"reference_answer": None}))
    assert "Answer" not in seen[0][-1].content
    found, seen = asked(tmp_path, "step-by-step", lambda text: "1. Yes" if "Step 2 by A?" in text else "1. No", one)
    assert (found.agent_name, found.step_id, len(seen)) == ("A", 3, 3)
    assert "Step 0 - A: text 0" in seen[1][-1].content
    found, seen = asked(tmp_path, "step-by-step", lambda _: "1. No.", one)
    assert (found.step_id, len(seen)) == (5, 5)  # the last step stands in, as in the public code
    found, seen = asked(
        tmp_path, "binary-search", lambda text: "lower half" if "lower 3 to 4" in text else "upper half", one
    )
    assert (found.step_id, len(seen)) == (4, 2)
    found, _ = asked(tmp_path, "binary-search", lambda _: "neither", one)
    assert (found.step_id, found.reason) == (None, "no half was named: neither")


def test_a_prompt_that_names_what_there_is_not_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be filled in .*\$problem, \$answer, \$conversation"):
        asked(tmp_path, "all-at-once", str, trace(("A", "x")), "all-at-once: {user: '$histroy'}")
    (tmp_path / "empty.yaml").write_text("{}")
    with pytest.raises(ConfigError, match="has no prompt"):
        read_prompts(tmp_path / "empty.yaml")


def written(tmp_path, count=6):
    """Write labelled traces of our own form, every second one of one task in two systems, and return the folder."""
    from opsassay.telemetry.tree import write_noun

    for kind in ("traces", "labels"):
        (tmp_path / "folder" / kind).mkdir(parents=True)
    for n in range(count):
        one = trace(("Planner", "p"), ("WebSurfer", "w"), ("Coder", "c")).model_copy(
            update={"task_instruction": f"task {n // 2}", "system_name": "st"[n % 2]}
        )
        label = Attribution(agent_name=("Planner", "WebSurfer")[n % 3 > 0], step_id=1 + (n % 3 > 0), reason="why")
        write_noun(tmp_path / "folder" / "traces" / f"{n}.json", one)
        write_noun(tmp_path / "folder" / "labels" / f"{n}.json", label)
    return tmp_path / "folder"


def test_labels_have_distributions_and_a_collapsed_technique_shows(tmp_path, capsys):
    folder = written(tmp_path)
    assert run(cli, ["bench", str(folder), "-o", str(tmp_path / "kept")]) == 0
    capsys.readouterr()
    assert run(cli, ["labels", str(folder), "--answers", str(tmp_path / "kept"), "--json"]) == 0
    agents, steps, accuracy, modal = json.loads(capsys.readouterr().out)["items"]
    assert [row["responsible agent"] for row in agents["rows"] if row["system"] == "s"] == ["WebSurfer", "Planner"]
    assert [row["share"] for row in agents["rows"] if row["system"] == "s"] == ["66.7%", "33.3%"]
    assert [(row["early"], row["middle"]) for row in steps["rows"]] == [("33.3%", "66.7%")] * 2
    by_name = {row["technique"]: row for row in modal["rows"]}
    assert (by_name["labels"]["modal agent"], by_name["labels"]["share of it"]) == ("WebSurfer", "66.7%")
    assert (by_name["last-step"]["modal agent"], by_name["last-step"]["share of it"]) == ("Coder", "100.0%")
    first = next(row for row in accuracy["rows"] if row["technique"] == "first-step")
    assert (first["agent, planner"], first["agent, web"], first["step, early"]) == ("100.0%", "0.0%", "100.0%")
    assert run(cli, ["labels", str(folder), "-o", str(tmp_path / "page.md")]) == 0
    assert "Responsible agents" in (tmp_path / "page.md").read_text()


def test_training_data_is_the_question_with_its_label_and_no_task_is_in_both_splits(tmp_path, capsys):
    folder = written(tmp_path, 40)
    out = tmp_path / "training.jsonl"
    assert run(cli, ["training", str(folder), "-o", str(out), "-c", "reference=false", "--held-out", "0.3"]) == 0
    items = [json.loads(one) for one in out.read_text().splitlines()]
    assert len(items) == 40
    assert {item["split"] for item in items} == {"train", "test"}
    tasks = {}
    for item in items:
        roles = [message["role"] for message in item["messages"]]
        assert roles == ["system", "user", "assistant"]
        assert "42" not in item["messages"][1]["content"]  # the reference answer is hidden
        assert json.loads(item["messages"][2]["content"]) == item["label"]
        tasks.setdefault(item["messages"][1]["content"].split("\n")[0], set()).add(item["split"])
    assert len(tasks) == 20
    assert all(len(splits) == 1 for splits in tasks.values())


def test_the_response_only_arm_shows_outputs_alone_and_is_a_row_of_its_own(tmp_path, capsys):
    folder = written(tmp_path, 2)
    script = tmp_path / "model.py"
    script.write_text(
        "from opsassay.solvers.agents.models.base import Reply\n"
        "def respond(messages, tools):\n"
        "    text = messages[-1].content\n"
        "    step = 1 if 'given' in text or 'Task:' in text else 2\n"
        '    return Reply(text=\'{"agent": "x", "step": %d}\' % step)\n'
    )
    arguments = ["bench", str(folder), "--technique", "all-at-once", "--model", f"scripted:{script}", "-c", "runs=1"]
    kept = tmp_path / "kept"
    for arm in ([], ["--arm", "response-only"]):
        assert run(cli, [*arguments, *arm, "-o", str(kept)]) == 0
    lines = [json.loads(one) for one in (kept / "answers.jsonl").read_text().splitlines()]
    said = {(line.get("arm", ""), line["step"]) for line in lines if line["technique"] == "all-at-once"}
    assert said == {("", 1), ("metadata=false, inputs=false", 2)}
