"""Tables of scores as others lay them out: seeds, conditions, means without cases; thresholds, modal answers."""

from __future__ import annotations

import json

import polars as pl
import pytest
from benchmarks.papers.audit_tables import command
from benchmarks.papers.running import run

from analysis.audit.made import QUICK, drawn, matched
from opsassay.analysis.audit.audit import audit
from opsassay.analysis.audit.matched import match
from opsassay.analysis.audit.settings import AuditSettings, Columns
from opsassay.analysis.audit.table import long_scores
from opsassay.analysis.audit.verify import ledger_figures, read_ledger
from opsassay.cli import run as opsassay
from opsassay.core.errors import UserError


def tables(capsys, *words):
    code = run(command, [*map(str, words), "--resamples", "200", "--json"])
    out, err = capsys.readouterr()
    return code, {one["table"] or one["title"]: one["rows"] for one in json.loads(out)["items"]} if out else {}, err


def merged_long(seeds=3):
    """Return a table in the layout of a long merge: a row per case, method, two conditions and seed."""
    base = drawn(sizes=(30, 40), families=("x", "x"), methods=("a", "b"))
    parts = []
    for n in range(seeds):
        for prompt in ("short", "long"):
            flipped = (
                pl.when(pl.int_range(pl.len()) % (7 + n) == 0).then(1 - pl.col("score")).otherwise(pl.col("score"))
            )
            parts.append(base.with_columns(flipped, seed=pl.lit(n), prompt=pl.lit(prompt), tools=pl.lit("on")))
    return pl.concat(parts)


def test_seeds_are_averaged_and_conditions_are_methods_of_their_own():
    long = merged_long()
    columns = Columns(conditions=("prompt", "tools"))
    found = long_scores(long, columns, "t")
    assert sorted(found["method"].unique()) == ["a [long, on]", "a [short, on]", "b [long, on]", "b [short, on]"]
    assert found.height == 70 * 2 * 2
    assert "seed" not in found.columns
    one = found.filter(method="a [long, on]", system="s0", case="case-000")["score"].item()
    by_hand = long.filter(method="a", prompt="long", system="s0", case="case-000")["score"]
    assert len(by_hand) == 3
    assert one == pytest.approx(by_hand.mean())
    m = match(found, AuditSettings(columns=columns), "t").matched
    assert (len(m.methods), m.cases) == (4, 70)


def test_without_the_names_of_the_columns_the_sentence_says_how_to_give_them():
    with pytest.raises(UserError, match=r"occurs more than once .* columns\.seed, columns\.conditions"):
        long_scores(merged_long(), Columns(), "t")
    with pytest.raises(UserError, match=r"lacks the column 'tool' \(conditions\[0\]\); did you mean"):
        long_scores(merged_long(), Columns(conditions=("tool",)), "t")
    twice = pl.concat([merged_long(1), merged_long(1)])
    with pytest.raises(UserError, match="seed '0'"):
        long_scores(twice, Columns(conditions=("prompt", "tools")), "t")


def test_the_answer_over_seeds_is_the_most_frequent_one_and_a_missing_score_is_none():
    rows = [
        ("f", "s", "1", m, n, score, said, "x")
        for m in "ab"
        for n, score, said in ((0, 1.0, "x"), (1, None, "y"), (2, 0.0, "y"))
    ]
    names = ["family", "system", "case", "method", "seed", "score", "predicted", "expected"]
    found = long_scores(pl.DataFrame(rows, schema=names, orient="row"), Columns(), "t")
    assert found["score"].to_list() == [0.5, 0.5]
    assert found["predicted"].to_list() == ["y", "y"]


def test_the_command_line_reads_the_layout_by_settings(tmp_path, capsys):
    merged_long().write_csv(tmp_path / "merged.csv")
    words = [
        "audit",
        str(tmp_path / "merged.csv"),
        "-o",
        str(tmp_path / "out"),
        "-c",
        "columns.conditions=[prompt, tools]",
    ]
    words += ["-c", "resamples=200", "-c", "permutations=200", "-c", "simulations=100", "--json"]
    assert opsassay(words) == 0
    assert len(json.loads(capsys.readouterr().out)["methods"]) == 4


def means(long=True):
    m = matched(drawn())
    rows = [
        (f, s, int(n), name, float(m.means[at, k]))
        for at, (f, s, n) in enumerate(zip(m.families, m.systems, m.sizes, strict=True))
        for k, name in enumerate(m.methods)
    ]
    table = pl.DataFrame(rows, schema=["family", "system", "n", "method", "mean"], orient="row")
    return table if long else table.pivot("method", index=["family", "system", "n"], values="mean")


