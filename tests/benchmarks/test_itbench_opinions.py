"""ITBench's metrics of opinion: the first failing component by the truth's words, a judge's scores, and its failures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from benchmarks.papers.itbench_answers import command
from benchmarks.papers.itbench_first_failure import Components
from benchmarks.papers.itbench_opinions import CHECKLIST, QUESTIONS, Opinions, opinions_of, said_of
from click.testing import CliRunner

from opsassay.scoring.itbench import ItbenchTruth, read_itbench_answer
from opsassay.solvers.agents.models import Reply
from opsassay.solvers.agents.models.scripted import ScriptedModel

EXAMPLE = Path(__file__).parents[2] / "examples" / "itbench"
GROUPS = [
    {"id": "flag-config-1", "kind": "ConfigMap", "namespace": "shop", "filter": ["flag-config"], "root_cause": True},
    {"id": "flag-service-1", "kind": "Service", "namespace": "shop", "filter": [r"flag\b"]},
    {"id": "ad-pod-1", "kind": "Pod", "namespace": "shop", "filter": ["ad-.*"]},
    {"id": "ad-service-1", "kind": "Service", "namespace": "shop", "filter": [r"ad\b"]},
    {"id": "front-service-1", "kind": "Service", "namespace": "shop", "filter": [r"front\b"]},
]


def truth_of(folder, *steps):
    spec = {
        "groups": GROUPS,
        "propagations": [dict(zip(("source", "target", "condition", "effect"), s, strict=True)) for s in steps],
    }
    folder.mkdir()
    (folder / "groundtruth_v1.yaml").write_text(yaml.safe_dump({"spec": spec}))
    return ItbenchTruth.read(folder)


SET = ("flag-config-1", "flag-service-1", "the flag adFailure is set", "flag enables failure injection")
PODS = ("flag-service-1", "ad-pod-1", "flag enables injection", "ad pods fail all requests")
FRONT = ("ad-pod-1", "front-service-1", "ad returns errors", "Front error rate is above threshold")


@pytest.mark.parametrize(
    ("steps", "first"),
    [
        ([SET, PODS, FRONT], "ad"),
        ([PODS, FRONT, SET], "ad"),
        ([SET, (*PODS[:3], "front sees errors when it calls ad"), FRONT], "front"),
        ([SET, (*PODS[:3], "latency rises"), FRONT], "ad"),
        ([SET, (*PODS[:3], "pods are restarted"), (*FRONT[:3], "nothing is wrong")], "flag"),
        ([], None),
    ],
    ids=["no setting", "in any order", "named in the effect", "else the target", "else after the root", "no step"],
)
def test_the_first_failing_component_follows_the_effects(tmp_path, steps, first):
    assert Components(truth_of(tmp_path / "scenario_1", *steps)).first_failing == first


def test_the_truths_of_itbench_have_a_first_failing_component(real_data):
    folders = sorted((real_data / "itbench-groundtruth").glob("scenario_*"))
    found = {folder.name: Components(ItbenchTruth.read(folder)).first_failing for folder in folders}
    assert [name for name, first in found.items() if first is None] == ["scenario_37"]
    assert {found[f"scenario_{n}"] for n in (2, 34, 41)} == {"cart"}
    assert {found[f"scenario_{n}"] for n in (4, 17, 20)} == {"product-catalog"}
    assert {found[f"scenario_{n}"] for n in (7, 8, 13, 42)} == {"payment"}
    assert (found["scenario_1"], found["scenario_30"], found["scenario_45"]) == ("frontend-proxy", "ad", "email")


def answer_of(path, *entities):
    entities = [{"name": name, "contributing_factor": True, "reasoning": text} for name, text in entities]
    path.write_text(json.dumps({"entities": entities, "propagations": []}))
    return read_itbench_answer(path), path


def judge_of(scores, *, checked=True):
    """Return a model that scores by the words of the answer, and ticks every question or none."""

    def respond(messages, _tools):
        said = messages[-1].content
        if "question by question" in said:
            return Reply(text=json.dumps(dict.fromkeys(QUESTIONS, checked)))
        words = re.search(r"The agent said: (.*)", said)[1]
        return Reply(text=json.dumps({"score": scores[words], "why": "so it is"}))

    return ScriptedModel(respond)


def test_reasoning_is_of_found_roots_and_symptoms_earn_by_their_distance(tmp_path):
    truth = truth_of(tmp_path / "scenario_1", SET, PODS, FRONT)
    judge = judge_of({"the flag": 0.5, "front is slow": 1, "all well": 1})
    both = answer_of(
        tmp_path / "both.json", ("shop/ConfigMap/flag-config", "the flag"), ("shop/Service/front", "front is slow")
    )
    assert opinions_of(judge, truth, *both) == Opinions(0.5, 0.5, dict.fromkeys(QUESTIONS, True))
    symptom = answer_of(tmp_path / "symptom.json", ("shop/Service/front", "front is slow"))
    found = opinions_of(judge, truth, *symptom)
    assert (found.reasoning, found.partial) == (0.0, pytest.approx(1 / 4))
    other = answer_of(tmp_path / "other.json", ("shop/Service/mail", "all well"))
    assert opinions_of(judge, truth, *other).partial == 0.0
    silent = answer_of(tmp_path / "silent.json", ("shop/ConfigMap/flag-config", ""))
    assert opinions_of(judge, truth, *silent).reasoning == 0.0


def test_a_truth_without_conditions_gives_no_reasoning(tmp_path):
    truth = truth_of(tmp_path / "scenario_1")
    found = opinions_of(
        judge_of({}), truth, *answer_of(tmp_path / "a.json", ("shop/ConfigMap/flag-config", "the flag"))
    )
    assert (found.reasoning, found.partial, found.passed) == (None, None, True)


def test_the_check_list_is_a_mean_over_dimensions_and_passes_at_its_threshold():
    assert [len(questions) for questions in CHECKLIST["dimensions"].values()] == [3, 3, 3]
    names = list(QUESTIONS)
    for right, passed in ((6, False), (7, True)):
        found = Opinions(answers={name: place < right for place, name in enumerate(names)})
        assert (found.checklist, found.passed) == (pytest.approx(right / 9), passed)


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"score": 0.7}', '{"score": true}', "{}"])
def test_a_judge_that_does_not_say_gives_no_figure(tmp_path, text):
    truth = truth_of(tmp_path / "scenario_1", SET, PODS, FRONT)
    found = opinions_of(
        ScriptedModel(lambda *_: Reply(text=text)),
        truth,
        *answer_of(tmp_path / "a.json", ("shop/Service/front", "slow")),
    )
    assert (found.reasoning, found.partial, found.passed) == (None, None, None)
    assert found.failed


def test_what_is_said_belongs_to_the_entity_it_is_said_of(tmp_path):
    given = {
        "entities": [{"id": "a", "reasoning": "full", "evidence": "disk at 100%"}, "b", {"name": 3}],
        "propagations": [{"source": "a", "target": "c", "condition": "writes fail", "effect": "c waits"}],
    }
    (tmp_path / "answer.json").write_text(json.dumps(given))
    assert said_of(tmp_path / "answer.json") == {"a": "full; disk at 100%; writes fail; c waits"}


def test_the_command_prints_opinions_and_how_far_they_agree_with_exact_grading(tmp_path):
    (tmp_path / "judge.yaml").write_text(
        yaml.safe_dump(
            {
                "rules": [
                    {"when": "question by question", "reply": json.dumps(dict.fromkeys(QUESTIONS, True))},
                    {"when": "", "reply": '{"score": 1}'},
                ]
            }
        )
    )
    arguments = [str(EXAMPLE / "truths"), str(EXAMPLE / "answers"), "--judge", f"scripted:{tmp_path / 'judge.yaml'}"]
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    assert re.search(r"agree on 50.0% of 2 answers; Cohen's kappa 0.00", done.output)
    (first, *_) = json.loads(CliRunner().invoke(command, [*arguments, "--json"]).output)["items"]
    assert first["opinions"]["checklist"] == 1.0
    assert first["first_failing_component"] is True
    failing = CliRunner().invoke(command, [*arguments[:3], "scripted:" + str(tmp_path / "none.yaml")])
    assert failing.exit_code != 0
