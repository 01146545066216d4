"""Protocols, thresholds, labels, references, power, and what is advised."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy import stats

from opsassay.analysis.audit.advice import cases_needed, claim, recommend
from opsassay.analysis.audit.audit import audit
from opsassay.analysis.audit.baselines import CHANCE, CONSTANT, canonicalised, modal_share, with_references
from opsassay.analysis.audit.export import as_json
from opsassay.analysis.audit.power import simulate_power
from opsassay.analysis.audit.resampling import bootstrap_means
from opsassay.analysis.audit.sensitivity import protocol_gaps, protocol_rows, scenario, without_family
from opsassay.analysis.audit.settings import AuditSettings
from opsassay.core.errors import NotFoundError, UserError

from .made import QUICK, drawn, matched, table


@pytest.fixture
def two_protocols():
    """Method a under the protocols v1 and v2, b under one; v2 wins on s and turns the gap."""
    base = table({"s": {"a": [0, 0, 1, 0], "b": [1, 1, 0, 0]}, "t": {"a": [1, 1, 0, 1], "b": [0, 1, 1, 0]}})
    base = base.with_columns(protocol=pl.when(pl.col("method") == "a").then(pl.lit("v1")).otherwise(pl.lit("")))
    other = table({"s": {"a": [1, 1, 1, 0]}, "t": {"a": [1, 1, 0, 1]}}).with_columns(protocol=pl.lit("v2"))
    return pl.concat([base, other])


def test_how_much_of_a_gap_is_preprocessing(two_protocols):
    m = matched(two_protocols)
    assert (m.primary["a"], list(m.variants)) == ("v1", [("a", "v2")])
    first, second = protocol_rows(m)
    assert (first.protocol, first.primary, first.macro) == ("v1", True, pytest.approx(0.5))
    assert (second.macro, second.mean_shift, second.max_shift) == pytest.approx((0.75, 0.25, 0.5))
    (gap,) = protocol_gaps(m)
    # a - b: -1/4 and +1/4 with v1, so 0; +1/4 and +1/4 with v2.
    assert (gap.combinations, gap.gap, gap.highest, gap.share) == (2, 0.0, pytest.approx(0.25), None)
    assert gap.same_reversals is False


def test_the_protocol_that_covers_most_cases_is_primary(two_protocols):
    holes = two_protocols.filter(
        ~((pl.col("protocol") == "v1") & (pl.col("system") == "t") & (pl.col("case") == "case-000"))
    )
    m = matched(holes)
    assert m.primary["a"] == "v2"
    assert not m.variants


def test_without_systems_and_families():
    frame = drawn(seed=12)
    result = audit(frame, QUICK.model_copy(update={"without": ("s3",)}))
    pair = result.pairs[0]
    names = [s.name for s in pair.scenarios]
    assert names == ["without s3", "without x", "without y"]
    alone = matched(frame.filter(pl.col("system") != "s3"))
    expected = scenario("without s3", alone, 0, 1)
    assert pair.scenarios[0] == expected
    by_family = without_family(matched(frame), 0, 1)[0]
    rest = scenario("without x", matched(frame.filter(pl.col("family") == "y")), 0, 1)
    assert by_family == rest
    with pytest.raises(NotFoundError, match="did you mean 's3'"):
        audit(frame, QUICK.model_copy(update={"without": ("s33",)}))


@pytest.fixture
def labelled():
    frame = table({"s": {"a": [1, 0, 0, 0], "b": [1, 1, 0, 1]}, "t": {"a": [0, 0], "b": [0, 1]}})
    expected = {"s": ["cart", "cart", "db", "cart"], "t": ["web", "db"]}
    said = {
        ("a", "s"): ["cart", "Cart-svc", "web", "web"],
        ("b", "s"): ["cart", "cart", "web", "cart"],
        ("a", "t"): ["db", "web"],
        ("b", "t"): ["db", "db"],
    }
    number = pl.col("case").str.slice(5).cast(pl.Int64)
    return frame.with_columns(
        pl.struct("system", number.alias("i"))
        .map_elements(lambda r: expected[r["system"]][r["i"]], pl.String)
        .alias("expected"),
        pl.struct("method", "system", number.alias("i"))
        .map_elements(lambda r: said[r["method"], r["system"]][r["i"]], pl.String)
        .alias("predicted"),
    )


def test_chance_constant_and_collapsed_answers(labelled):
    m = matched(labelled)
    references = with_references(m)
    assert references.methods == ("a", "b", CHANCE, CONSTANT)
    assert references.means[:, 2] == pytest.approx([1 / 2, 1 / 2])
    assert references.means[:, 3] == pytest.approx([3 / 4, 1 / 2])
    assert modal_share(m.labels, m.starts, m.sizes) == pytest.approx(np.array([[2 / 4, 3 / 4], [1 / 2, 1]]))
    assert "chance or constant" not in " ".join(audit(labelled, QUICK).remarks)
    assert "no chance or constant row" in " ".join(audit(labelled.drop("expected"), QUICK).remarks)


def test_canonical_labels_rescore_what_becomes_equal(labelled):
    again = canonicalised(matched(labelled), {"Cart-svc": "cart"})
    assert again.values[:, 0].tolist() == [1, 1, 0, 0, 0, 0]
    assert again.values[:, 1].tolist() == matched(labelled).values[:, 1].tolist()
    result = audit(labelled, QUICK.model_copy(update={"canonical": {"Cart-svc": "cart"}}))
    assert [s.name for s in result.pairs[0].scenarios] == ["canonical labels"]


def test_a_case_with_two_expected_labels_is_refused(labelled):
    spoilt = labelled.with_columns(
        expected=pl.when((pl.col("method") == "b") & (pl.col("case") == "case-000"))
        .then(pl.lit("odd"))
        .otherwise("expected")
    )
    with pytest.raises(UserError, match=r"case 'case-000' of .* has several expected labels"):
        matched(spoilt)


def test_a_covariate_must_be_a_number():
    frame = drawn().with_columns(size=pl.lit("big"))
    with pytest.raises(UserError, match="'size' is no finite number"):
        matched(frame, AuditSettings(covariates=("size",)))
    with pytest.raises(UserError, match="lacks the covariate 'sise'"):
        matched(frame, AuditSettings(covariates=("sise",)))


def test_power_has_its_size_under_the_null_and_finds_large_gaps():
    sizes, families = np.full(12, 60), ["x"] * 4 + ["y"] * 4 + ["z"] * 4
    rows = {(p.gap, p.tau, p.family_share): p for p in simulate_power(sizes, families, 0.5, simulations=2000)}
    # 2,000 runs: standard error 0.005.
    assert rows[0, 0.1, 0.0].interval_excludes_zero == pytest.approx(0.05, abs=0.015)
    assert rows[0, 0.1, 1.0].family_interval_excludes_zero == pytest.approx(0.05, abs=0.015)
    assert rows[0, 0.1, 1.0].interval_excludes_zero > 0.15  # families share their effect: systems are not independent
    assert rows[0, 0, 0.0].heterogeneity_found == pytest.approx(0.05, abs=0.015)
    assert rows[0.3, 0.05, 0.0].interval_excludes_zero > 0.99
    assert rows[0.3, 0.05, 0.0].mean_reversals < rows[0, 0.2, 0.0].mean_reversals


def test_a_clear_winner_is_chosen_and_few_cases_are_never_enough():
    dice = np.random.default_rng(0)
    many = {"a": (dice.random(200) < 0.8).astype(float), "b": (dice.random(200) < 0.3).astype(float)}
    m = matched(table({"large": many, "tiny": {"a": [1] * 8, "b": [0] * 8}}))
    large, tiny = recommend(m, bootstrap_means(m, 1000))
    assert (large.choice, large.candidates, large.needed) == ("a", ("a",), None)
    assert large.text == "For a system like large, choose a."
    assert (tiny.choice, tiny.candidates) == (None, ("a", "b"))
    assert (
        tiny.text
        == "For a system like tiny, choose between a and b: undecided, n too small (8 cases, at least 20 are needed)."
    )


def test_cases_needed_is_the_normal_formula():
    assert cases_needed(0.1, 0.5) == int(np.ceil(((stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * 5) ** 2))
    assert cases_needed(0.0, 0.5) is None


def test_the_claim_counts_where_the_winner_is_best_and_where_choosing_by_the_pool_loses():
    m = matched(
        table(
            {
                "s": {"a": [1, 1, 1, 1], "b": [0, 0, 0, 0]},
                "t": {"a": [0, 0, 0, 0], "b": [1, 0, 0, 0]},
                "u": {"a": [1, 0], "b": [1, 0]},
            },
            {"u": "g"},
        )
    )
    text = claim(m, [True])
    assert text == (
        "Over 10 matched cases of 3 systems in 2 families, a has the highest mean of system means (50.0%) and is best "
        "on 2 of 3 systems (1 of them shared). The method that wins on the other systems loses on 2 of 3: "
        "s (-100.0 pp), t (-25.0 pp). "
        "For another system, the prediction interval of 1 of 1 pair includes zero."
    )


def test_real_scores_of_one_agent(real_data):
    frames = []
    for path in sorted((real_data / "openrca-archive").glob("agent-*.csv")):
        rows = pl.read_csv(path, infer_schema_length=0)
        scores = rows.select(
            family=pl.lit("OpenRCA"),
            system=pl.lit(path.stem.removeprefix("agent-")),
            case=pl.int_range(pl.len()).cast(pl.String),
            method=pl.lit("agent"),
            score=pl.col("score").cast(pl.Float64),
        )
        frames += [scores, scores.with_columns(method=pl.lit("constant"), score=pl.lit(0.0))]
    result = audit(pl.concat(frames), QUICK)
    whole = as_json(result)
    assert result.matched.cases == 335
    assert sorted(result.matched.sizes.tolist()) == [51, 70, 78, 136]
    item = whole["items"][0]
    assert item["signs"] == {"positive": 4, "negative": 0, "zero": 0}
    assert item["loso"]["macro"]["reversals"] == 0
    assert "is best on 4 of 4 systems" in whole["claim"]
    by_hand = np.array([e["effect"] for e in item["effects"].values()])
    assert by_hand == pytest.approx(result.matched.means[:, 0])


def test_settings_that_follow_the_case_are_one_protocol():
    frame = drawn(methods=("a", "b")).with_columns(protocol=pl.lit("n=") + pl.col("case"))
    m = matched(frame)
    assert m.methods == ("a", "b")
    assert m.primary == {"a": "mixed", "b": "mixed"}
    assert not m.variants


def test_the_share_of_a_gap_is_its_range_over_protocols_by_the_gap():
    base = table({"s": {"a": [1, 1, 1, 0], "b": [0, 0, 0, 1]}}).with_columns(protocol=pl.lit("v1"))
    other = table({"s": {"a": [1, 0, 0, 0]}}).with_columns(protocol=pl.lit("v2"))
    (gap,) = protocol_gaps(matched(pl.concat([base, other])))
    # 3/4 - 1/4 with v1, 1/4 - 1/4 with v2: half a point of gap, all of it preprocessing.
    assert (gap.gap, gap.lowest, gap.highest, gap.share) == pytest.approx((0.5, 0.0, 0.5, 1.0))


def test_a_lead_must_hold_against_all_rivals_at_once():
    # a beats b on 11 cases and loses on 2: 2.6 standard errors, enough for one comparison and not for ten.
    close = {"a": [1] * 50 + [0] * 50, "b": [1] * 39 + [0] * 11 + [1] * 2 + [0] * 48}
    alone = matched(table({"s": close}))
    assert recommend(alone, bootstrap_means(alone, 5000))[0].choice == "a"
    among = matched(table({"s": close | {f"m{i}": [0] * 100 for i in range(9)}}))
    crowded = recommend(among, bootstrap_means(among, 5000))[0]
    assert (crowded.choice, crowded.candidates) == (None, ("a", "b"))


def test_the_report_and_its_parts_survive_a_hundred_systems_of_two_cases():
    dice = np.random.default_rng(0)
    frame = table({f"s{i:03d}": {m: list(dice.integers(0, 2, 2)) for m in "ab"} for i in range(100)})
    result = audit(frame, QUICK)
    assert len(result.recommendations) == 100
    assert all(r.choice is None for r in result.recommendations)
