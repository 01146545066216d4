"""Profile `paper` against the paper's own listing, on any timeline of the paper's form."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsassay.scoring.verifiers import gather, judge_run
from scoring.verifiers import listing
from scoring.verifiers.made import probe, scenario, timeline

PARTS = ("etcd", "scheduler", "coredns")


@st.composite
def paper_timelines(draw):
    """Ticks of 5 s, each with all of D1, D2, D4; probes in some of them, the last one among them or not."""
    count = draw(st.integers(2, 14))
    shares = draw(st.lists(st.sampled_from([0.744, 0.84, 0.85, 0.9, 0.94, 0.95, 1.0]), min_size=count, max_size=count))
    backends = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=count, max_size=count))
    failing = draw(st.dictionaries(st.integers(0, count - 1), st.sets(st.sampled_from(PARTS), min_size=1).map(sorted)))
    probed = draw(st.sets(st.integers(0, count - 1)))
    probes = [
        # 10 ms, or as slow as can be within the reading of one tick, or a stall
        probe(f"p{i}", i * 5.0, took=0.01, reachable=draw(st.booleans()))
        for i in sorted(probed)
    ]
    stalled = draw(st.sampled_from([None, 4.9, 5.0, 5.1]))
    if probes and stalled is not None:
        one = draw(st.integers(0, len(probes) - 1))
        probes[one] = probes[one].model_copy(update={"latency_s": stalled})
    return timeline(shares, cadence=5.0, d2=backends, d4=failing, probes=probes)


@settings(max_examples=150, deadline=None)
@given(made=paper_timelines(), depth=st.sampled_from(["D1", "D2", "D3", "D4"]))
def test_every_predicate_says_what_the_listing_says(made, depth):
    committed = scenario(committed_depth=depth, profile="paper", cadence_s=5)
    found = {j.predicate: j for j in judge_run(gather(recording(made)), committed)[0]}
    told = listing.records(made)
    assert found["v_outcome"].passed == listing.score_v_outcome(told[-1])
    assert found["v_temporal"].passed == listing.score_v_p1(told)
    assert found["v_depth"].passed == listing.score_v_p2(told[-1], depth)
    probed = any(record["probe_id"] != "noprobe" for record in told)
    # Where probes were committed and none is recorded, the listing passes what it has not seen; here that fails.
    assert found["v_probe"].passed == (listing.score_v_p3(told, told[-1]) and probed)


def recording(made):
    from opsassay.scoring.verifiers import RunRecording

    return RunRecording(made)


@pytest.mark.parametrize(
    ("failing", "passed"),
    [
        ({2: ("etcd",)}, False),  # first appears one tick after the probe
        ({3: ("etcd",)}, False),  # two ticks after
        ({4: ("etcd",)}, True),  # 15 s after: out of the window
        ({0: ("etcd",), 2: ("etcd",)}, True),  # it had failed within 10 s before
        ({1: ("etcd",)}, True),  # only in the probe's own tick, which the listing leaves out
        ({0: ("etcd",), 2: ("etcd", "coredns")}, False),  # a second one appears
    ],
)
def test_the_attribution_window_is_the_listings(failing, passed):
    made = timeline([1.0] * 6, cadence=5.0, d4=failing, probes=[probe("p", 5.0)])
    committed = scenario(profile="paper", cadence_s=5)
    judged = judge_run(gather(recording(made)), committed)[0][3]
    told = listing.records(made)
    assert judged.passed is passed is listing.score_v_p3(told, told[-1])
