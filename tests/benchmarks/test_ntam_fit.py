"""NTAM's constants fitted to rankings: planted constants order unseen answers again, and bad tables are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.papers.ntam_fit import RankedScenario, command, fit, mean_agreement, read_rankings
from click.testing import CliRunner

from opsassay.core.errors import UserError
from opsassay.scoring.itbench import ItbenchAnswer, ItbenchTruth
from opsassay.scoring.ntam import TABLE_33, Parameters

EXAMPLE = Path(__file__).parents[2] / "examples" / "itbench"
EXPERTS = Parameters(alpha=2.5, beta=0.1, gamma=0.0, delta=2.0, c=0.1, d=1.5, zeta=1.0)
"""Rankings of answers by these constants and by Table 33 differ."""


def answers():
    flag, cart, front = "shop/ConfigMap/flag-config", "shop/Service/cart", "shop/Service/front"
    edges = ((flag, cart), (cart, "shop/Service/checkout"), ("shop/Service/checkout", front))
    return [
        ItbenchAnswer(roots, edges[:count])
        for roots in ((flag,), (cart,), (front,), (flag, cart), (flag, cart, front))
        for count in (0, 1, 3)
    ]


@pytest.fixture(scope="module")
def ranked():
    truth = ItbenchTruth.read(EXAMPLE / "truths" / "scenario_7")
    given = answers()
    scores = [truth.score(one, EXPERTS) for one in given]
    return RankedScenario(truth, given, [-one.fl - one.fpc for one in scores])


@pytest.mark.slow
def test_constants_by_which_experts_ranked_are_agreed_with(ranked):
    assert ranked.agreement(EXPERTS) == pytest.approx(1.0)
    before = ranked.agreement(TABLE_33)
    assert before < 0.9
    assert mean_agreement([ranked], fit([ranked])) > max(0.95, before)


def test_answers_that_ntam_cannot_tell_apart_agree_with_no_order(ranked):
    alike = RankedScenario(ranked.truth, [ItbenchAnswer((), ())] * 2, [1, 2])
    assert alike.agreement(TABLE_33) == 0.0


def test_the_command_says_how_well_both_agree(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.papers.ntam_fit.fit", lambda _: EXPERTS)
    (tmp_path / "ranks.csv").write_text("scenario,trial,rank\n7,1,1\n7,2,2\n")
    arguments = [str(EXAMPLE / "truths"), str(EXAMPLE / "answers"), str(tmp_path / "ranks.csv")]
    told = json.loads(CliRunner().invoke(command, [*arguments, "--json"]).stdout)
    assert (told["before"], told["left_out"], told["scenarios"]) == (1.0, None, 1)
    assert told["items"] == [EXPERTS.model_dump()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("scenario,trial\n7,1\n", "lacks the column rank"),
        ("scenario,trial,rank\n9,1,1\n9,2,2\n", "ranks the scenario 9"),
        ("scenario,trial,rank\n7,1,1\n", "no scenario with two answers"),
        ("scenario,trial,rank\n7,1,first\n", "is no CSV"),
        ("scenario,trial,rank\n7,1,\n", "has an empty cell"),
        ("scenario,trial,rank\n7,8,1\n7,9,2\n", "has no agent_output.json"),
    ],
)
def test_a_bad_ranking_is_one_sentence(tmp_path, text, said):
    (tmp_path / "ranks.csv").write_text(text)
    with pytest.raises(UserError, match=said):
        read_rankings(EXAMPLE / "truths", EXAMPLE / "answers", tmp_path / "ranks.csv")
