"""TraceElephant as it is released: every layout, answers printed by openai's own models, and pieces that are odd."""

from __future__ import annotations

import json
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.completion_usage import CompletionUsage

from opsassay.analysis.blame.labelled import read_labelled
from opsassay.analysis.blame.rules import RULES
from opsassay.core.errors import DatapackError, UserError
from opsassay.solvers.proxy.formats import read_one, read_traces
from opsassay.solvers.proxy.formats.elephant import is_object_repr, parse_object_repr

NASTY = "it's \"quoted\"\n\ttabs {braces: [1, 'x')]} content='no', \\ back\\n \u2028 \x00 \x1b[0m ☃ 🐘 'ends with\\'"


def completion(content=NASTY, tools=(), refusal=None, **further):
    calls = [
        {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for n, (name, arguments) in enumerate(tools)
    ]
    message = {"role": "assistant", "content": content, "refusal": refusal, "tool_calls": calls or None}
    choice = {"index": 0, "finish_reason": "tool_calls" if calls else "stop", "logprobs": None, "message": message}
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 3, "audio_tokens": None},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    about = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4o-2024-08-06"}
    return ChatCompletion.model_validate({**about, "choices": [choice], "usage": usage, **further})


def request(*messages):
    return {
        "messages": [{"role": role, "content": text} for role, text in messages],
        "model": "gpt-4o",
        "stream": False,
    }


ABOUT = {
    "task_instruction": "What is it?",
    "ground_truth": "42",
    "tests_status": None,
    "mistake_agent": "Checker",
    "mistake_step": 2,
    "mistake_reason": "it did not look",
    "agent_system_intro": "two agents",
}


def write_task(folder, steps, about=ABOUT, names=("trace_metadata.json", "step_records.json")):
    folder.mkdir(parents=True)
    (folder / names[0]).write_text(json.dumps(about), encoding="utf-8")
    (folder / names[1]).write_text(json.dumps(steps), encoding="utf-8")
    return folder


def two_steps(printed=repr):
    return [
        {
            "agent_name": "Orchestrator (-> Checker)",
            "input": request(("system", "Lead."), ("user", "go")),
            "output": printed(completion()),
        },
        {"agent_name": "Checker", "input": request(("user", NASTY)), "output": printed(completion("fine"))},
    ]


@pytest.mark.parametrize("printed", [repr, lambda c: c.model_dump(), lambda c: json.loads(c.model_dump_json())])
def test_a_task_is_read_from_the_text_that_openai_prints_and_from_the_object(tmp_path, printed):
    write_task(tmp_path / "data" / "captain-runs-gaia" / "task_1", two_steps(printed))
    (case,) = read_labelled(tmp_path)
    first, second = case.trace.steps
    assert first.output_content == NASTY
    assert (first.agent_name, first.input_context) == ("Orchestrator", "[system]\nLead.\n\n[user]\ngo")
    assert (first.usage, first.model, first.request_id, first.error) == (
        {"input_tokens": 11, "output_tokens": 7, "cached_tokens": 3, "reasoning_tokens": 2},
        "gpt-4o-2024-08-06", "chatcmpl-1", None,
    )  # fmt: skip
    assert second.input_context == f"[user]\n{NASTY}"
    assert (case.id, case.subset, case.trace.system_name) == (
        "captain-runs-gaia/task_1",
        "captain-runs-gaia",
        "Captain-Agent",
    )
    assert (case.label.agent_name, case.label.step_id, case.label.reason) == ("Checker", 2, "it did not look")
    assert (case.trace.task_instruction, case.trace.reference_answer) == ("What is it?", "42")
    assert (case.trace.system_architecture, case.notes) == ("two agents", ())
    assert read_one(tmp_path / "data" / "captain-runs-gaia" / "task_1") == case.trace
    assert read_one(tmp_path / "data" / "captain-runs-gaia" / "task_1" / "step_records.json") == case.trace


def test_the_older_pair_the_single_file_and_whoandwhen_lie_side_by_side(tmp_path):
    older = {"question": "Q", "ground_truth": "A", "mistake_agent": "B", "mistake_step": "2", "agent_system_intro": "i"}
    told = [
        {"agent_name": "A", "request": request(("user", "q")), "response": completion("one").model_dump()},
        {"agent_name": "B", "request": request(("user", "one")), "response": {"content": "two", "role": "assistant"}},
        {"agent_name": "B", "request": {}, "response": "three"},
    ]
    write_task(tmp_path / "magentic-runs-assistant-bench" / "t1", told, older, ("summary.json", "history.json"))
    flat = {**older, "history": told}
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "7.json").write_text(json.dumps(flat))
    who = {
        "history": [{"name": "A", "content": "x"}, {"name": "B", "content": "y"}],
        "mistake_agent": "B",
        "mistake_step": "1",
    }
    (tmp_path / "who").mkdir()
    (tmp_path / "who" / "1.json").write_text(json.dumps(who))
    found = {case.id: case for case in read_labelled(tmp_path)}
    assert found.keys() == {"magentic-runs-assistant-bench/t1", "flat/7", "who/1"}
    pair = found["magentic-runs-assistant-bench/t1"]
    assert [step.output_content for step in pair.trace.steps] == ["one", "two", "three"]
    assert (pair.label.step_id, pair.trace.system_name, pair.trace.task_instruction) == (2, "Magentic-One", "Q")
    assert found["flat/7"].trace.steps == pair.trace.steps
    assert found["flat/7"].label.step_id == 2  # counted from 1
    assert found["who/1"].label.step_id == 2  # counted from 0
    assert read_traces(tmp_path / "flat" / "7.json")[0].steps == pair.trace.steps


