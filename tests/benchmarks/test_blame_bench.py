"""Benches of a model that costs money: outages are no answers, nothing is paid twice, a budget holds, tables go on."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from benchmarks.papers.blame.__main__ import cli as bench_cli
from benchmarks.papers.blame.answers import REPLIES
from benchmarks.papers.blame.bench import Bench, bench
from benchmarks.papers.blame.score_table import score_table
from benchmarks.papers.blame.settings import BenchSettings
from click.testing import CliRunner

from opsassay.analysis.blame.answers import ANSWERS, read_answers
from opsassay.analysis.blame.rules import RULES
from opsassay.cli import cli
from opsassay.core.errors import OpsAssayError, UserError
from opsassay.core.schema.trajectory import Attribution, LabelledTrace, Trace, TraceStep
from opsassay.solvers.agents.limits import Price
from opsassay.solvers.agents.models.base import ModelError, Reply
from opsassay.solvers.agents.models.endpoint import EndpointModel
from opsassay.solvers.agents.models.scripted import ScriptedModel
from opsassay.solvers.agents.models.server import running_server
from opsassay.telemetry.tree import write_noun

ONCE = BenchSettings(runs=1, retries=0, pause_s=0)


def trace_of(name, n=6, words=""):
    steps = tuple(
        TraceStep(
            step_id=i, agent_id=str(i % 2), agent_name="AB"[i % 2], input_context="", output_content=f"{words}{i}."
        )
        for i in range(1, n + 1)
    )
    return Trace(task_id=name, task_instruction=f"task {name}!", system_name="st"[len(name) % 2], steps=steps)


def cases_of(*names, step=4):
    label = Attribution(agent_name="AB"[step % 2], step_id=step)
    return [LabelledTrace(id=name, subset="u", trace=trace_of(name), label=label) for name in names]


def answer(step=4, agent="A", **usage):
    return Reply(text=json.dumps({"agent": agent, "step": step, "reason": "because"}), **usage)


def row_of(result, technique="all-at-once", subset="u"):
    return next(row for row in result.rows if (row.subset, row.technique) == (subset, technique))


def name_in(messages):
    return re.search(r"task (\w+)!", messages[-1].content)[1]


BAD = {
    "busy": Reply(error_status=429),
    "down": Reply(error_status=500),
    "gone": Reply(broken="hang"),
    "cut": Reply(broken="half"),
    "noise": Reply(broken="garbage"),
    "long": Reply(error_status=400),
}


def test_an_outage_is_no_wrong_answer_and_is_asked_again_alone(tmp_path):
    bad, asked = dict(BAD), Counter()

    def respond(messages, _):
        asked[name_in(messages)] += 1
        return bad.get(name_in(messages)) or answer(4 if name_in(messages) != "wrong" else 1)

    cases = cases_of("good", "wrong", "fine", *BAD)
    with running_server(respond) as url:
        model = EndpointModel("m", f"{url}/v1", "k", timeout_s=1, retries=0)
        how = Bench(settings=ONCE, model=model, folder=tmp_path, jobs=4)
        first = bench(cases, ["all-at-once"], how)
        assert asked == Counter({"good": 1, "wrong": 1, "fine": 1} | dict.fromkeys(BAD, 1))
        bad.clear()
        second = bench(cases, ["all-at-once"], how)
    row = row_of(first)
    assert (row.summary.n, row.summary.failed, row.summary.unanswered) == (3, 6, 0.0)
    assert row.summary.step.value == pytest.approx(2 / 3)
    assert row.summary.step.n == 3
    failed = {line.trace: line.failed for line in first.answers if line.failed}
    assert failed.keys() == BAD.keys()
    assert "429" in failed["busy"]
    assert "timed out" in failed["gone"]
    assert row_of(first, "last-step").summary.n == 9
    assert asked == Counter({"good": 1, "wrong": 1, "fine": 1} | dict.fromkeys(BAD, 2))  # answered ones never again
    assert (row_of(second).summary.n, row_of(second).summary.failed) == (9, 0)
    assert row_of(second).summary.step.value == pytest.approx(8 / 9)
    third = bench(cases, ["all-at-once"], Bench(settings=ONCE, model=ScriptedModel(respond, "m"), folder=tmp_path))
    assert third.rows == second.rows
    assert sum(asked.values()) == 15


def test_a_call_that_failed_in_passing_is_made_again_and_a_wrong_request_is_not():
    calls = Counter()

    def respond(messages, _):
        calls[name_in(messages)] += 1
        return (
            Reply(error_status=503 if name_in(messages) == "flaky" else 400)
            if calls[name_in(messages)] < 3
            else answer()
        )

    settings = BenchSettings(runs=1, retries=2, pause_s=0)
    result = bench(
        cases_of("flaky", "refused"), ["all-at-once"], Bench(settings=settings, model=ScriptedModel(respond))
    )
    assert calls == {"flaky": 3, "refused": 1}
    assert (row_of(result).summary.n, row_of(result).summary.failed) == (1, 1)


def test_every_answer_is_a_line_with_what_it_cost(tmp_path):
    model = ScriptedModel(lambda *_: answer(input_tokens=1_000_000, output_tokens=500_000), "m")
    how = Bench(settings=ONCE, model=model, folder=tmp_path, price=Price(input=2, output=10))
    result = bench(cases_of("one", "two"), ["all-at-once", "combined"], how)
    lines = [json.loads(line) for line in (tmp_path / ANSWERS).read_text().splitlines()]
    assert len(lines) == 2 * (len(RULES) + 2)
    (line,) = (line for line in lines if line["trace"] == "one" and line["technique"] == "all-at-once")
    del line["asked"]
    assert line == {
        "trace": "one", "technique": "all-at-once", "run": 1, "model": "m", "agent": "A", "step": 4, "reason": "because",
        "calls": 1, "input_tokens": 1_000_000, "output_tokens": 500_000, "price": 7.0, "failed": None,
        "notes": [],
    }  # fmt: skip
    assert (row_of(result).price, result.spent) == (7.0, 14.0)
    assert row_of(result, "last-step").price is None


KILLED = """
import json, os, time
from opsassay.solvers.agents.models.base import Reply
def respond(messages, tools):
    text = messages[-1].content
    with open(os.environ["ASKED"], "a") as file:
        file.write(str(hash(text)) + "\\n")
    time.sleep(float(os.environ["PAUSE"]))
    return Reply(text=json.dumps({"decisive": "Is step 5 the" in text, "reason": "r"}))
