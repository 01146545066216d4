"""What comes in: the inclusion ledger, and one sentence for every bad table."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from opsassay.analysis.audit.audit import audit
from opsassay.analysis.audit.export import as_json, tables
from opsassay.analysis.audit.matched import match
from opsassay.analysis.audit.settings import AuditSettings, Columns, read_settings
from opsassay.analysis.audit.table import long_scores, read_table
from opsassay.core.errors import ConfigError, NotFoundError, UserError

from .made import QUICK, drawn, matched, table

HEADER = "family,system,case,method,score\n"
ROWS = "f,s,1,a,0.5\nf,s,1,b,1\nf,s,2,a,0\nf,s,2,b,0.25\n"


def read(tmp_path, text, name="scores.csv"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return long_scores(read_table(path), Columns(), "scores.csv")


def finite_everywhere(value):
    if isinstance(value, dict):
        return all(finite_everywhere(v) for v in value.values())
    if isinstance(value, list | tuple):
        return all(finite_everywhere(v) for v in value)
    return not isinstance(value, float) or np.isfinite(value)


def check_no_nan_reaches_a_reader(frame, settings=QUICK):
    """Audit *frame* and return the result; every number in JSON and tables is finite or absent."""
    result = audit(frame, settings)
    assert finite_everywhere(as_json(result))
    assert all(finite_everywhere(t.to_dicts()) for t in tables(result).values())
    return result


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty; a score table has a header"),
        (HEADER, "has a header and no rows"),
        (HEADER + "f,s,1,a,good\n", "row 1: the score 'good' is not a number"),
        (
            HEADER + "f,s,1,a,0.5\nf,s,1,b,1.5\n",
            r"row 2: the score 1.5 lies outside \[0, 1\]; divide percentages by 100",
        ),
        (HEADER + "f,s,1,a,-0.1\n", "row 1: the score -0.1 lies outside"),
        (HEADER + "f,s,1,a,nan\n", "row 1: the score is NaN"),
        (HEADER + "f,s,1,a,inf\n", "row 1: the score inf lies outside"),
        (HEADER + ROWS + "f,s,2,b,0.25\n", "row 4: this cell occurs more than once .*'2'.*'b'"),
        (HEADER + "f,,1,a,0.5\n", "row 1: the system is empty"),
        ("family,system,case,method\nf,s,1,a\n", "lacks the column 'score'"),
        ("family,system,case,method,scores\nf,s,1,a,1\n", "did you mean -c columns.score=scores"),
        (HEADER.encode() + b"f,caf\xe9,1,a,1\n", "is not UTF-8 text .near byte"),
        (HEADER + "f,s,1,a,1,9,9\n", "not a readable table"),
    ],
)
def test_a_bad_table_gets_one_sentence(tmp_path, text, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_broken_parquet(tmp_path):
    with pytest.raises(UserError, match="There is no score table"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(UserError, match="not a readable table"):
        read_table(tmp_path / "broken.parquet")


def test_csv_and_parquet_are_read_alike_and_columns_may_have_other_names(tmp_path):
    frame = drawn()
    frame.write_csv(tmp_path / "s.csv")
    frame.rename({"score": "acc", "system": "service"}).write_parquet(tmp_path / "s.parquet")
    one = matched(read_table(tmp_path / "s.csv"))
    other = matched(read_table(tmp_path / "s.parquet"), AuditSettings(columns=Columns(score="acc", system="service")))
    assert (one.values == other.values).all()
    no_family = matched(frame.drop("family"), AuditSettings(columns=Columns(family=None)))
    assert set(no_family.families) == {"all"}


def test_a_table_without_a_score_says_so():
    with pytest.raises(UserError, match="t has no case with a score: none was run, or all are void"):
        matched(drawn().clear())
    everyone = AuditSettings(exclude=("a", "b", "c"))
    with pytest.raises(UserError, match="every method is excluded"):
        matched(drawn(), everyone)


def test_one_method_is_refused():
    with pytest.raises(UserError, match="has one method, 'a'; a comparison needs at least two"):
        audit(drawn(methods=("a",)), QUICK)


def test_a_method_with_missing_cells_is_listed_with_the_reason_and_left_out():
    frame = drawn(methods=("a", "b", "c"))
    holes = frame.filter(~((pl.col("method") == "c") & (pl.col("system") == "s1") & (pl.col("case") < "case-007")))
    result = match(long_scores(holes, Columns(), "t"), QUICK)
    assert result.matched.methods == ("a", "b")
    (left,) = [a for a in result.ledger if not a.included]
    assert (left.method, left.cases, left.of_cases, left.systems, left.of_systems) == ("c", 198, 205, 3, 4)
    assert left.reason == "lacks a score on 7 cases: 7 of s1"
    nulls = frame.with_columns(score=pl.when(pl.col("method") == "c").then(None).otherwise("score"))
    assert match(long_scores(nulls, Columns(), "t"), QUICK).matched.methods == ("a", "b")


def test_when_every_method_lacks_cases_the_sentence_says_which():
    frame = drawn(methods=("a", "b"))
    extra = table({"s0": {"odd": [1.0]}}).with_columns(case=pl.lit("extra"), family=pl.lit("x"))
    both = pl.concat([frame, extra])
    with pytest.raises(UserError, match=r"fewer than two methods .* all 206 cases; 'a' lacks .* 1 of s0.*exclude"):
        audit(both, QUICK)
    result = match(long_scores(both, Columns(), "t"), AuditSettings(exclude=("odd",)))
    assert result.matched.methods == ("a", "b")
    assert [a.reason for a in result.ledger if a.method == "odd"] == ["set aside by hand"]
    with pytest.raises(NotFoundError, match="did you mean 'odd'"):
        audit(both, AuditSettings(exclude=("oddd",)))


def test_order_of_rows_changes_nothing():
    frame = drawn(seed=11)
    one, other = (
        matched(frame),
        matched(frame.sample(fraction=1, shuffle=True, seed=1).sort("method", "family", "system")),
    )
    assert one.systems == other.systems
    assert (one.values == other.values).all()


def test_equal_system_names_in_two_families_stay_apart():
    frame = drawn()
    twice = pl.concat([frame, frame.with_columns(family=pl.lit("z"))])
    assert matched(twice).systems[:2] == ("x/s0", "x/s1")
    assert len(matched(twice).systems) == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    "scores",
    [
        {"s": {"a": [1, 0, 1], "b": [0, 0, 1]}},
        {"s": {"a": [1, 0], "b": [0, 1]}},
        {"s": {"a": [1], "b": [0]}, "t": {"a": [0], "b": [0]}},
        {"s": {"a": [1, 0, 1], "b": [1, 0, 1]}, "t": {"a": [0, 0], "b": [0, 0]}, "u": {"a": [1, 1], "b": [1, 1]}},
        {"s": {"a": [0, 0, 0], "b": [1, 0, 1]}, "t": {"a": [0, 0, 0], "b": [0, 1, 1]}},
        {"s": {"a": [0, 0], "b": [1, 1]}, "t": {"a": [0, 0], "b": [1, 1]}, "u": {"a": [0, 0], "b": [1, 1]}},
        {s: {"a": [0.5, 0.25], "b": [0.5, 0.75], "c": [1, 1]} for s in "stuv"},
    ],
    ids=["one system", "two cases", "one case each", "all ties", "constant method", "always won", "constant fraction"],
)
@pytest.mark.filterwarnings("error")
def test_degenerate_tables_give_a_report_without_nan(scores):
    check_no_nan_reaches_a_reader(table(scores))


def test_stated_rules_stand_in_the_report():
    one = check_no_nan_reaches_a_reader(table({"s": {"a": [1, 0, 1], "b": [0, 0, 1]}}))
    assert "There is one system" in one.remarks[0]
    assert as_json(one)["items"][0]["loso"]["macro"] is None
    lone = check_no_nan_reaches_a_reader(drawn(families=("x", "x", "x", "y")))
    assert "Families with one system: y." in lone.remarks[0]
    constant = check_no_nan_reaches_a_reader(table({s: {"a": [0, 0, 0], "b": [1, 0, 1]} for s in "st"}))
    assert any("same score on every case: a" in remark for remark in constant.remarks)
    ties = check_no_nan_reaches_a_reader(table({s: {"a": [1, 0, 1], "b": [1, 0, 1]} for s in "stu"}))
    assert ties.pairs[0].paired.adjusted.all()
    assert ties.pairs[0].pooled.q == 0


@pytest.mark.slow
def test_a_million_rows(tmp_path):
    dice = np.random.default_rng(0)
    n, methods = 250_000, 4
    frame = pl.DataFrame(
        {
            "family": np.repeat("f", n * methods),
            "system": np.repeat(np.char.add("s", (np.arange(n) % 8).astype(str)), methods),
            "case": np.repeat(np.arange(n).astype(str), methods),
            "method": np.tile(np.array(["a", "b", "c", "d"]), n),
            "score": (dice.random(n * methods) < 0.4).astype(float),
        }
    )
    m = matched(frame)
    assert m.values.shape == (n, methods)
    assert m.means.mean() == pytest.approx(0.4, abs=0.005)


def test_settings_from_file_and_overrides(tmp_path):
    path = tmp_path / "audit.yaml"
    path.write_text("resamples: 700\ncolumns: {score: acc}\n")
    found = read_settings(path, ["columns.case=id", "exclude=[x, y]"])
    assert (found.resamples, found.columns.score, found.columns.case, found.exclude) == (700, "acc", "id", ("x", "y"))
    for override, sentence in (
        ("resample=3", "did you mean 'resamples'"),
        ("resamples=many", "-c resamples"),
        ("resamples", "expected KEY=VALUE"),
        ("columns.score.x=1", "columns.score.x|column"),
        ("exclude=[", "not valid YAML"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            read_settings(None, [override])
