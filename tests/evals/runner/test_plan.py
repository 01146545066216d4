"""Plans of several domains: one run path, one store, rows of named metrics; what each domain says of itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from opsassay.cli import run as command_line
from opsassay.evals.runner.domain import DOMAINS, domain_named
from opsassay.evals.runner.run import open_session
from opsassay.evals.runner.store import RunStore, read_verdicts
from telemetry.packs import make_tree

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def plan(tmp_path):
    """A plan of trials that have their results already, and of two methods on an incident; and the store."""
    shutil.copytree(GOLDEN / "sre_store", tmp_path / "store")
    shutil.copy(GOLDEN / "made.yaml", tmp_path / "made.yaml")
    make_tree(tmp_path / "tree", count=1)
    parts = [
        {"domain": "sre", "scenarios": ["made.yaml"], "agents": ["oracle:*"], "probes": ["on"]},
        {"domain": "diagnosis", "incidents": ["tree"], "agents": ["constant", "loudest"], "repeats": 2},
    ]
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({"parts": parts}).replace("'on'", "on"))
    return tmp_path / "plan.yaml", tmp_path / "store"


def items(capsys, *arguments, code=0):
    assert command_line([*map(str, arguments), "--json"]) == code
    return json.loads(capsys.readouterr().out)["items"]


@pytest.mark.slow
def test_a_plan_of_two_domains_is_run_into_one_store_and_gone_on_with(plan, capsys):
    path, store = plan
    first = items(capsys, "run", path, "-o", store, "-j", 2)
    assert [(i["domain"], i["solver"], i["seed"], i["status"]) for i in first] == [
        *(("sre", f"oracle:{name}", 0, "done") for name in ("gentle", "harmful", "shallow")),
        *(("diagnosis", name, seed, "done") for seed in (0, 1) for name in ("constant", "loudest")),
    ]
    assert [i["metrics"]["certificate"]["value"] for i in first[:3]] == [1.0, 0.0, 0.0]
    assert first[0]["not_ranked"] == ["it is an oracle, which knows the truth"]
    assert first[3]["metrics"]["exact_match"]["status"] == "scored"
    assert first[3]["not_ranked"] == []
    attempts = len(RunStore(store).attempts())
    again = items(capsys, "run", path, "-o", store)
    assert [i["run"] for i in again] == [i["run"] for i in first]
    assert len(RunStore(store).attempts()) == attempts
    assert command_line(["run", str(path), "-o", str(store)]) == 0
    out = capsys.readouterr().out
    assert "Solvers, sre" in out
    assert "Solvers, diagnosis" in out
    assert "pass@2" in out


def test_a_plan_of_trials_is_a_plan_too(plan, tmp_path, capsys):
    _, store = plan
    (tmp_path / "trials.yaml").write_text("scenarios: [made.yaml]\nagents: ['oracle:gentle']\n")
    (one,) = items(capsys, "run", tmp_path / "trials.yaml", "-o", store)
    assert (one["domain"], one["solver"], one["arm"]) == ("sre", "oracle:gentle", "baseline/probes-on")


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("parts: [{domain: srs, scenarios: [a]}]", (), "There is no domain 'srs'; did you mean 'sre'"),
        ("parts: [{domain: diagnosis, incident: [a], agents: [x]}]", (), "part 1: incident: there is no such key"),
        ("parts: [{domain: diagnosis}]", (), "part 1: there is nothing in it"),
        ("parts: []", (), "parts"),
        ("[1]", (), "expected a mapping"),
        ("scenarios: [made.yaml]\nagents: ['oracle:gentle']", ("-a", "rca"), "-a: a plan says that itself"),
    ],
)
def test_a_wrong_plan_is_one_sentence_and_runs_nothing(tmp_path, capsys, text, arguments, said):
    (tmp_path / "plan.yaml").write_text(text)
    store = tmp_path / "runs"
    assert command_line(["run", str(tmp_path / "plan.yaml"), "-o", str(store), *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not store.exists()


def test_a_plan_needs_a_store_and_a_suite_needs_an_agent(plan, tmp_path, capsys):
    assert command_line(["run", str(plan[0])]) == 2
    assert "name its folder with -o DIR" in capsys.readouterr().err
    assert command_line(["run", str(tmp_path / "tree")]) == 2
    assert "Missing option '-a'" in capsys.readouterr().err


def test_the_domains_define_every_metric_of_their_verdicts():
    assert DOMAINS.names()[:2] == ["diagnosis", "sre"]
    for name in ("diagnosis", "sre"):
        domain = domain_named(name)
        assert domain.name == name
        known = {definition.name for definition in domain.metrics()}
        assert len(known) == len(domain.metrics())
        verdicts = [v for folder in RunStore(GOLDEN / f"{name}_store").runs() for v in read_verdicts(folder)]
        assert verdicts
        assert {metric for verdict in verdicts for metric in verdict.metrics} <= known
        assert {domain.succeeded(verdict.metrics) for verdict in verdicts} == {True, False}
        assert domain.succeeded({}) is None


class RecordingEnvironment:
    """An environment that records which of its verbs was called."""

    def __init__(self, fails=None):
        self.called, self._fails = [], fails

    def __getattr__(self, verb):
        def call():
            self.called.append(verb)
            if verb == self._fails:
                raise ValueError(verb)
            return verb

        return call


@pytest.mark.parametrize(
    ("fails", "called"),
    [
        (None, ["prepare", "start", "session", "work", "settle", "remove", "verify"]),
        ("prepare", ["prepare", "remove", "verify"]),
        ("start", ["prepare", "start", "remove", "verify"]),
        ("work", ["prepare", "start", "session", "work", "remove", "verify"]),
        ("settle", ["prepare", "start", "session", "work", "settle", "remove", "verify"]),
        ("remove", ["prepare", "start", "session", "work", "settle", "remove", "verify"]),
    ],
)
def test_an_environment_is_removed_whatever_fails(fails, called):
    environment = RecordingEnvironment(fails)
    if fails is None:
        with open_session(environment) as session:
            assert session == "session"
            environment.work()
    else:
        with pytest.raises(ValueError, match=fails), open_session(environment):
            environment.work()
    assert environment.called == called


@pytest.mark.slow
def test_one_grade_and_one_report_for_both_domains(plan, tmp_path, capsys):
    path, store = plan
    items(capsys, "run", path, "-o", store)
    found = items(capsys, "score", "run", store, "--cases", tmp_path / "tree")
    assert {(i["solver"], bool(i["not_ranked"])) for i in found} == {
        *((f"oracle:{name}", True) for name in ("gentle", "harmful", "shallow")), ("constant", False), ("loudest", False),
    }  # fmt: skip
    assert all(i["metrics"]["certificate"]["value"] is not None for i in found if i["solver"].startswith("oracle:"))
    only_trials = GOLDEN / "sre_store"
    shutil.copytree(only_trials, tmp_path / "trials")
    assert len(items(capsys, "score", "run", tmp_path / "trials")) == 6
    assert command_line(["score", "run", str(tmp_path / "trials")]) == 0
    out = capsys.readouterr().out
    assert "Solvers, sre" in out
    assert "no: it is" in out
    scores = tmp_path / "scores.csv"
    assert (
        command_line(["score", "run", str(tmp_path / "trials"), "--scores", str(scores), "--metric", "certificate"])
        == 2
    )
    assert not scores.exists()  # oracles are in no score table
    assert command_line(["report", str(tmp_path / "trials"), "-o", str(tmp_path / "pages")]) == 0
    assert len(list((tmp_path / "pages").glob("made-*.html"))) == 6
