"""A model as a judge of evidence: its share, its failures, and that it changes nothing else."""

from __future__ import annotations

import json

import pytest

from evals.commands import agent
from opsassay.cli import run as command_line
from opsassay.core.schema.run import EvidenceResult, MetricStatus, Verdict
from opsassay.evals.diagnosis.score import SUPPORTED, judge_evidence, questions
from opsassay.evals.runner.store import RunStore, read_verdicts
from opsassay.scoring.metrics import scored
from opsassay.solvers.agents.models import Reply
from opsassay.solvers.agents.models.scripted import ScriptedModel
from telemetry.packs import make_tree


def result(sql, status="ok", claim="cart is slow"):
    rows = ((1,),) if status == "ok" else ()
    return EvidenceResult(sql=sql, claim=claim, status=status, columns=("n",), rows=rows, about="cart")


def verdict(*results):
    return Verdict(
        run="c/1", item="i", system="s", solver="a", profile="default", metrics={"f1": scored(1)}, evidence=results
    )


def model(answer):
    """Return a model that answers *answer* of the question, and the list of the questions that it was asked."""
    asked = []

    def respond(messages, _tools):
        asked.append(messages[-1].content)
        return answer(messages[-1].content)

    return ScriptedModel(respond), asked


def says(supported):
    return Reply(text=json.dumps({"supported": supported, "why": "so it is"}))


def test_the_share_is_of_all_statements_and_one_without_rows_is_not_asked_about():
    judge, asked = model(lambda question: says("SELECT 1" in question))
    given = verdict(result("SELECT 1"), result("SELECT 1"), result("SELECT 2"), result("SELECT 3", status="error"))
    found = judge_evidence(given, judge)
    assert found.metrics[SUPPORTED].value == pytest.approx(2 / 4)
    assert [one.supported for one in found.evidence] == [True, True, False, False]
    assert "not asked" in found.evidence[3].opinion
    assert len(asked) == questions(given) == 2
    assert (found.profile, found.metrics["f1"]) == ("default-judged", given.metrics["f1"])


def test_the_judge_sees_claim_statement_and_rows():
    judge, (asked) = model(lambda _: says(supported=True))
    judge_evidence(verdict(result("SELECT count(*)", claim="carts are lost")), judge)
    (question,) = asked
    for part in ("About: cart", "Claim: carts are lost", "SQL: SELECT count(*)", "Rows (at most 1): [[1]]"):
        assert part in question


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (Reply(error_status=429), "429"),
        (Reply(error_status=500), "500"),
        (Reply(broken="garbage"), ""),
        (Reply(broken="half"), ""),
        (Reply(text=""), "no JSON"),
        (Reply(text="It is supported."), "no JSON"),
        (Reply(text='{"supported": "yes"}'), "does not say"),
        (Reply(text="[true]"), "does not say"),
    ],
)
def test_a_call_that_fails_is_failed_to_grade(reply, reason):
    judge, _ = model(lambda question: reply if "SELECT 2" in question else says(supported=True))
    metric = judge_evidence(verdict(result("SELECT 1"), result("SELECT 2")), judge).metrics[SUPPORTED]
    assert (metric.status, metric.value) == (MetricStatus.FAILED, None)
    assert metric.reason.startswith("the judge failed: ")
    assert reason in metric.reason


def test_an_answer_without_evidence_is_not_judged():
    judge, asked = model(lambda _: says(supported=True))
    assert judge_evidence(verdict(), judge).metrics[SUPPORTED].status is MetricStatus.NOT_APPLICABLE
    assert asked == []


@pytest.mark.slow
def test_the_command_keeps_judged_verdicts_beside_the_others(tmp_path, capsys):
    tree = make_tree(tmp_path / "t", count=1)
    (tmp_path / "judge.yaml").write_text(
        'rules:\n  - when: "Rows"\n    reply: \'{"supported": true, "why": "it does"}\'\n'
    )
    command_line(
        ["run", str(tree.root), "-a", str(agent(tmp_path / "a", "print(json.dumps(GOOD))")), "-c", "sealing=off"]
    )
    capsys.readouterr()
    judge = f"scripted:{tmp_path / 'judge.yaml'}"
    assert command_line(["score", "run", str(tree.root), "--judge", judge, "--json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert item["metrics"][SUPPORTED]["value"] == 1.0
    (run_dir,) = RunStore(tree.root).runs()
    kept = {one.profile: one for one in read_verdicts(run_dir)}
    assert set(kept) == {"default", "default-judged"}
    assert SUPPORTED not in kept["default"].metrics
    assert command_line(["report", str(tree.root), "-o", str(tmp_path / "r"), "--profile", "default-judged"]) == 0
    assert "the judge: supported (it does)" in (tmp_path / "r" / "report.html").read_text()
