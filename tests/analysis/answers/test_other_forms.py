"""Answers in the forms of OpenRCA, RCAEval, ITBench, Harbor and inspect_ai, given to `opsassay score import`."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from analysis.answers.test_rcabench_answers import answer, put
from opsassay.cli import run
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run
from opsassay.telemetry.importers import IMPORTERS
from telemetry.packs import make_tree
from telemetry.test_frozen_importers import POD, scenario
from telemetry.test_importers import openrca, rcaeval

ROOT = Path(__file__).parents[3]
ARCHIVE = ROOT.parent / "shared" / "data" / "openrca-archive"


@pytest.fixture
def imports(tmp_path, capsys):
    def imported(source, cases, *options):
        words = ["score", "import", source, "--cases", cases, "-o", tmp_path / "store", *options, "--json"]
        code = run([*map(str, words)])
        out, err = capsys.readouterr()
        whole = json.loads(out) if out.strip() else {"items": [], "problems": []}
        return code, whole["items"], whole["problems"], err

    return imported


def metrics(item):
    found = json.loads((Path(item["run"]) / "verdicts" / "default.json").read_text())["metrics"]
    return {name: metric["value"] for name, metric in found.items() if metric["value"] is not None}


def table(path, *rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


# OpenRCA

ASKED = "The system experienced two failures on March 20, 2021, within 01:00 to 01:30. Identify the component."


def causes(*components, **further):
    entries = {
        str(number): {"root cause occurrence datetime": "2021-03-20 01:00:10", "root cause component": name, **further}
        for number, name in enumerate(components, 1)
    }
    return json.dumps(entries, indent=4)


@pytest.fixture
def market(tmp_path):
    IMPORTERS.load("openrca")(openrca(tmp_path / "raw" / "cloudbed-1"), tmp_path / "cases")
    return tmp_path / "cases"


def test_a_prediction_of_openrca_is_an_answer_about_the_incident_of_its_half_hour(market, tmp_path, imports):
    said = causes("node-6", "cart-0", **{"root cause reason": "container CPU load"})
    table(
        tmp_path / "agent-Market-cloudbed-1.csv",
        {"Instruction": ASKED, "prediction": said, "task_index": "task_3", "score": 1},
    )
    code, (item,), _, err = imports(tmp_path / "agent-Market-cloudbed-1.csv", market)
    assert (code, item["solver"]) == (0, "agent"), err
    first, second = read_diagnosis(Path(item["run"])).root_causes
    assert (first.service, first.level, second.service, second.level, second.component) == (
        "node-6", "service", "cart", "pod", "cart-0",
    )  # fmt: skip
    assert second.fault_kind == "cpu_stress"
    assert metrics(item)["any_service"] == 1
    assert any("time of occurrence is not graded (2 times)" in note for note in item["notes"])
    assert "it answers task_3" in item["notes"]


@pytest.mark.parametrize(
    ("prediction", "right", "noted"),
    [
        ("```json\n" + causes("cart-0") + "\n```", 1, ""),
        (json.dumps({"Root Cause Component": "cart-0"}), 1, ""),
        (json.dumps([{"root cause component": "cart-0", "root cause reason": "odd weather"}]), 1, "is no fault kind"),
        (json.dumps({"root causes": [{"root cause component": "cart-0"}]}), 1, "read one by one"),
        ('{"1": {"root cause component": "cart-0", "root cause reason": "high CPU',  1, "no JSON"),
        (json.dumps({"2": {"root cause component": "cart-0"}, "1": {"root cause component": 4}}), 1, "is int"),
        (causes("nothing-at-all"), 0, "no service 'nothing-at-all'"),
        (causes("CART-0"), 0, ""),
    ],
)  # fmt: skip
def test_predictions_in_other_shapes_are_read_and_what_was_odd_is_noted(
    prediction, right, noted, market, tmp_path, imports
):
    table(tmp_path / "x-cloudbed-1.csv", {"instruction": ASKED, "prediction": prediction})
    code, (item,), _, err = imports(tmp_path / "x-cloudbed-1.csv", market)
    assert code == 0, err
    if "CART" not in prediction:
        assert metrics(item)["any_service"] == right
    assert noted in " ".join(item["notes"])


def test_rows_of_openrca_that_say_nothing_about_an_incident_at_hand_are_named(market, tmp_path, imports):
    good = {"instruction": ASKED, "prediction": causes("cart-0")}
    rows = [
        {**good, "prediction": json.dumps({"1": {"root cause occurrence datetime": "2021-03-20 01:00:10"}})},
        {**good, "prediction": "I do not know."},
        {**good, "instruction": ASKED.replace("March 20", "March 19")},
        {**good, "instruction": "Why?"},
        {**good, "instruction": ""},
        {**good, "instruction": ASKED.replace("March 20", "Smarch 40")},
        {**good, "prediction": ""},
        good,
    ]  # fmt: skip
    table(tmp_path / "in" / "agent-Market-cloudbed-1.csv", *rows)
    code, items, problems, _ = imports(tmp_path / "in", market)
    assert (code, [item["ended"] for item in items]) == (1, ["failed", "failed", "done"])
    assert "the prediction holds no root cause ('I do not know.')" in items[0]["notes"]
    expected = ("names no root cause component", "2021-03-19 01:00 to 01:30", "no day and two times",
                "instruction is missing", "no day and two times")  # fmt: skip
    for number, problem, named in zip((1, 3, 4, 5, 6), problems, expected, strict=True):
        assert problem.startswith(f"in/agent-Market-cloudbed-1.csv row {number}"), problem
        assert named in problem.replace("instruction is empty", "instruction is missing"), problem


def test_another_system_of_the_same_day_is_not_answered(market, tmp_path, imports):
    table(tmp_path / "agent-Market-cloudbed-2.csv", {"instruction": ASKED, "prediction": causes("cart-0")})
    code, _, _, err = imports(tmp_path / "agent-Market-cloudbed-2.csv", market)
    assert code == 2
    assert "no incident at hand began in 2021-03-20 01:00 to 01:30" in err


@pytest.mark.skipif(not ARCHIVE.is_dir(), reason="the archived answers are not here")
def test_every_archived_answer_is_of_the_form_and_asks_about_a_half_hour():
    from opsassay.analysis.answers.external_answers import Document
    from opsassay.analysis.answers.openrca import FORM, read_prediction, window_of

    count = 0
    for path in sorted(ARCHIVE.glob("*.csv")):
        document = Document(path, ARCHIVE)
        assert FORM.recognises(document)
        for row in document.content:
            start, end = window_of(row["instruction"], path.name)
            assert (end - start).total_seconds() == 1800
            count += bool(read_prediction(row["prediction"])[0])
    assert count == 335


# RCAEval


@pytest.fixture
def online_boutique(tmp_path):
    IMPORTERS.load("rcaeval")(rcaeval(tmp_path / "raw"), tmp_path / "cases")
    return tmp_path / "cases"


def test_a_ranking_of_rcaeval_is_of_services_and_claims_the_first(online_boutique, tmp_path, imports):
    put(
        tmp_path / "baro" / "cartservice_cpu_1.json",
        {"0": ["cartservice_cpu", "cartservice_mem", "adservice-db_latency-50", "adservice_mem"]},
    )
    code, (item,), _, err = imports(tmp_path / "baro", online_boutique)
    assert (code, item["solver"]) == (0, "baro"), err
    given = read_diagnosis(Path(item["run"]))
    assert [one.service for one in given.ranking] == ["cartservice", "adservice"]
    assert [one.service for one in given.root_causes] == ["cartservice"]
    found = metrics(item)
    assert (found["acc_at_1"], found["any_service"], "exact_match" in found) == (1, 1, False)
    assert any("'adservice-db' counts as 'adservice'" in note for note in item["notes"])
    kept = read_run(Path(item["run"]))
    assert (kept.solver.kind, kept.solver.fault_kinds) == ("method", ())


def test_tables_and_failed_cases_of_rcaeval_are_read_and_odd_ones_named(online_boutique, tmp_path, imports):
    put(tmp_path / "in" / "cartservice_cpu_1_failed.json", {"error": "singular matrix"})
    put(tmp_path / "in" / "cartservice_cpu_2.json", {"0": ["cartservice_cpu"]})
    put(tmp_path / "in" / "cartservice_mem_1.json", {"0": "cartservice_cpu"})
    put(tmp_path / "in" / "oddly.json", {"0": ["cartservice_cpu"]})
    rows = [
        {
            "case": "RE2-OB/cartservice_cpu/1",
            "method": "rcd",
            "ranks": "['adservice_mem', 'cartservice_cpu']",
            "AC@1": 0,
        },
        {"case": "cartservice_cpu_1", "method": "pc", "ranks": "cartservice_cpu; adservice_mem", "AC@1": 1},
        {"case": "cartservice_cpu_1", "method": "none", "ranks": "[]", "AC@1": 0},
        {"case": "", "method": "pc", "ranks": "a_b", "AC@1": 0},
        {"case": "cartservice_cpu_1", "method": "pc", "ranks": "", "AC@1": 0},
    ]
    table(tmp_path / "in" / "table.csv", *rows)
    code, items, problems, err = imports(tmp_path / "in", online_boutique, "--form", "rcaeval")
    assert code == 1
    assert [(item["solver"], item["ended"]) for item in items] == [
        ("in", "failed"), ("rcd", "done"), ("pc", "done"), ("none", "done"),
    ], err  # fmt: skip
    assert [metrics(item).get("acc_at_1") for item in items[1:3]] == [0, 1]
    assert any("nothing is wrong" in note for note in items[3]["notes"])
    named = ["cartservice_cpu_2.json", "cartservice_mem_1.json", "table.csv row 4", "table.csv row 5"]
    assert all(problem.startswith(f"in/{name}") for problem, name in zip(problems, named, strict=True)), problems


# ITBench


@pytest.fixture
def lite(tmp_path):
    IMPORTERS.load("itbench-lite")(scenario(tmp_path / "raw" / "Scenario-7").parent, tmp_path / "cases")
    return tmp_path / "cases"


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("name", "right"),
    [
        ("otel-demo/Pod/" + POD, 1), ("otel-demo/Deployment/frontend", 1), ("frontend", 1),
        ("otel-demo/NetworkChaos/otel-demo-frontend-delay", 1), ("otel-demo-frontend-delay-1", 1),
        ("otel-demo/Service/frontend-proxy", 0), ("otel-demo/ConfigMap/frontend", 0), ("x", 0),
    ],
)  # fmt: skip
def test_an_entity_of_itbench_is_the_service_that_it_is_or_that_the_truth_names(name, right, lite, tmp_path, imports):
    given = {"entities": [{"name": name, "contributing_factor": True}, {"id": "y", "contributing_factor": False}],
             "propagations": [{"source": name, "target": "otel-demo/Service/frontend-proxy"}]}  # fmt: skip
    put(tmp_path / "sre" / "Scenario-7" / "2" / "agent_output.json", given)
    code, (item,), _, err = imports(tmp_path / "sre", lite)
    assert (code, item["solver"]) == (0, "sre"), err
    assert metrics(item)["any_service"] == right


@pytest.mark.parametrize("folder", ["scenario_7", "7", "SCENARIO-007", "sre/scenario 7/1/outputs"])
def test_scenarios_are_found_by_the_number_of_a_folder_and_others_are_named(folder, lite, tmp_path, imports):
    given = {"entities": [{"name": "frontend", "contributing_factor": True}, {"contributing_factor": True}, 3]}
    put(tmp_path / "in" / folder / "agent_output.json", given)
    put(tmp_path / "in" / "Scenario-8" / "agent_output.json", given)
    put(tmp_path / "in" / "Scenario-9" / "agent_output.json", {"entities": None})
    code, (item,), problems, _ = imports(tmp_path / "in", lite, "--form", "itbench")
    assert (code, metrics(item)["any_service"]) == (1, 1)
    assert "an entity without a name is left out (2 times)" in item["notes"]
    other, no_list = sorted(problems)
    assert "There is no incident at hand" in other
    assert "itbench_answers" in other
    assert no_list.startswith("in/Scenario-9")


# Harbor


@pytest.fixture
def chain(tmp_path):
    return make_tree(tmp_path / "cases", count=2, traces=12)


def trial(folder, id_, text=None, **further):
    result = {"id": "u", "task_name": f"opsassay/{id_}", "trial_name": folder.name,
              "agent_info": {"name": "claude-code", "version": "1.2", "model_info": {"name": "m", "provider": "p"}},
              "agent_result": {"n_input_tokens": 10, "n_output_tokens": 3, "cost_usd": 0.5}}  # fmt: skip
    put(folder / "result.json", {**result, **further})
    put(folder / "config.json", {"job": "x"})
    if text is not None:
        put(folder / "artifacts" / "logs" / "artifacts" / "answer.json", text)


@pytest.mark.slow
def test_trials_of_harbor_are_answers_and_those_without_one_have_failed(chain, tmp_path, imports):
    one, two = chain.ids()
    put(tmp_path / "job" / "result.json", {"id": "j", "n_total_trials": 4, "stats": {}})
    trial(tmp_path / "job" / "a__1", one, answer())
    trial(tmp_path / "job" / "a__2", one, "I think it is the store")
    trial(tmp_path / "job" / "b__1", two, exception_info={"exception_type": "AgentTimeoutError"})
    trial(tmp_path / "job" / "c__1", "0" * 16, answer())
    trial(tmp_path / "job" / "d__1", one, answer(), task_name=None)
    for options in ((), ("--form", "harbor")):
        code, items, problems, err = imports(tmp_path / "job", chain.root, *options)
        assert code == 1, err
        found = [(item["solver"], item["seed"], item["ended"]) for item in items]
        assert found == [
            ("claude-code (m)", 0, "done"),
            ("claude-code (m)", 1, "failed"),
            ("claude-code (m)", 0, "timeout"),
        ]
        assert [p.split(":")[0] for p in problems] == ["job/c__1/result.json", "job/d__1/result.json"]
    assert metrics(items[0])["exact_match"] == 1
    kept = read_run(Path(items[0]["run"]))
    assert (kept.solver.version, kept.spent) == ("1.2", {"input_tokens": 10, "output_tokens": 3, "usd": 0.5})


# inspect_ai


def log(item, text, **further):
    head = {
        "item": item.id,
        "commitment": item.commitment,
        "system": item.system,
        "services": ["frontend", "cart", "store"],
    }
    sample = {"id": item.id, "epoch": 1, "input": "?", "target": "", "metadata": {"opsassay": head}, "events": [],
              "output": {"completion": text}}  # fmt: skip
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "opsassay/diagnosis", "model": "mock/m"},
        "samples": [{**sample, **further}],
    }


def test_samples_of_inspect_are_answers_and_those_of_another_task_are_named(chain, tmp_path, imports, capsys):
    from opsassay.evals.diagnosis.tasks import IncidentItem

    task = IncidentItem.from_datapack(chain.datapack(chain.ids()[0])).task
    good = log(task, json.dumps(answer()))
    more = [log(task, "no JSON", epoch=2)["samples"][0], log(task, "", metadata={})["samples"][0],
            log(task, "", epoch=3, error={"message": "endpoint gone"})["samples"][0]]  # fmt: skip
    put(tmp_path / "logs" / "one.json", {**good, "samples": [*good["samples"], *more]})
    code, items, problems, err = imports(tmp_path / "logs", chain.root)
    assert (code, [(item["solver"], item["seed"], item["ended"]) for item in items]) == (
        1, [("inspect (mock/m)", 0, "done"), ("inspect (mock/m)", 1, "failed")],
    ), err  # fmt: skip
    assert metrics(items[0])["exact_match"] == 1
    assert "is no sample of opsassay/diagnosis" in problems[0]
    assert "came to no result (inspect_ai: endpoint gone)" in problems[1]
    shutil.rmtree(tmp_path / "store")
    assert (
        run(["incident", "import", "inspect", str(tmp_path / "logs" / "one.json"), "-o", str(tmp_path / "store")]) == 1
    )
    before = len(list(RunStore(tmp_path / "store").runs()))
    capsys.readouterr()
    assert {item["became"] for item in imports(tmp_path / "logs", chain.root)[1]} == {"there already"}
    assert len(list(RunStore(tmp_path / "store").runs())) == before