"""


ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_asks_nothing_twice_that_was_answered(tmp_path):
    for case in cases_of(*"abcdef", step=5):
        for folder, noun in (("traces", case.trace), ("labels", case.label)):
            (tmp_path / "data" / folder).mkdir(parents=True, exist_ok=True)
            write_noun(tmp_path / "data" / folder / f"{case.id}.json", noun)
    (tmp_path / "model.py").write_text(KILLED)
    asked, out = tmp_path / "asked", tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "benchmarks.papers.blame",
        "bench",
        str(tmp_path / "data"),
        "--technique",
        "step-by-step",
    ]
    command += ["--model", f"scripted:{tmp_path / 'model.py'}", "-o", str(out), "-j", "2", "-c", "runs=1", "--json"]
    environment = {**os.environ, "ASKED": str(asked), "PYTHONHASHSEED": "0"}
    first = subprocess.Popen(
        command, cwd=ROOT, env=environment | {"PAUSE": "0.15"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(asked.read_text().splitlines() if asked.exists() else ()) < 13:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    replies = len((out / REPLIES).read_text().splitlines())
    assert 8 <= replies < 30
    with (out / REPLIES).open("a") as file:
        file.write('{"question": ["x"')  # as torn as a kill can leave it
    second = subprocess.run(
        command, cwd=ROOT, env=environment | {"PAUSE": "0"}, capture_output=True, text=True, check=False
    )
    assert second.returncode == 0, second.stderr
    (row,) = (row for row in json.loads(second.stdout)["items"] if row["technique"] == "step-by-step")
    assert (row["n"], row["step_accuracy"], row["calls"]) == (6, 1.0, 5.0)
    counted = Counter(asked.read_text().split())
    assert len(counted) == 30  # six traces of five questions
    assert sum(counted.values()) - 30 <= 2  # those that were under way when it was killed
    assert len(read_answers(out)) == 6 * (len(RULES) + 1)
    third = subprocess.run(
        command, cwd=ROOT, env=environment | {"PAUSE": "0"}, capture_output=True, text=True, check=False
    )
    assert (third.returncode, json.loads(third.stdout)["items"]) == (0, json.loads(second.stdout)["items"]), (
        third.stderr
    )
    assert sum(counted.values()) == len(asked.read_text().split())


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 8])
def test_a_budget_is_never_passed_and_a_larger_one_goes_on(tmp_path, jobs):
    lock, spent = threading.Lock(), [0.0]
    price = Price(input=10, output=1_000)

    def respond(messages, _):
        reply = answer(input_tokens=len(messages[-1].content) // 4, output_tokens=50)
        time.sleep(0.01)
        with lock:
            spent[0] += price.cost_of(reply.usage)
        return reply

    cases = cases_of(*(f"t{i}" for i in range(30)))
    settings = BenchSettings(runs=1, answer_tokens=60)
    how = {"settings": settings, "model": ScriptedModel(respond, "m"), "folder": tmp_path, "jobs": jobs, "price": price}
    first = bench(cases, ["all-at-once"], Bench(**how, budget=0.7))
    assert 0.2 < spent[0] <= 0.7
    assert first.spent == pytest.approx(spent[0])
    assert first.open == 30 - row_of(first).summary.n
    assert row_of(first).summary.failed == 0  # not asked is not failed
    assert "of the budget of 0.7 are left" in first.stopped
    again = bench(cases, ["all-at-once"], Bench(**how, budget=0.7))
    assert spent[0] <= 0.7
    assert (again.open <= first.open, again.stopped is not None) == (True, True)
    whole = bench(cases, ["all-at-once"], Bench(**how, budget=5))
    assert (whole.stopped, whole.open, row_of(whole).summary.n) == (None, 0, 30)
    assert whole.spent == pytest.approx(spent[0])


def test_a_call_that_was_cut_off_may_have_been_charged(tmp_path):
    def respond(messages, _):
        raise ModelError("timed out")

    price = Price(input=1_000_000, output=0)
    how = Bench(settings=ONCE, model=ScriptedModel(respond), folder=tmp_path, price=price, budget=1e9)
    cut = bench(cases_of("one"), ["all-at-once"], how)
    assert cut.spent > 100
    assert bench(cases_of("one"), ["all-at-once"], how).spent == pytest.approx(
        2 * cut.spent
    )  # also what was spent before
    refused = ScriptedModel(lambda *_: Reply(error_status=500))
    how = Bench(settings=ONCE, model=refused, price=price)
    assert bench(cases_of("one"), ["all-at-once"], how).spent == 0


def test_what_changed_is_asked_anew_and_two_models_share_a_folder(tmp_path):
    asked = []
    models = [ScriptedModel(lambda *_: asked.append(1) or answer(), name) for name in ("a", "b")]
    cases = cases_of("one", "two")
    for model in (*models, *models):
        bench(cases, ["all-at-once"], Bench(settings=ONCE, model=model, folder=tmp_path))
    assert len(asked) == 4
    bench(
        cases, ["all-at-once"], Bench(settings=BenchSettings(runs=1, reference=False), model=models[0], folder=tmp_path)
    )
    assert len(asked) == 6
    bench(cases[:1] + cases_of("two", step=2), ["all-at-once"], Bench(settings=ONCE, model=models[0], folder=tmp_path))
    assert len(asked) == 6  # a label that was corrected changes no question
    edited = cases[0].model_copy(update={"trace": trace_of("one", words="more ")})
    bench([edited], ["all-at-once"], Bench(settings=ONCE, model=models[0], folder=tmp_path))
    assert len(asked) == 7


def test_an_arm_is_part_of_the_key_of_a_score_table(tmp_path):
    cases = cases_of("one", "two")
    for shown, said in ((True, 1), (False, 4)):
        settings = BenchSettings(runs=1, reference=shown)
        model = ScriptedModel(lambda *_, said=said: answer(said))
        bench(cases, ["all-at-once"], Bench(settings=settings, model=model, folder=tmp_path))
    table = score_table(tmp_path, cases, "step").filter(pl.col("method").str.starts_with("all-at-once"))
    scores = {method: table.filter(method=method).get_column("predicted").to_list() for method in table["method"]}
    assert scores == {"all-at-once": ["1", "1"], "all-at-once [reference=false]": ["4", "4"]}


def test_one_process_at_a_time_writes_a_folder(tmp_path):
    inside = threading.Event()
    errors = []

    def respond(messages, _):
        inside.set()
        time.sleep(0.5)
        return answer()

    how = Bench(settings=ONCE, model=ScriptedModel(respond), folder=tmp_path)
    thread = threading.Thread(target=lambda: bench(cases_of("one"), ["all-at-once"], how))
    thread.start()
    inside.wait(10)
    with pytest.raises(UserError, match="Another process is writing answers"):
        bench(cases_of("one"), ["all-at-once"], how)
    thread.join()
    assert errors == []


def test_means_are_over_traces_and_a_run_that_failed_is_in_none():
    script = iter([answer(4), Reply(error_status=400), answer(1), answer(1), answer(4), answer(4)])
    settings = BenchSettings(runs=3, retries=0)
    result = bench(
        cases_of("one", "two"), ["all-at-once"], Bench(settings=settings, model=ScriptedModel(lambda *_: next(script)))
    )
    row = row_of(result)  # one: 4, 1, 4; two: failed, 1, 4
    assert (row.summary.n, row.summary.failed, row.runs) == (2, 1, 3)
    assert row.summary.step.value == pytest.approx((2 / 3 + 1 / 2) / 2)


def write_cases(folder, cases):
    for case in cases:
        for name, noun in (("traces", case.trace), ("labels", case.label)):
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_noun(folder / name / f"{case.id}.json", noun)


@pytest.mark.slow
def test_answers_become_a_table_that_audit_reads(tmp_path):
    names = [f"{letter}{'x' * (i % 2)}{i}" for i in range(30) for letter in "a"]
    write_cases(tmp_path / "data", cases_of(*names))
    (tmp_path / "rules.yaml").write_text(
        "rules: [{when: 'task a0!', status: 400}, {when: 'task ax', reply: '{\"step\": 4, \"agent\": \"A\"}'},"
        " {when: '', reply: '{\"step\": 3}'}]"
    )
    common = [
        "--technique",
        "all-at-once",
        "--model",
        f"scripted:{tmp_path / 'rules.yaml'}",
        "-o",
        str(tmp_path / "out"),
    ]
    runner = CliRunner()
    done = runner.invoke(
        bench_cli, ["bench", str(tmp_path / "data"), *common, "-c", "runs=1", "-c", "pause_s=0", "-j", "4"]
    )
    assert done.exit_code == 1
    assert "failed and in no mean: 1 question;" in done.stderr
    table = tmp_path / "scores.csv"
    done = runner.invoke(bench_cli, ["scores", str(tmp_path / "out"), str(tmp_path / "data"), "-o", str(table)])
    assert done.exit_code == 0, done.output
    rows = {(r["case"], r["method"]): r for r in csv.DictReader(table.read_text().splitlines())}
    assert len(rows) == 30 * 7
    assert rows["a0", "all-at-once"]["score"] == ""
    assert (rows["ax1", "all-at-once"]["score"], rows["ax1", "all-at-once"]["predicted"]) == ("1.0", "4")
    assert (rows["a2", "all-at-once"]["score"], rows["a2", "all-at-once"]["expected"]) == ("0.0", "4")
    audited = runner.invoke(cli, ["audit", str(table), "-o", str(tmp_path / "audit"), "-c", "resamples=200", "--json"])
    assert audited.exit_code == 0, audited.output
    report = json.loads(audited.stdout)
    assert {"last-step", "first-step", "chance"} <= set(report["methods"])
    assert any("all-at-once" in str(excluded) for excluded in report["excluded"])  # it has no score on every case
    assert set(report["systems"]) == {"s", "t"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "1", "--model", "scripted:rules.yaml"], "A budget needs the price of scripted:rules.yaml"),
        (["-c", "long=windows"], "needs `context`"),
        (["-c", "lnog=windows"], "did you mean 'long'"),
        (["-c", "runs"], "expected KEY=VALUE"),
    ],
)
def test_wrong_settings_are_one_sentence_before_anything_is_asked(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_cases(tmp_path, cases_of("one"))
    (tmp_path / "rules.yaml").write_text("rules: [{reply: x}]")
    done = CliRunner().invoke(bench_cli, ["bench", ".", "-o", "out", *arguments])
    assert isinstance(done.exception, OpsAssayError)
    assert done.exception.exit_code == 2
    assert message in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_a_budget_ends_the_command_with_what_is_open(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_cases(tmp_path, cases_of(*"abcdefgh"))
    (tmp_path / "rules.yaml").write_text("rules: [{reply: '{\"step\": 4}'}]")
    (tmp_path / "settings.yaml").write_text(
        "runs: 1\nanswer_tokens: 16\nprices: {'scripted:rules.yaml': {input: 100, output: 100}}\n"
    )
    arguments = ["bench", ".", "--technique", "all-at-once", "--model", "scripted:rules.yaml", "--json"]
    arguments += ["--config", "settings.yaml", "-o", "out"]
    done = CliRunner().invoke(bench_cli, [*arguments, "--budget", "0.2"])
    first = json.loads(done.stdout)
    assert (done.exit_code, first["failed"]) == (1, 0)
    assert 0 < first["open"] < 8
    assert 0 < first["spent"] <= 0.2
    assert f"open: {first['open']} question" in done.stderr
    done = CliRunner().invoke(bench_cli, [*arguments, "--budget", "9"])
    whole = json.loads(done.stdout)
    assert (done.exit_code, whole["open"], whole["stopped"]) == (0, 0, None)
    assert whole["spent"] > first["spent"]
