"""Answers in the form of rcabench and aegis, given to `opsassay score import`; and what the command does with any form."""

from __future__ import annotations

import json

import pytest

from opsassay.analysis.answers.rcabench import RENAMED
from opsassay.cli import run
from opsassay.core.schema.faults import FaultKind
from opsassay.evals.runner.store import RunStore, read_diagnosis, read_run
from telemetry.packs import make_tree

EVIDENCE = [{"kind": "trace", "sql": "SELECT count(*) FROM abnormal_traces WHERE service_name = 'store'", "claim": "c"}]


def answer(service="store", kind="http_aborted", edges=(("store", "cart"), ("cart", "frontend")), **further):
    """Return an AgentRCAOutput; the truth of the trees here is store, http_aborted."""
    root = {"service": service, "fault_kind": kind, "evidence": EVIDENCE, **further}
    return {"root_causes": [root], "propagation": [{"from": a, "to": b, "evidence": EVIDENCE} for a, b in edges]}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    made = make_tree(tmp_path_factory.mktemp("cases"), count=2, traces=12)
    return made.root, made.ids()


@pytest.fixture
def imports(tree, tmp_path, capsys):
    """Import a folder or file and return exit code, items, the whole object and what was said on standard error."""

    def imported(source, *options, store="store"):
        words = ["score", "import", source, "--cases", tree[0], "-o", tmp_path / store, *options, "--json"]
        code = run([*map(str, words)])
        out, err = capsys.readouterr()
        whole = json.loads(out) if out.strip() else {"items": []}
        return code, whole["items"], whole, err

    return imported


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def verdict(store):
    """Return the metrics of the only run in *store* that have a value."""
    (path,) = RunStore(store).runs()
    metrics = json.loads((path / "verdicts" / "default.json").read_text())["metrics"]
    return {name: metric["value"] for name, metric in metrics.items() if metric["value"] is not None}


def test_an_answer_is_kept_graded_and_shown_by_the_ordinary_commands(tree, tmp_path, imports, capsys):
    root, ids = tree
    put(
        tmp_path / "in" / "agent-a" / ids[0] / "result.json",
        {"exact_match": True, "source": ids[0], "response": json.dumps(answer())},
    )
    code, (item,), whole, err = imports(tmp_path / "in")
    assert (code, item["incident"], item["solver"], item["became"]) == (0, ids[0], "agent-a", "imported"), err
    assert whole["notes"] == len(item["notes"]) == 1
    assert "it is kept as 'agent-a'" in item["notes"][0]
    found = verdict(tmp_path / "store")
    assert (found["exact_match"], found["f1"], found["sql_exec"]) == (1, 1, 1)
    kept = read_run(RunStore(tmp_path / "store").runs().__next__())
    assert kept.notes[0] == f"given as: in/agent-a/{ids[0]}/result.json"
    assert (kept.isolation, kept.solver.kind) == ("unsealed", "agent")
    for words in (["score", "run"], ["score", "table"], ["leaderboard"]):
        assert run([*words, str(tmp_path / "store"), "--cases", str(root)]) == 0
        assert "agent-a" in capsys.readouterr().out, words
    pages = tmp_path / "pages"
    assert run(["report", str(tmp_path / "store"), "--cases", str(root), "-o", str(pages)]) == 0
    assert any("agent-a" in page.read_text() for page in pages.rglob("*.html"))


NEWER = """\
network_bandwidth_throttled network_bandwidth_limit
http_response_body_corrupted http_payload_modified
http_wrong_status_code http_response_status_modified
container_cpu_saturated cpu_stress
process_cpu_saturated jvm_thread_cpu_stress
container_memory_saturated mem_stress
jvm_heap_exhausted jvm_heap_stress
jvm_gc_thrashing jvm_gc_pressure
application_exception jvm_method_exception
database_call_failed jvm_jdbc_exception
application_method_slow jvm_method_latency
database_call_slow jvm_jdbc_latency
wrong_return_value jvm_method_mutated
dns_lookup_failed dns_resolution_failed
dns_returned_wrong_address dns_resolution_wrong
"""
"""The newer name and that of OpenRCA 2.0's Table 6, of each kind that was renamed."""


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize(("name", "old"), [line.split() for line in NEWER.splitlines()])
def test_every_newer_name_of_a_kind_is_read_as_the_kind_that_it_is(name, old, tree, tmp_path, imports):
    put(tmp_path / "in" / f"{tree[1][0]}.json", answer(kind=name))
    code, (item,), _, err = imports(tmp_path / "in", "--solver", "a")
    assert code == 0, err
    assert read_diagnosis(RunStore(tmp_path / "store").runs().__next__()).root_causes[0].fault_kind == FaultKind(old)
    assert item["notes"] == [f"the fault kind {name!r} is {old!r} here"]