def test_traces_of_the_same_name_in_folders_of_the_same_name_stay_apart(tmp_path):
    for above in ("first", "second", "third"):
        write_task(tmp_path / above / "captain-runs-gaia" / "t", two_steps())
    names = [case.id for case in read_labelled(tmp_path)]
    assert names == ["captain-runs-gaia/t", "captain-runs-gaia/t (2)", "captain-runs-gaia/t (3)"]


def test_tool_calls_find_their_results_in_later_requests_wherever_the_calls_stand(tmp_path):
    call = completion(None, tools=[("search", {"q": "it's {x}"})])
    answered = request(("user", "go"))
    answered["messages"] += [
        {"role": "assistant", "content": None, "tool_calls": call.model_dump()["choices"][0]["message"]["tool_calls"]},
        {"role": "tool", "tool_call_id": "call_0", "content": "Error: no such page"},
    ]
    beside = {"agent_name": "bash", "input": request(("user", "go")), "output": repr(completion("")), "tool_logs": [
        {"id": "call_0", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}
    ]}  # fmt: skip
    steps = [
        {"agent_name": "Web", "input": request(("user", "go")), "output": repr(call)},
        {"agent_name": "Web", "input": answered, "output": repr(completion("gone"))},
    ]
    tests = {"FAIL_TO_PASS": {"success": [], "failure": ["test_a"]}}
    about = {**ABOUT, "ground_truth": None, "tests_status": tests, "mistake_step": 1, "mistake_agent": "Web"}
    write_task(tmp_path / "swe-agent-runs-swe-bench" / "a", steps, about)
    write_task(tmp_path / "swe-agent-runs-swe-bench" / "b", [beside, steps[1]], {**about, "mistake_agent": "bash"})
    inside, outside = read_labelled(tmp_path)
    (log,) = inside.trace.steps[0].tool_logs
    assert (log.tool, log.arguments, log.output, log.status) == (
        "search", {"q": "it's {x}"}, "Error: no such page", "error",
    )  # fmt: skip
    assert (inside.trace.steps[0].output_content, inside.trace.steps[0].kind) == ("", "tool")
    (log,) = outside.trace.steps[0].tool_logs
    assert (log.tool, log.arguments, log.output) == ("bash", {"command": "ls"}, "Error: no such page")
    assert json.loads(inside.trace.reference_answer) == tests  # tests stand in where there is no answer
    assert RULES["before-tool-error"](inside.trace).step_id == 1


def test_a_refusal_is_what_was_said():
    refused = completion(None, refusal='I can\'t "do" that.')
    assert parse_object_repr(repr(refused))["choices"][0]["message"]["refusal"] == 'I can\'t "do" that.'


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ({"mistake_step": "step 2"}, 2),
        ({"mistake_step": "2"}, 2),
        ({"mistake_step": 2.0}, 2),
        ({"mistake_step": "2-4"}, "names no one step"),
        ({"mistake_step": "the second"}, "names no one step"),
        ({"mistake_step": True}, "names no one step"),
        ({"mistake_step": -1}, "names no one step"),
        ({"mistake_step": "1.5"}, "names no one step"),
        ({"mistake_step": 9}, "steps 1 to 2"),
        ({"mistake_step": 0}, "steps 1 to 2"),
        ({"mistake_step": ""}, "has no label"),
        ({"mistake_agent": None}, "has no label"),
    ],
)
def test_a_label_that_names_no_step_loses_its_own_trace_alone(tmp_path, label, said):
    write_task(tmp_path / "captain-runs-gaia" / "good", two_steps())
    write_task(tmp_path / "captain-runs-gaia" / "odd", two_steps(), {**ABOUT, **label})
    odd = []
    found = {case.id.rpartition("/")[2]: case for case in read_labelled(tmp_path, odd.append)}
    if isinstance(said, int):
        assert (found["odd"].label.step_id, odd) == (said, [])
        return
    assert list(found) == ["good"]
    assert len(odd) == 1
    assert said in odd[0]
    assert "odd" in odd[0]
    with pytest.raises(DatapackError, match=said):
        read_labelled(tmp_path)


