"""Three rounds of annotation: agreement by the library against hand calculation, and what is settled when."""

from __future__ import annotations

import json

import pytest
import yaml

from opsassay.analysis.blame.annotations import (
    Annotations,
    Resolutions,
    agreement,
    read_annotations,
    read_resolutions,
    review_plan,
    settle,
)
from opsassay.core.errors import ConfigError, UserError
from opsassay.core.schema.trajectory import Attribution


def by(annotator, **labels):
    return Annotations(
        annotator=annotator,
        attributions={
            trace: Attribution(agent_name=label[0], step_id=label[1], uncertain=len(label) > 2)
            for trace, label in labels.items()
        },
    )


THREE = [
    by("ada", t1=("A", 1), t2=("A", 2), t3=("B", 3), t4=("B", 4)),
    by("ben", t1=("A", 1), t2=("A", 2), t3=("A", 3), t4=("B", 4, "uncertain")),
    by("eve", t1=("A", 1), t2=("A", 5), t3=("B", 3)),
]


def test_alpha_is_that_of_a_hand_calculation():
    # Two annotators, ten units, nominal: the coincidence matrix has o_AA = 10, o_AB = o_BA = 3, o_BB = 4, n = 20,
    # n_A = 13, n_B = 7: alpha = 1 - (n - 1) o_AB / (n_A n_B) = 1 - 19 * 3 / 91.
    first, second = "AAAAABBAAB", "AAAAABBBBA"
    pair = [
        by(who, **{f"t{i}": (label, 1 + (label == "B")) for i, label in enumerate(row)})
        for who, row in (("x", first), ("y", second))
    ]
    found = agreement(pair)
    assert found.agent_alpha == pytest.approx(1 - 19 * 3 / 91)
    assert found.step_alpha == pytest.approx(found.agent_alpha)


def test_alpha_takes_missing_labels_as_missing_and_is_undefined_where_nothing_varies():
    # o_AB = o_BA = 1 (t3), n_A = 7, n_B = 4, n = 11 (t4 counts two labels): alpha = 1 - (n - 1) o_AB / (n_A n_B).
    assert agreement(THREE).agent_alpha == pytest.approx(1 - 10 / 28)
    assert (agreement(THREE).annotators, agreement(THREE).traces) == (("ada", "ben", "eve"), 4)
    same = [by("x", t=("A", 1)), by("y", t=("A", 1))]
    assert (agreement(same).agent_alpha, agreement(same).step_alpha) == (None, None)


def test_round_one_tells_agreed_from_uncertain_disagreed_and_missing():
    states = {one.trace: (one.status, one.note) for one in settle(THREE)}
    assert states["t1"] == ("agreed", "")
    assert states["t2"][0] == "disagreed"
    assert "eve: A at 5" in states["t2"][1]
    assert states["t3"][0] == "disagreed"
    assert states["t4"] == ("missing", "not annotated by eve")
    whole = [*THREE[:2], by("eve", t1=("A", 1), t2=("A", 5), t3=("B", 3), t4=("B", 4))]
    assert {one.trace: one.status for one in settle(whole)}["t4"] == "uncertain"


def test_a_resolution_counts_when_all_are_named_and_a_contested_label_is_open_again(tmp_path):
    path = tmp_path / "r.yaml"
    told = {"agent": "B", "step": 3, "by": ["ada", "ben", "eve"]}
    path.write_text(
        yaml.safe_dump(
            {"resolved": {"t3": told, "t2": {**told, "by": ["ada"]}, "t1": told}, "contested": {"t1": ["eve"]}}
        )
    )
    states = {one.trace: one for one in settle(THREE, read_resolutions(path))}
    assert (states["t3"].status, states["t3"].attribution.agent_name, states["t3"].note) == (
        "resolved",
        "B",
        "by ada, ben, eve",
    )
    assert (states["t2"].status, states["t2"].note) == ("disagreed", "resolved without ben, eve")
    assert (states["t1"].status, states["t1"].attribution) == ("contested", None)
    assert review_plan(THREE, list(states.values())) == {"ada": ["t3"], "ben": [], "eve": []}


def test_files_that_cannot_be_used_are_refused_in_one_sentence(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(by("ada", t=("A", 1)).model_dump(mode="json")))
    with pytest.raises(UserError, match="given twice"):
        read_annotations([tmp_path / "a.json", tmp_path / "b.json"])
    with pytest.raises(UserError, match="at least two"):
        read_annotations([tmp_path / "a.json"])
    with pytest.raises(UserError, match=r"nothing\.json"):
        read_annotations([tmp_path / "nothing.json"])
    with pytest.raises(UserError, match="'t9', which nobody annotated"):
        settle(THREE, Resolutions(contested={"t9": ("ada",)}))
    (tmp_path / "r.yaml").write_text("resolve: {}")
    with pytest.raises(ConfigError, match="did you mean 'resolved'"):
        read_resolutions(tmp_path / "r.yaml")