def test_fifteen_kinds_have_another_name_and_each_kind_has_one():
    assert len(RENAMED) == len(set(RENAMED.values())) == 15
    assert not {kind.value for kind in FaultKind} & RENAMED.keys()


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["HTTP_ABORTED", "http-aborted", "FaultKind.HTTP_ABORTED", " http_aborted "])
def test_case_dashes_and_prefixes_of_a_kind_are_no_other_kind(kind, tree, tmp_path, imports):
    put(tmp_path / f"{tree[1][0]}.json", answer(kind=kind))
    assert imports(tmp_path / f"{tree[1][0]}.json")[0] == 0
    assert verdict(tmp_path / "store")["exact_match"] == 1


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("broken", "named"),
    [
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ({"root_causes": 3, "propagation": []}, "root_causes is int (3); expected a list"),
        ({"root_causes": None, "propagation": []}, "root_causes is missing; expected a list"),
        ({"root_causes": ["store"], "propagation": []}, "root_causes.0 is 'store'; expected an object"),
        (answer(service=None), "root_causes.0.service is missing; expected the name of a service"),
        (answer(service=["store"]), "root_causes.0.service is list"),
        (answer(kind=None), "root_causes.0.fault_kind is missing"),
        (answer(kind="http_abort"), "no fault kind 'http_abort'; did you mean 'http_aborted'?"),
        (answer(kind=7), "root_causes.0.fault_kind is int (7)"),
        (answer(evidence="SELECT 1"), "root_causes.0.evidence is str"),
        (answer(edges=[("store", None)]), "propagation.0.to is missing"),
        ({**answer(), "propagation": "store -> cart"}, "propagation is str (store -> cart); expected a list"),
        ({**answer(), "propagation": [3]}, "propagation.0 is 3"),
        ({"root_causes": [answer()["root_causes"][0]] * 51, "propagation": []}, "root_causes has 51 entries"),
    ],
)
def test_one_answer_that_cannot_be_read_is_named_and_the_others_are_kept(broken, named, tree, tmp_path, imports):
    ids = tree[1]
    put(tmp_path / "in" / "a" / f"{ids[0]}.json", broken)
    put(tmp_path / "in" / "a" / f"{ids[1]}.json", answer())
    code, items, whole, err = imports(tmp_path / "in")
    assert (code, [item["incident"] for item in items]) == (1, [ids[1]])
    (problem,) = whole["problems"]
    assert problem.startswith(f"in/a/{ids[0]}.json")
    assert named in problem
    assert f"left out: {problem}" in err
    assert len(list(RunStore(tmp_path / "store").runs())) == 1
    only = imports(tmp_path / "in" / "a" / f"{ids[0]}.json", "--form", "rcabench", store="other")
    assert only[0] == 2
    assert named in only[3]
    assert not (tmp_path / "other").exists()


def test_what_is_not_exact_is_noted_and_counted(tree, tmp_path, imports):
    given = answer(kind="unknown", direction={"src": "a", "dst": "b"}, confidence=0.4, evidence=[])
    given["root_causes"].append(
        {"service": "Ghost", "fault_kind": "cpu_stress", "evidence": [{"kind": "metrics"}, *EVIDENCE]}
    )
    del given["propagation"]
    put(tmp_path / f"{tree[1][0]}.json", given)
    code, (item,), whole, _ = imports(tmp_path / f"{tree[1][0]}.json", "--solver", "me")
    assert (code, whole["notes"]) == (0, len(item["notes"]))
    for said in ("no propagation", "'unknown'", "direction is not graded", "confidence is not graded", "has no evidence",
                 "it is left out", "no service 'Ghost'"):  # fmt: skip
        assert any(said in note for note in item["notes"]), said
    kept = read_run(RunStore(tmp_path / "store").runs().__next__())
    assert list(kept.notes[1:]) == item["notes"]


@pytest.mark.slow
def test_rows_say_whom_they_are_of_and_a_response_that_is_no_answer_counts_as_none(tree, tmp_path, imports):
    ids = tree[1]
    about = {"exp_id": "e", "agent_type": "react", "model_name": "m-1", "time_cost": 7.5}
    rows = [
        {**about, "source": ids[0], "response": "Here it is: " + json.dumps(answer())},
        {**about, "source": ids[1], "response": json.dumps(answer(kind="nonsense"))},
        {**about, "source": ids[1], "model_name": "m-2", "response": None},
        {**about, "source": "elsewhere", "response": json.dumps(answer())},
        {**about, "source": ids[1], "model_name": "m-3", "response": {"root_causes": [], "propagation": []}},
    ]
    lines = [json.dumps(row) for row in rows]
    put(tmp_path / "rows.jsonl", "\n".join([*lines[:2], "{broken", "", *lines[2:]]))
    code, items, whole, _ = imports(tmp_path / "rows.jsonl")
    assert code == 1
    assert [(item["solver"], item["ended"]) for item in items] == [
        ("react m-1", "done"), ("react m-1", "failed"), ("react m-2", "failed"), ("react m-3", "done"),
    ]  # fmt: skip
    assert any("prose" in note for note in items[0]["notes"])
    assert any("no fault kind 'nonsense'" in note for note in items[1]["notes"])
    broken, elsewhere = whole["problems"]
    assert broken.startswith("rows.jsonl:3 is not valid JSON")
    assert "There is no incident at hand 'elsewhere'" in elsewhere
    assert read_run(RunStore(tmp_path / "store").runs().__next__()).spent == {"seconds": 7.5}
    put(tmp_path / "rows.json", {"samples": rows})
    assert len(imports(tmp_path / "rows.json", store="again")[1]) == 4


