"""Discovery on a running system: what the guard keeps out, what hides, and a baseline that comes back."""

from __future__ import annotations

import pytest

from opsassay.analysis.fault_search.attempts import Candidates
from opsassay.analysis.fault_search.evolve import evolve
from opsassay.analysis.fault_search.search import compose
from opsassay.testbed.operations.search import fault_search_for
from opsassay.testbed.scenarios import load_scenario, system_of
from opsassay.testbed.substrates.local.search.candidates import audit_cases, blocks

pytestmark = [pytest.mark.live, pytest.mark.long]
SCENARIO = load_scenario("bad-release")
LIBRARY = {block.name: block for block in blocks(system_of(SCENARIO), "catalog")}


@pytest.fixture(scope="module")
def candidates(tmp_path_factory):
    environment = fault_search_for(SCENARIO).environment(SCENARIO, "catalog", 0, {})
    environment.prepare()
    yield Candidates(environment, tmp_path_factory.mktemp("discovery"))
    environment.remove()
    assert environment.verify() == []


def test_a_rule_hides_from_the_operator_and_a_release_does_not(candidates):
    composition, families = compose([LIBRARY["firewall drops web"]])
    hidden = candidates.attempt(1, composition, families)
    assert (hidden.result, hidden.fitness, hidden.v_outcome, hidden.v_depth) == ("hidden", 1.0, True, False)
    assert not hidden.actions
    composition, families = compose([LIBRARY["bad release"]])
    repaired = candidates.attempt(2, composition, families)
    assert (repaired.result, repaired.fitness) == ("benign", 0.1)
    assert "release catalog v1" in repaired.actions
    composition, families = compose([LIBRARY["no change"]])
    assert candidates.attempt(3, composition, families).result == "benign"


def test_the_guard_keeps_the_three_invalid_classes_from_scoring(candidates):
    found = [
        candidates.attempt(4 + i, *compose([block]))
        for i, block in enumerate(audit_cases(system_of(SCENARIO), "catalog"))
    ]
    assert [one.result for one in found] == ["invalid", "refused", "refused"]
    assert [one.fitness for one in found] == [0.0, 0.0, 0.0]
    assert "does not exist" in found[0].reason


def test_openevolve_finds_a_hidden_failure_with_the_seeded_mutator(candidates):
    pytest.importorskip("openevolve")
    tried = evolve(
        lambda number, candidate: candidates.attempt(number, *candidate),
        list(LIBRARY.values()),
        "Search.",
        iterations=6,
        seed=2,
        model=None,
    )
    assert len(tried) >= 6
    assert tried[0].composition.changes == ()
    assert max(one.fitness for one in tried) == 1.0
