"""The search against networkx on small graphs, and its bounds on dense ones."""

from __future__ import annotations

import itertools
import tracemalloc
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsassay.annotation.evidence.states import NodeState
from opsassay.annotation.search.hops import Terrain
from opsassay.annotation.search.paths import SearchLimits, search
from opsassay.annotation.search.propagation_gate import Carriage, PropagationLimits
from opsassay.annotation.search.rules import active_rules

BEGAN = 1_000_000_000_000


def terrain(edges, own, onsets=None):
    """Spans that are all slow and all carried, with *edges* from cause to effect."""
    names = sorted({n for edge in edges for n in edge} | set(own))
    onsets = onsets or dict.fromkeys(names, BEGAN)
    callers = {}
    for cause, effect in edges:
        callers.setdefault(cause, []).append(effect)
    carriage = Carriage(
        latency=dict.fromkeys(names, 1.0),
        added=dict.fromkeys(names, (100.0, 10.0)),
        latency_edges=dict.fromkeys(edges, 1.0),
        errors={}, error_edges={}, bypasses=(), changed=frozenset(), starved={}, at_links=frozenset(),
        limits=PropagationLimits(),
    )  # fmt: skip
    return Terrain(
        root=("service|root", "lat"),
        own={"service|root": tuple(own)},
        states={n: NodeState({"lat": onsets[n]}, 0) for n in names},
        callers={k: sorted(v) for k, v in callers.items()},
        callees={}, shared={}, carriage=carriage, rules=active_rules(), began_ns=BEGAN,
    )  # fmt: skip


def place(name):
    return (f"span|{name}", "lat")


PAIRS = [(a, b) for a, b in itertools.permutations("abcdef", 2)]


@settings(max_examples=60, deadline=None)
@given(edges=st.sets(st.sampled_from(PAIRS), max_size=14), hops=st.integers(1, 5))
def test_paths_are_the_simple_paths_within_the_limit(edges, hops):
    alarms = frozenset({place("e"), place("f")})
    found = search(terrain(edges, ["a"]), alarms, SearchLimits(hops=hops, paths=100_000))
    graph = nx.DiGraph([("root", "a"), *edges])
    expected = {
        tuple(path) for end in "ef" if end in graph for path in nx.all_simple_paths(graph, "root", end, cutoff=hops)
    }
    assert {("root", *(p[0].removeprefix("span|") for p in path[1:])) for path in found.paths} == expected
    pairs = {(h.source, h.target) for h in found.hops}
    assert pairs == {pair for path in found.paths for pair in pairwise(path)}


def searched_densely():
    """Return what is found among 200 services that all cause each other, and the most memory that it took, bytes."""
    names = [f"s{n:03d}" for n in range(200)]
    ground = terrain(list(itertools.permutations(names, 2)), [names[0]])
    tracemalloc.start()
    found = search(ground, frozenset({place(names[-1])}), SearchLimits(paths=50))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    few = search(ground, frozenset({place(names[-1])}), SearchLimits(places=10))
    return found, few, peak


@pytest.mark.slow
def test_a_dense_graph_with_cycles_stays_within_its_bounds():
    """There are more simple paths of five hops than can be counted. In a process where nothing else takes memory."""
    with ProcessPoolExecutor(1, get_context("spawn")) as alone:
        found, few, peak = alone.submit(searched_densely).result()
    assert len(found.paths) == 50
    assert found.capped
    assert few.capped
    assert peak < 100 * 2**20


def test_an_onset_before_its_cause_is_no_effect():
    edges = [("a", "b"), ("b", "c")]
    early = {"a": BEGAN + 60 * 10**9, "b": BEGAN + 70 * 10**9, "c": BEGAN + 10 * 10**9}
    found = search(terrain(edges, ["a"], early), frozenset({place("b"), place("c")}), SearchLimits())
    assert [path[-1] for path in found.paths] == [place("b")]
    assert [(r.path, r.gate, r.reason) for r in found.rejected] == [
        (("service|root", "span|a", "span|b", "span|c"), "temporal", "span|c deviated 60 s before span|b")
    ]


@pytest.mark.parametrize("visits", [1, 2])
def test_a_component_is_come_by_in_so_many_states(visits):
    ground = terrain([("a", "b")], ["a"])
    states = {**ground.states, "b": NodeState({"lat": BEGAN, "p99": BEGAN, "timeout": BEGAN}, 0)}
    ground = Terrain(**{**{f: getattr(ground, f) for f in ground.__dataclass_fields__}, "states": states})
    found = search(ground, frozenset({("span|b", s) for s in ("lat", "p99", "timeout")}), SearchLimits(visits=visits))
    assert len({path[-1] for path in found.paths}) == visits