@pytest.mark.parametrize("long", [True, False], ids=["a row a method", "a column a method"])
def test_means_give_what_follows_from_them_and_the_rest_is_named(tmp_path, capsys, long):
    means(long).write_csv(tmp_path / "means.csv")
    code, found, err = tables(capsys, tmp_path / "means.csv")
    assert (code, sorted(found)) == (0, [2, 3, 4, 6, 8, 10]), err
    for named in ("I2 and prediction intervals of Table 2", "Tables 5, 7, 9 and 11", "omnibus tests"):
        assert named in err
    assert set(found[2][0]) == {"pair", "signs +/-/0"}  # nothing is made up
    report = audit(drawn(), QUICK)
    for pair, row in zip(report.pairs, found[6], strict=True):
        assert float(row["LRT"]) == pytest.approx(pair.interaction["fractional_logit"].statistic, abs=0.006)
    for pair, row in zip(report.pairs, found[3], strict=True):
        assert row["LOSO reversals"] == f"{pair.loso['macro'].summary().reversals}/4"
    for number in ("5", "7", "9", "11"):
        code, _, err = tables(capsys, tmp_path / "means.csv", "-t", number)
        assert (code, f"Table {number} needs case scores" in err) == (2, True)
    assert opsassay(["audit", "verify", str(tmp_path / "means.csv"), "--json"]) == 0
    figures = {(i["figure"], i["first"], i["second"]) for i in json.loads(capsys.readouterr().out)["items"]}
    assert ("reversals", "a", "b") in figures
    assert not {name for name, *_ in figures} & {"i2", "prediction_low", "ci_low"}
    assert opsassay(["audit", str(tmp_path / "means.csv"), "-o", str(tmp_path / "out")]) == 2
    assert "opsassay audit verify" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (pl.col("mean") * 100, r"a mean of a lies outside \[0, 1\]; divide percentages by 100"),
        (
            pl.when(pl.col("method") == "b").then(pl.col("n") - 1).otherwise(pl.col("n")).alias("n"),
            "over different n, so they are not matched",
        ),
        (pl.lit("a").alias("method"), "occur more than once; keep one mean"),
    ],
)
def test_means_that_cannot_be_compared_are_one_sentence(change, sentence):
    with pytest.raises(UserError, match=sentence):
        read_ledger(means().with_columns(change), "means.csv")


def test_a_ledger_with_effects_is_read_as_before():
    wide = means(long=False)
    with_effect = wide.with_columns(
        delta_a_b_pp=100 * (pl.col("a") - pl.col("b")), low_ci_low=pl.lit(-50.0), high_ci_high=pl.lit(50.0)
    )
    assert ("i2", "a", "b", "") in ledger_figures(read_ledger(with_effect, "t"))
    assert ("i2", "a", "b", "") not in ledger_figures(read_ledger(wide, "t"))


def test_invalid_outputs_show_what_a_mean_owes_to_them(tmp_path, capsys):
    scores = drawn(sizes=(4, 30), families=("x", "x"), methods=("a", "b", "c"))
    gone = (pl.col("method") == "c") & (pl.col("system") == "s0") & pl.col("case").is_in(["case-000", "case-001"])
    table = scores.with_columns(pl.when(gone).then(None).otherwise(pl.col("score")).alias("score"))
    fixed = pl.when((pl.col("method") == "c") & (pl.col("system") == "s0") & ~gone).then(1.0).otherwise(pl.col("score"))
    table.with_columns(fixed.alias("score")).write_csv(tmp_path / "scores.csv")
    code, found, err = tables(capsys, tmp_path / "scores.csv", "-t", "denominators")
    assert code == 0, err
    assert found == {
        "Denominators": [
            {
                "method": "c",
                "system": "x / s0",
                "cases": 4,
                "scored": 2,
                "mean of scored": "1.000",
                "mean, missing as 0": "0.500",
            }
        ]
    }


def test_thresholds_and_modal_answers_are_those_by_hand(tmp_path, capsys):
    rows = []
    for system, said in (("s", ["x", "x", "x", "y"]), ("t", ["x", "y", "z", "z"])):
        for case, one in enumerate(said):
            for method, protocol, right in (
                ("m", "z3", one == "x"),
                ("m", "z2", case > 0),
                ("other", "", case % 2 == 0),
            ):
                label = one if protocol == "z3" else "x"
                rows.append(("f", system, f"{case}", method, protocol, float(right), label, "x", min(1.0, right + 0.5)))
    names = ["family", "system", "case", "method", "protocol", "score", "predicted", "expected", "acc_at_3"]
    pl.DataFrame(rows, schema=names, orient="row").write_csv(tmp_path / "scores.csv")
    code, found, err = tables(capsys, tmp_path / "scores.csv", "-t", "11", "-t", "figure4")
    assert code == 0, err
    first, second = found[11]
    assert first == {
        "method": "m", "protocol": "z3", "systems": 2, "macro": "50.0", "min": "25.0", "max": "75.0",
        "macro acc@3": "75.0", "mean modal freq.": "62.5",
    }  # fmt: skip
    assert (second["protocol"], second["macro"], second["mean modal freq."]) == ("z2", "75.0", "100.0")
    s, t = found["Figure 4. Modal outputs"]
    assert (s["system"], s["m modal freq"], s["m score"]) == ("f / s", "75.0", "75.0")
    assert (t["m modal freq"], t["other modal freq"], t["other score"]) == ("50.0", "100.0", "50.0")
