"""Nothing that a solver can see is drawn from what it must not know: every generator of the testbed is named here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import opsassay
from opsassay.core.draws import derived_random, derived_secret, derived_seed, new_secret
from opsassay.evals.remediation.tasks import scenario_task
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.fleet import Fleet
from opsassay.testbed.operations.environment import LiveEnvironment
from opsassay.testbed.scenarios import load_scenario

ROOT = Path(opsassay.__file__).parent
DRAWN = {
    "core/draws.py": "the secret of a recording or trial",
    "testbed/scenarios/generated/__init__.py": "which scenarios there are, before any is run",
    "testbed/scenarios/generated/namespace.py": "which scenarios there are, before any is run",
    "testbed/workload/detour.py": "chance, from no seed",
    "testbed/workload/runtime/load.py": "the seed that a system is deployed with",
    "testbed/core/fleet.py": "the seed that a system is deployed with",
    "testbed/apps/topology_generator.py": "a count that is the same for every seed",
    "testbed/apps/generate.py": "the name of a generated system",
}
"""Who makes a generator of random draws below the solvers, and what it is seeded with."""
DEPLOYED = {
    "testbed/campaign.py": "seed",
    "testbed/substrates/local/environment.py": "self.drawn_seed",
    "testbed/substrates/kubernetes/environment.py": "self.drawn_seed",
    "cli/demo_command.py": "seed",
    "cli/incident/record.py": "derived_seed(secret, 'system')",
    "testing.py": "seed",  # of the test's author, who grades nobody
    "testbed/substrates/local/search/environment.py": "environment.seed + self.seed",  # who breaks it is who is graded
    "testbed/substrates/kubernetes/search/environment.py": "environment.seed + self.seed",
}
"""Who deploys a system whose telemetry is judged, and with which seed."""


def calls(name):
    """Yield (file, call) of every call of *name*, a function or a method, in the package."""
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if f"{name}(" in text else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name:
                yield str(path.relative_to(ROOT)), node


def test_every_generator_below_the_solvers_is_known_with_what_it_is_seeded_with():
    stages = ("core", "telemetry", "testbed")
    found = {path for name in ("Random", "default_rng") for path, _ in calls(name) if path.split("/")[0] in stages}
    assert found == set(DRAWN)


def test_every_system_that_is_judged_is_deployed_with_a_seed_of_its_secret():
    found = {path: ast.unparse(k.value) for path, call in calls("deployed") for k in call.keywords if k.arg == "seed"}
    assert found == DEPLOYED
    for path in ("testbed/campaign.py", "cli/demo_command.py"):
        assert 'derived_seed(secret, "system")' in (ROOT / path).read_text(encoding="utf-8"), path


class Nothing(LiveEnvironment):
    """A trial of nothing, to see what it draws."""

    deployed = operated = broken = observed = health_problem = read_settings = require_alive = verify = None


@pytest.mark.parametrize("name", ["wrong-upstream-port", "drained-pool"])
def test_two_trials_of_one_scenario_and_seed_have_other_names(name, tmp_path):
    one = load_scenario(name)
    fleets = [Fleet(load_system("desk"), Nothing(one, 0, tmp_path, {}).drawn_seed) for _ in range(2)]
    pods = [{replica.pod for replica in fleet.replicas.values()} or {fleet.pod_name("web")} for fleet in fleets]
    assert pods[0]
    assert not pods[0] & pods[1]
    assert scenario_task(one).id == name


def test_draws_follow_from_the_secret_and_the_purpose_alone():
    first, second = new_secret(), new_secret()
    assert derived_seed(first, "system") == derived_seed(first, "system")
    assert len({derived_seed(s, p) for s in (first, second) for p in ("system", "windows")}) == 4
    assert derived_random(first, "windows").random() == derived_random(first, "windows").random()
    assert first not in derived_secret(first, "system")
