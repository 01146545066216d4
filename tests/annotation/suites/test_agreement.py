"""Agreement of two annotators against hand calculations and scikit-learn."""

from __future__ import annotations

import pytest
from sklearn.metrics import cohen_kappa_score

from opsassay.annotation.suites.agreement import CaseVerdict, agreement, read_verdicts, sample, save_verdict
from opsassay.core.errors import DatapackError, UserError


def said(suite, annotator, agrees):
    for number, agree in enumerate(agrees):
        save_verdict(suite, CaseVerdict(case=f"c{number}", annotator=annotator, nodes=() if agree else ("span|a::x",)))


def test_kappa_by_hand_and_by_scikit_learn(tmp_path):
    one, two = [1, 1, 1, 1, 0, 0, 1, 0, 1, 1], [1, 1, 1, 0, 0, 0, 1, 1, 1, 1]
    said(tmp_path, "ada", one)
    said(tmp_path, "grace", two)
    found = agreement(tmp_path)
    # Both say agree 7 of 10 times: by chance 0.7*0.7 + 0.3*0.3 = 0.58; observed 0.8; kappa = 0.22/0.42.
    assert (found.cases, found.raw, found.valid) == (10, 0.8, 6)
    assert found.kappa == pytest.approx(0.22 / 0.42)
    assert found.kappa == pytest.approx(cohen_kappa_score(one, two))
    assert [d["case"] for d in found.disagreements] == ["c3", "c7"]
    assert found.disagreements[0]["grace"] == {
        "nodes": ["span|a::x"], "edges": {}, "missing": [], "note": "", "agree": False,
    }  # fmt: skip


def test_kappa_is_undefined_when_both_always_say_the_same(tmp_path):
    said(tmp_path, "ada", [1, 1, 1])
    said(tmp_path, "grace", [1, 1, 1])
    assert (agreement(tmp_path).raw, agreement(tmp_path).kappa) == (1.0, None)


def test_the_last_verdict_on_a_case_counts_and_a_torn_line_is_dropped(tmp_path):
    said(tmp_path, "ada", [0])
    said(tmp_path, "ada", [1])
    with (tmp_path / "audit" / "ada.jsonl").open("a") as out:
        out.write('{"case": "c0", "annot')
    assert read_verdicts(tmp_path, "ada")["c0"].agree


def test_what_cannot_be_compared_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"judged by 0 annotators \(nobody\); agreement needs two: `"):
        agreement(tmp_path)
    said(tmp_path, "ada", [1])
    save_verdict(tmp_path, CaseVerdict(case="other", annotator="grace"))
    with pytest.raises(UserError, match="judged no case in common"):
        agreement(tmp_path)
    (tmp_path / "audit" / "ada.jsonl").write_text("not json\n")
    with pytest.raises(DatapackError, match=r"ada\.jsonl:1 is not a verdict"):
        agreement(tmp_path)
    with pytest.raises(UserError, match="cannot name an annotator"):
        read_verdicts(tmp_path, "../ada")


def test_both_annotators_draw_the_same_sample():
    ids = [f"{n:03d}" for n in range(50)]
    assert sample(ids, 10, 0) == sample(list(reversed(ids)), 10, 0)
    assert sample(ids, 10, 0) != sample(ids, 10, 1)
    assert sample(ids, None, 0) == ids