@pytest.mark.slow
def test_an_answer_is_kept_once_and_another_of_the_same_solver_is_a_repeat(tree, tmp_path, imports):
    id_ = tree[1][0]
    for trial in ("1", "2", "10"):
        put(tmp_path / "in" / "agent" / id_ / trial / "answer.json", answer())
    code, items, _, _ = imports(tmp_path / "in")
    assert (code, [(i["answer"].split("/")[-2], i["seed"]) for i in items]) == (0, [("1", 0), ("2", 1), ("10", 2)])
    assert ["a repeat" in " ".join(item["notes"]) for item in items] == [False, True, True]
    code, items, _, _ = imports(tmp_path / "in")
    assert (code, [item["became"] for item in items]) == (0, ["there already"] * 3)
    put(tmp_path / "in" / "agent" / id_ / "2" / "answer.json", answer(service="cart"))
    code, items, whole, _ = imports(tmp_path / "in")
    assert (code, len(items), len(list(RunStore(tmp_path / "store").runs()))) == (1, 2, 3)
    assert "gave another answer when it was imported before" in whole["problems"][0]


@pytest.mark.slow
def test_a_store_that_holds_the_incidents_needs_no_cases_and_folders_name_incidents(tmp_path, capsys):
    made = make_tree(tmp_path / "made", count=1, traces=12)
    assert run(["incident", "export", str(made.root), "-o", str(tmp_path / "public")]) == 0
    assert run(["incident", "import", "rcabench", str(tmp_path / "public"), "-o", str(tmp_path / "tree")]) == 0
    (folder,) = (tmp_path / "public").iterdir()
    put(tmp_path / "in" / "x" / folder.name.upper() / "agent_output.json", answer())
    assert run(["score", "import", str(tmp_path / "in"), "-o", str(tmp_path / "tree")]) == 0
    assert (
        run(["score", "import", str(tmp_path / "in"), "--cases", str(tmp_path / "public"), "-o", str(tmp_path / "s")])
        == 0
    )
    capsys.readouterr()


@pytest.mark.parametrize(
    ("make", "words", "named"),
    [
        (lambda at: at.mkdir(), (), "holds no files"),
        (lambda at: put(at / "readme.txt", "x"), (), "no answers in a form that is read (rcabench, openrca"),
        (lambda at: put(at / "x.json", {"a": 1}), (), "in/x.json; say with --form"),
        (lambda at: put(at / "x.json", answer()), ("--form", "rcabnch"), "did you mean 'rcabench'"),
        (lambda _: None, (), "is not there"),
        (lambda at: put(at / "x.json", answer()), (), "There is no incident at hand 'x'"),
        (lambda at: put(at / "x.json", answer()), ("--form", "openrca"), "no answers in the form openrca"),
    ],
)
def test_where_nothing_can_be_read_it_is_said_and_nothing_is_written(make, words, named, tmp_path, imports):
    make(tmp_path / "in")
    code, _, _, err = imports(tmp_path / "in", *words)
    assert code == 2
    assert named in err
    assert not (tmp_path / "store").exists()


def test_hidden_files_links_and_other_files_are_no_answers(tree, tmp_path, imports):
    good = put(tmp_path / "in" / "a" / f"{tree[1][0]}.json", answer())
    put(tmp_path / "in" / "a" / "._x.json", "{")
    put(tmp_path / "in" / ".cache" / "x.json", "{")
    put(tmp_path / "in" / "a" / "notes.md", "text")
    (tmp_path / "in" / "a" / "link.json").symlink_to(good)
    code, items, whole, _ = imports(tmp_path / "in")
    assert (code, len(items), whole["passed_over"]) == (0, 1, ["in/a/notes.md"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "solver"),
    [
        ("m/{}/answer.JSON", "m"), ("m/{}/attempt_1/answer.json", "m"), ("m/deep/{}/2/answer.json", "deep"),
        ("{}/m/answer.json", "m"), ("{}/m/3/answer.json", "m"), ("m/{}.json", "m"), ("{}.json", "in"),
        ("{}/7/a.json", "in"),
    ],
)  # fmt: skip
def test_a_solver_that_no_file_names_is_a_folder_above_the_incidents(place, solver, tree, tmp_path, imports):
    put(tmp_path / "in" / place.format(tree[1][0].upper()), answer())
    code, (item,), _, err = imports(tmp_path / "in")
    assert (code, item["solver"]) == (0, solver), err
