"""Suites of runs: what is planned, made, resumed, interrupted, estimated and summed up."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from evals.commands import GOOD, agent
from opsassay.cli import run as command_line
from opsassay.core.errors import ConfigError, DatapackError
from opsassay.core.schema.run import SCORE_TABLE_COLUMNS, Metric, MetricStatus, Run, RunStatus, Solver, Verdict
from opsassay.evals.diagnosis.plan import ASSUMED_CALLS, ASSUMED_INPUT, estimate, plan
from opsassay.evals.diagnosis.results.repeats import case_complexity, summarise_runs
from opsassay.evals.diagnosis.setups.agents import RunSettings, read_settings, setup_of
from opsassay.evals.diagnosis.setups.methods import method_setup
from opsassay.evals.diagnosis.tasks import open_suite
from opsassay.evals.runner.queue import make_runs
from opsassay.evals.runner.ranking import why_not_ranked
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.scoring.repeats import complexity
from opsassay.solvers.agents.limits import Price
from opsassay.solvers.agents.models import Reply
from opsassay.solvers.agents.models.server import running_server
from opsassay.telemetry.mask import Mask
from opsassay.telemetry.tree import resolve
from telemetry.packs import make_tree

DRY = "rules:\n  - after: synthesiser\n    reply: '{}'\n  - reply: done\n"


@pytest.fixture
def model(tmp_path):
    """Return the name of a scripted model that blames the store."""
    answer = json.loads(json.dumps(GOOD).replace("cart", "store"))
    (tmp_path / "model.yaml").write_text(DRY.format(json.dumps(answer).replace("'", "''")))
    return f"scripted:{tmp_path / 'model.yaml'}"


@pytest.fixture
def call(capsys):
    def call(*arguments, code=0):
        found = command_line([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert found == code, err
        return out, err

    return call


# Settings ---------------------------------------------------------------------------------------------------------------


def test_settings_are_read_key_by_key():
    settings = read_settings(
        ["mask.drop=logs", "mask.trace_fraction=0.5", "limits.tool_calls=7", "price.input=3", "again=true"]
    )
    assert settings.mask == Mask(drop=("logs",), trace_fraction=0.5)
    assert settings.limits.model_dump(exclude_unset=True) == {"tool_calls": 7}
    assert (settings.price.input, settings.again) == (3.0, True)
    assert read_settings(["mask.drop=logs,traces"]).mask.drop == ("logs", "traces")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("mask.drop", "expected KEY=VALUE"),
        ("=1", "expected KEY=VALUE"),
        ("mask.dorp=logs", "did you mean 'drop'?"),
        ("mask.drop=smells", "mask.drop"),
        ("mask=7", "mask"),
        ("limits.tool_calls=-1", "limits.tool_calls"),
        ("limits.seconds=[", "not valid YAML"),
        ("seed.x=1", "seed"),
        ("sealing=maybe", "sealing"),
    ],
)
def test_a_wrong_setting_is_told_by_its_key(change, sentence):
    with pytest.raises(ConfigError) as refused:
        read_settings([change])
    assert sentence in str(refused.value)


# Suites -----------------------------------------------------------------------------------------------------------------


def test_repeats_are_spread_over_the_cases(tmp_path):
    opened = open_suite(make_tree(tmp_path / "t", count=2).root)
    jobs = plan(opened, [method_setup("constant"), method_setup("chance")], 2, RunSettings(seed=5))
    assert [job.seed for job in jobs] == [5] * 4 + [6] * 4
    assert [job.solver_name for job in jobs] == ["constant", "chance"] * 4
    assert len({(job.case.name, job.solver_name, job.seed) for job in jobs}) == 8


@pytest.mark.slow
def test_a_suite_that_was_changed_is_refused(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=2)
    call("incident", "annotate", tree.root)
    call("incident", "curate", tree.root, "-o", tmp_path / "suite")
    assert open_suite(tmp_path / "suite")
    (pack, *_) = (tmp_path / "suite" / "incidents").iterdir()
    (pack / "env.json").write_text("{}")
    with pytest.raises(DatapackError, match="is not what"):
        open_suite(tmp_path / "suite")


@pytest.mark.slow
def test_a_case_that_cannot_be_read_is_left_out_and_told(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=2)
    broken, whole = tree.ids()
    (tree.incident_path(broken) / "abnormal_traces.parquet").write_bytes(b"no parquet")
    out, err = call("run", tree.root, "-a", "constant", "--json", code=1)
    told = json.loads(out)
    assert [item["case"] for item in told["items"]] == [whole]
    assert "abnormal_traces.parquet" in told["problems"][0]
    assert "left out" in err


# Runs -------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_run_makes_grades_resumes_and_exports(tmp_path, call, model):
    tree = make_tree(tmp_path / "t", count=2)
    call("incident", "annotate", tree.root)
    arguments = (
        "run",
        tree.root,
        "-a",
        "rca",
        "-a",
        "constant",
        "--model",
        model,
        "--repeats",
        2,
        "-j",
        2,
        "-o",
        tmp_path / "runs",
    )
    first = json.loads(call(*arguments, "--json")[0])
    assert {item["status"] for item in first["items"]} == {"done"}
    assert len(first["items"]) == 8
    by_name = {summary["solver"]: summary for summary in first["summary"]}
    rca = by_name["rca (scripted:model.yaml)"]
    assert (rca["any_service"], rca["runs"], rca["cases"]) == (1.0, 4, 2)
    assert set(rca["pass_at"]) == {"1", "2"}
    assert rca["answer_time"]["attempts"] == 4
    assert rca["complexity"] == pytest.approx(complexity(3, 1, 1))
    assert rca["spent"]["model_calls"] == 8
    again = json.loads(call(*arguments, "--json")[0])
    assert [item["run"] for item in again["items"]] == [item["run"] for item in first["items"]]
    assert len(RunStore(tmp_path / "runs").attempts()) == 16
    call("score", "run", tmp_path / "runs", "--cases", tree.root, "--scores", tmp_path / "scores.csv")
    rows = list(csv.DictReader((tmp_path / "scores.csv").read_text().splitlines()))
    assert {row["method"] for row in rows} == {"rca (scripted:model.yaml)", "constant"}
    assert list(rows[0])[:8] == [*SCORE_TABLE_COLUMNS]
    third = json.loads(call(*arguments, "--json", "-c", "again=true")[0])
    assert all(item["run"].endswith("/2") for item in third["items"])


@pytest.mark.slow
def test_without_truth_runs_are_made_and_nothing_is_graded(tmp_path, call, model):
    tree = make_tree(tmp_path / "t", count=1)
    (pack,) = tree.incidents_dir.iterdir()
    pack.rename(tmp_path / "alone")
    out, _ = call("run", tmp_path / "alone", "-a", "rca", "--model", model, "-o", tmp_path / "runs")
    assert "Nothing was graded" in out
    call("score", "run", tmp_path / "runs", "--cases", tmp_path / "alone", "--scores", tmp_path / "s.csv", code=2)
    assert not (tmp_path / "s.csv").exists()


@pytest.mark.slow
def test_unsealed_and_flagged_runs_are_in_no_score_table(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=1)
    path = agent(tmp_path / "agent", "print(json.dumps(GOOD))")
    arguments = ("run", tree.root, "-a", path, "-c", "sealing=off", "--json")
    told = json.loads(call(*arguments)[0])
    assert told["items"][0]["not_ranked"] == ["it ran unsealed"]
    assert told["summary"][0]["not_ranked"] == ["it ran unsealed"]
    _, err = call("score", "run", tree.root, "--scores", tmp_path / "s.csv", code=2)
    assert "none of the runs may be ranked" in err
    call("run", tree.root, "-a", path, "-a", "constant", "-c", "sealing=off")
    call("score", "run", tree.root, "--scores", tmp_path / "s.csv")
    assert {row["method"] for row in csv.DictReader((tmp_path / "s.csv").read_text().splitlines())} == {"constant"}


def test_a_failed_run_is_in_the_table_with_its_reason_and_exit_1(tmp_path, call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    tree = make_tree(tmp_path / "t", count=1)
    path = agent(tmp_path / "agent", "raise SystemExit('no idea')")
    out, err = call("run", tree.root, "-a", path, "-c", "sealing=off", code=1)
    assert "failed: the solver ended with exit code 1 and no answer: no idea" in err
    assert "1 failed" in out


@pytest.mark.slow
def test_a_circle_among_unknown_services_is_graded_with_a_reason_for_every_metric(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=1)
    path = agent(
        tmp_path / "agent",
        "e = GOOD['root_causes'][0]['evidence']\n"
        "names = ['store'] + [f'nowhere{i}' for i in range(499)]\n"
        "GOOD['propagation'] = [{'from': a, 'to': b, 'evidence': e} for a, b in zip(names, names[1:] + names[:1])]\n"
        "print(json.dumps(GOOD))",
    )
    call("run", tree.root, "-a", path, "-c", "sealing=off")
    (item,) = json.loads(call("score", "run", tree.root, "--json")[0])["items"]
    for metric in item["metrics"].values():
        assert (metric["value"] is not None) == (metric["status"] == "scored")
        assert metric["reason"] or metric["status"] == "scored"
    assert item["metrics"]["edge_f1"]["status"] == "scored"


@pytest.mark.slow
def test_diagnose_takes_agents_too(tmp_path, call, model):
    tree = make_tree(tmp_path / "t", count=1)
    (item,) = json.loads(call("run", "diagnose", tree.root, "-a", "rca", "--model", model, "--json")[0])["items"]
    assert (item["method"], item["answer"], item["correct"], item["status"]) == (
        "rca (scripted:model.yaml)",
        "store",
        True,
        "done",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-a", "rca"], "name one with --model"),
        (["-a", "loudset"], "did you mean 'loudest'?"),
        (["-a", "x.yaml"], "Cannot read x.yaml"),
        (["-a", "constant", "-c", "profile=strict"], "strict"),
        (["-a", "constant", "--repeats", "0"], "Invalid value"),
    ],
)
def test_wrong_use_runs_nothing(tmp_path, call, arguments, sentence):
    tree = make_tree(tmp_path / "t", count=1)
    _, err = call("run", tree.root, *arguments, code=2)
    assert sentence in err
    assert not (tree.root / "runs").exists()


_COMMAND = """
import sys
from opsassay.cli import main
main(sys.argv[1:])
"""


@pytest.mark.slow
@pytest.mark.parametrize(("sealing", "number"), [("auto", signal.SIGTERM), ("off", signal.SIGINT)])
def test_an_interrupted_suite_ends_its_agents_and_goes_on_where_it_was(tmp_path, call, sealing, number):
    tree = make_tree(tmp_path / "t", count=2)
    path = agent(tmp_path / "agent", "time.sleep(600 if not Path('/nonexistent').exists() else 0)", seconds=600)
    command = subprocess.Popen(
        [sys.executable, "-c", _COMMAND, "run", str(tree.root), "-a", str(path), "-c", f"sealing={sealing}", "-j", "2"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not _sleepers(command.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    sleepers = _sleepers(command.pid)
    assert sleepers
    command.send_signal(number)
    _, err = command.communicate(timeout=120)
    assert command.returncode == 130
    assert "Traceback" not in err
    assert psutil.wait_procs(sleepers, timeout=60)[1] == []
    assert {read_run(path).status for path in RunStore(tree.root).runs()} == {RunStatus.ABORTED}


def _sleepers(pid):
    try:
        below = psutil.Process(pid).children(recursive=True)
        return [child for child in below if any("main.py" in part for part in child.cmdline())]
    except psutil.Error:
        return []


# Estimates --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_estimate_is_by_stated_assumptions_then_by_what_was_spent(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    opened = open_suite(make_tree(tmp_path / "t", count=2).root)
    price = Price(input=2.0, output=10.0)
    setup = setup_of("rca", model="made", price=price)
    store = RunStore(tmp_path / "runs")
    jobs = plan(opened, [setup, method_setup("constant")], 3, RunSettings())
    first = estimate(store, jobs, price)
    assert (first.runs, first.with_result) == (12, 0)
    assert first.input_tokens == 6 * ASSUMED_CALLS * ASSUMED_INPUT
    assert "assuming" in first.sentence()
    run = Run(
        cell="0" * 16, attempt=0, item="x", item_hash="y", system="z", solver=setup.solver(), solver_hash="h",
        spent={"model_calls": 3, "input_tokens": 1000, "output_tokens": 100},
    )  # fmt: skip
    store.begin(run)
    second = estimate(store, jobs, price)
    assert (second.input_tokens, second.output_tokens) == (6000, 600)
    assert second.money_usd == pytest.approx(6000 * 2e-6 + 600 * 1e-5)
    assert "by 1 run in the store" in second.sentence()
    assert estimate(store, jobs, Price()).money_usd is None


@pytest.mark.slow
def test_a_paid_run_begins_with_its_estimate_and_a_free_one_with_none(tmp_path, call, model, monkeypatch):
    tree = make_tree(tmp_path / "t", count=1)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    with running_server(lambda *_: Reply(error_status=500)) as url:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
        out, err = call(
            "run", tree.root, "-a", "rca", "--model", "made", "-c", "limits.retries=0", "-c", "price.input=1", code=1
        )
    assert "about USD 0.36" in err.splitlines()[0]
    assert "Nothing was graded: no run came to a result." in out
    assert "1 of them aborted; the same command makes these again." in out
    assert "M input" not in call("run", tree.root, "-a", "rca", "--model", model)[1]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "http://127.0.0.1:9/v1",
            "No model can be reached at http://127.0.0.1:9/v1 (Connection refused); start one there",
        ),
        ("localhost:8000", "OPENAI_BASE_URL is 'localhost:8000', which is no URL"),
        ("http://127.0.0.1:many/v1", "which is no URL"),
    ],
)
def test_an_endpoint_that_is_not_there_is_told_before_anything_runs(tmp_path, call, monkeypatch, url, said):
    tree = make_tree(tmp_path / "t", count=1)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    asked = [("run", tree.root, "-a", "rca", "--model", "made"), ("agent", "check", "rca", "--model", "made")]
    for arguments in (*asked, ("run", "diagnose", tree.root, "-a", "rca", "--model", "made")):
        err = call(*arguments, code=2)[1]
        assert said in err
        assert len(err.splitlines()) == 1
    assert not (tree.root / "runs").exists()


@pytest.mark.slow
def test_a_store_apart_from_its_incidents_is_graded_as_the_command_says(tmp_path, call):
    tree, store = make_tree(tmp_path / "t", count=1), tmp_path / "runs"
    out = call("run", tree.root, "-a", "constant", "-o", store)[0].replace("\n", "")
    assert f"Next: `opsassay view {store} --cases {tree.root}`; for every metric `opsassay score run {store}" in out
    for command in (
        ("score", "run", store),
        ("score", "what-if", store, "-c", "undirected=true"),
        ("report", store, "-o", tmp_path / "r"),
    ):
        assert f"{store} holds runs and no incidents; give --cases DIR" in call(*command, code=2)[1]
    out = call("score", "run", store, "--cases", tree.root)[0].replace("\n", "")
    assert f"as files `opsassay report {store} -o DIR --cases {tree.root}`." in out
    call("report", store, "-o", tmp_path / "r", "--cases", tree.root)
    page = (tmp_path / "r" / "report.html").read_text()
    assert f"opsassay run diagnose {tree.root} -o {store}" in page
    assert f"opsassay score run {store} --cases {tree.root}" in page
    assert f"opsassay run {tree.root}" not in page


@pytest.mark.slow
def test_what_cannot_be_read_is_told_and_the_rest_goes_on(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=2)
    call("run", "diagnose", tree.root, "-m", "constant")
    first, second = sorted((tree.root / "incidents").iterdir())
    whole = (first / "abnormal_traces.parquet").read_bytes()
    (first / "abnormal_traces.parquet").write_text("junk")
    out, err = call("run", "diagnose", tree.root, "-m", "constant", "-m", "chance", "--json", code=1)
    told = json.loads(out)
    assert {item["case"] for item in told["items"]} == {second.name}
    assert "abnormal_traces.parquet cannot be read" in told["problems"][0]
    assert f"left out: {first}" in err
    told = json.loads(call("score", "run", tree.root, "--json", code=1)[0])
    assert {item["case"] for item in told["items"]} == {second.name}
    assert "abnormal_traces.parquet cannot be read" in told["problems"][0]
    (first / "abnormal_traces.parquet").write_bytes(whole)
    damaged = next((tree.root / "runs").glob("*/1/run.json"))
    damaged.write_text("{")
    call("report", tree.root, "-o", tmp_path / "r", code=1)
    assert second.name in (tmp_path / "r" / "report.html").read_text()


def test_a_place_that_cannot_be_written_to_is_told_before_anything_runs(tmp_path, call):
    tree = make_tree(tmp_path / "t", count=1)
    (tmp_path / "file").touch()
    here, file = (tree.root, "-a", "constant"), tmp_path / "file"
    for command in (("run", *here, "-o", file), ("run", "diagnose", tree.root, "-m", "constant", "-o", file)):
        assert "is a file" in call(*command, code=2)[1]
    for option in ("--scores", "--tables"):
        assert "is a directory" in call("score", "run", tree.root, option, tmp_path, code=2)[1]
        assert "there is no folder" in call("score", "run", tree.root, option, tmp_path / "none" / "x", code=2)[1]
    assert not (tree.root / "runs").exists()


def test_a_setting_that_is_wrong_is_named_without_a_line(tmp_path, call):
    err = call("run", tmp_path, "-a", "constant", "-c", "limits.tool_cals=3", code=2)[1]
    assert err == "Error: -c limits.tool_cals: there is no such key; did you mean 'tool_calls'?\n"


# Summaries --------------------------------------------------------------------------------------------------------------


def graded(store, case, started_ns, seed, *, right, error=False):
    """Put a run with its verdict into *store*."""
    run = Run(
        cell=f"{seed:016x}", attempt=0, item=case.datapack.incident.id, item_hash="h", system="s",
        solver=Solver(name="a", kind="agent"),
        solver_hash="x", seed=seed, isolation="sealed", started_ns=started_ns,
    )  # fmt: skip
    run_dir, run = store.begin(run)
    ended = run.model_copy(
        update={"status": RunStatus.FAILED if error else RunStatus.DONE, "ended_ns": started_ns + 2_000_000_000}
    )
    store.end(run_dir, ended)
    value = (
        Metric(status=MetricStatus.FAILED, reason="x")
        if error
        else Metric(value=float(right), status=MetricStatus.SCORED)
    )
    time_ = (
        Metric(value=2.0, status=MetricStatus.SCORED)
        if right
        else Metric(status=MetricStatus.NOT_APPLICABLE, reason="x")
    )
    grounding = dict.fromkeys(
        ("path_reachability", "ungrounded"), Metric(status=MetricStatus.NOT_APPLICABLE, reason="x")
    )
    metrics = {"exact_match": value, "any_service": value, "time_to_diagnosis_s": time_, **grounding}
    return run_dir, Verdict(
        run=f"{run.cell}/1", item=run.item, system="s", solver="a", profile="default", metrics=metrics
    )


def test_pass_at_k_is_unbiased_and_a_run_without_an_answer_is_no_success(tmp_path):
    (case,) = resolve(make_tree(tmp_path / "t", count=1).root)
    store = RunStore(tmp_path / "runs")
    made = [graded(store, case, 1, n, right=right, error=n == 3) for n, right in enumerate((True, False, False, False))]
    (summary,) = summarise_runs([read_run(d) for d, _ in made], [v for _, v in made], [case], 2)
    assert summary.pass_at[1] == pytest.approx(1 / 4)
    assert summary.pass_at[2] == pytest.approx(1 - 3 / 6)  # 1 - C(3, 2) / C(4, 2)
    assert summary.exact_match.value == pytest.approx(1 / 4)
    assert summary.statuses == {"done": 3, "failed": 1}


def test_the_time_to_an_answer_is_a_mean_over_right_ones_with_their_number(tmp_path):
    (case,) = resolve(make_tree(tmp_path / "t", count=1).root)
    store = RunStore(tmp_path / "runs")
    made = [graded(store, case, 5_000_000_000, n, right=right) for n, right in enumerate((True, False))]
    (summary,) = summarise_runs([read_run(d) for d, _ in made], [v for _, v in made], [case])
    assert (summary.answer_time.seconds, summary.answer_time.successes, summary.answer_time.attempts) == (2.0, 1, 2)


def test_complexity_needs_a_verified_cascade(tmp_path):
    (case,) = resolve(make_tree(tmp_path / "t", count=1).root)
    assert case_complexity(case) is None
    assert case_complexity(None) is None


def test_what_may_not_be_ranked_says_why():
    run = Run(cell="c", attempt=1, item="i", item_hash="h", system="s", solver=Solver(name="a"), solver_hash="x")
    assert why_not_ranked(run) == ()
    odd = run.model_copy(update={"isolation": "unsealed", "flags": ("canary",)})
    assert why_not_ranked(odd) == ("it ran unsealed", "its answer repeats the canary truth")


def test_a_job_that_cannot_be_made_is_told_and_the_rest_goes_on(tmp_path):
    tree = make_tree(tmp_path / "t", count=1)
    settings = read_settings(["mask.trace_fraction=0.000001"])
    (made,) = make_runs(
        RunStore(tmp_path / "runs"), plan(open_suite(tree.root), [method_setup("constant")], 1, settings)
    )
    assert made.run is None
    assert "leaves no spans" in (made.error or "")
