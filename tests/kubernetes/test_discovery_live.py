"""Discovery on a real cluster: a policy hides from the operator, an image does not, and the baseline comes back."""

from __future__ import annotations

import pytest

from opsassay.analysis.fault_search.attempts import Candidates
from opsassay.analysis.fault_search.search import compose
from opsassay.testbed.operations.search import fault_search_for
from opsassay.testbed.scenarios import load_scenario, system_of
from opsassay.testbed.substrates.kubernetes.search.candidates import audit_cases, primitives

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(1500)]
SCENARIO, TARGET = load_scenario("unreachable-service"), "auth-service"
BLOCKS = {block.name: block for block in primitives(system_of(SCENARIO), TARGET, nodes=False)}


@pytest.fixture(scope="module")
def lab(cluster, tmp_path_factory):
    settings = {"kubeconfig": str(cluster.kubeconfig)}
    environment = fault_search_for(SCENARIO).environment(SCENARIO, TARGET, 0, settings)
    environment.prepare()
    yield Candidates(environment, tmp_path_factory.mktemp("search"))
    environment.remove()


def test_a_policy_hides_an_image_is_repaired_and_nothing_is_benign(lab):
    for number, (name, result, fitness, actions) in enumerate(
        (
            ("policy lets nobody in", "hidden", 1.0, ()),
            ("image that nobody has", "benign", 0.1, (f"set image of {TARGET} to the last that was good",)),
            ("tight disruption budget", "benign", 0.0, ()),
            ("no change", "benign", 0.0, ()),
        )
    ):
        found = lab.attempt(number, *compose([BLOCKS[name]]))
        assert (found.result, found.fitness, found.actions) == (result, fitness, actions), found


def test_invalid_candidates_do_not_score(lab):
    found = [lab.attempt(10 + i, *compose([block])) for i, block in enumerate(audit_cases(TARGET))]
    found.append(lab.attempt(20, *compose([BLOCKS["wrong selector"]])))
    assert [one.result for one in found] == ["invalid", "refused", "refused", "invalid"]
    assert {one.fitness for one in found} == {0.0}