def test_every_odd_piece_is_told_in_a_sentence_and_the_rest_is_read(tmp_path):
    runs = tmp_path / "captain-runs-gaia"
    write_task(runs / "good", two_steps())
    (runs / "._good.json").write_bytes(b"\x00\x05\x16\x07 a Mac's")
    write_task(runs / "no-steps", two_steps())
    (runs / "no-steps" / "step_records.json").unlink()
    (runs / "pictures").mkdir()
    write_task(runs / "cut", two_steps())
    (runs / "cut" / "step_records.json").write_text('[{"agent_name"')
    write_task(runs / "nameless", [{"input": {}, "output": ""}])
    write_task(runs / "empty", [])
    write_task(runs / "about", two_steps(), about=[1])
    write_task(runs / "words", ["no", "objects"])
    (runs / "good" / "screen").mkdir()
    (runs / "good" / "screen" / "state.json").write_text("{")  # an agent's own file, no trace
    odd = []
    (case,) = read_labelled(tmp_path, odd.append)
    assert case.id == "captain-runs-gaia/good"
    said = {
        name: [one for one in odd if name in one]
        for name in ("no-steps", "pictures", "cut", "nameless", "empty", "about", "words")
    }
    assert {name: len(texts) for name, texts in said.items()} == dict.fromkeys(said, 1)
    assert len(odd) == 7
    assert "no step_records.json" in said["no-steps"][0]
    assert all("\n" not in one and one.endswith(".") for one in odd)
    with pytest.raises(UserError, match="holds no labelled traces"):
        read_labelled(runs / "pictures")


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (repr(completion())[:-1], "cut off"),
        (repr(completion())[:90], "unexpected"),
        ("ChatCompletion(id=__import__('os').system('true'))", "unexpected"),
        ("ChatCompletion(id=(lambda: 1)())", "unexpected"),
        ("ChatCompletion(id=" + "[" * 5000 + "]" * 5000 + ")", "nested"),
        ("ChatCompletion(id='a' 'b')", "unexpected"),
    ],
)
def test_an_answer_that_is_no_whole_object_stays_text_and_is_noted(tmp_path, output, why):
    steps = two_steps()
    steps[1]["output"] = output
    write_task(tmp_path / "captain-runs-gaia" / "t", steps)
    (case,) = read_labelled(tmp_path)
    assert case.trace.steps[1].output_content == output
    assert case.trace.steps[0].output_content == NASTY
    (note,) = case.notes
    assert note.startswith("step 2 has an output that is no whole printed object")
    assert why in note


def test_text_that_only_looks_like_an_object_is_text(tmp_path):
    steps = two_steps()
    steps[0]["output"], steps[1]["output"] = "Note(to='self',  x=1)", {"anything": [1]}
    steps[0]["step_id"] = 7
    write_task(tmp_path / "captain-runs-gaia" / "t", steps)
    (case,) = read_labelled(tmp_path)
    assert case.trace.steps[0].output_content == "Note(to='self',  x=1)"
    assert json.loads(case.trace.steps[1].output_content) == {"anything": [1]}
    assert (case.trace.steps[0].step_id, case.notes) == (1, ("step 1 is called 7 in the file",))


TEXTS = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("'\"\\\n{}[](),=<>")))


@pytest.mark.slow
@given(
    TEXTS,
    st.one_of(st.none(), TEXTS),
    st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.booleans(), st.none())),
)
def test_whatever_openai_prints_is_read_back_as_it_was(content, refusal, arguments):
    text = json.dumps(arguments)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
    extra = {
        "content_filter_results": {"hate": {"filtered": False, "severity": -1.5e-3}},
        "tags": ("a", b"b"),
        3: arguments,
    }
    message = ChatCompletionMessage.model_construct(
        role="assistant", content=content, refusal=refusal, tool_calls=[call]
    )
    usage = CompletionUsage(completion_tokens=1, prompt_tokens=2, total_tokens=3)
    whole = ChatCompletion.model_construct(id="x", choices=[{"message": message}], usage=usage, extra=extra)
    assert is_object_repr(repr(whole))
    read = parse_object_repr(repr(whole))
    assert read["choices"][0]["message"]["content"] == content
    assert read["choices"][0]["message"]["refusal"] == refusal
    assert read["choices"][0]["message"]["tool_calls"] == [call]
    assert read["usage"]["prompt_tokens"] == 2
    assert read["extra"]["content_filter_results"] == extra["content_filter_results"]
    assert read["extra"]["tags"] == ["a", b"b"]
    assert read["extra"]["3"] == arguments


@pytest.mark.slow
def test_megabytes_are_read_and_too_much_is_refused():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tokens = [{"token": "é", "bytes": [195, 169], "logprob": -0.1, "top_logprobs": []}] * 30_000
    long = completion(NASTY * 50_000).model_dump()
    long["choices"][0]["logprobs"] = {"content": tokens, "refusal": None}
    text = repr(ChatCompletion.model_validate(long))
    assert len(text) > 7_000_000
    read = parse_object_repr(text)
    assert read["choices"][0]["message"]["content"] == NASTY * 50_000
    assert len(read["choices"][0]["logprobs"]["content"]) == 30_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600_000  # kB
    with pytest.raises(ValueError, match="at most"):
        parse_object_repr("X(a='" + "y" * 32_000_001 + "')")
