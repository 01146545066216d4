"""Whether `run explain --counterfactual` names a planted useless and a planted harmful action.

``python benchmarks/counterfactual.py [-n 20] [--seed 0] [--output FOLDER]``: draws right repairs of the scenarios of this
machine. In front of each it scales a service that the truth names to as many replicas as it has, and behind it it stops
every replica of a drawn service. It runs the trial, replays it, and prints the effect of both. A trial takes a minute,
and each repair has 6 of them or more.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.scenario import Oracle, Scenario
from opsassay.evals.remediation.authoring.counterfactual import Effect, RecordedTrial, replay
from opsassay.evals.remediation.controls.words import WORDS
from opsassay.evals.remediation.solve import TrialRun, run_trials
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.draws import Draws
from opsassay.evals.runner.store import RunStore
from opsassay.scoring.rates import wilson
from opsassay.testbed.scenarios import load_scenario, names, system_of
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings


def planted(seed: int, number: int) -> Scenario:
    """Return a drawn scenario with the oracle *planted*: a right repair between a useless and a harmful action."""
    draws = Draws(seed, "counterfactual", str(number))
    scenario = load_scenario(draws.choice([one for one in names("local") if not load_scenario(one).no_fault]))
    words, replicas = WORDS["local"], WORDS["local"].replicas(scenario, system_of(scenario))
    right = scenario.oracles[draws.choice(sorted(name for name, one in scenario.oracles.items() if one.certified))]
    named = sorted(set(replicas) & scenario.named_entities()) or sorted(replicas)
    idle, victim = draws.choice(named), draws.choice(sorted(replicas))
    steps = (*words.scale(idle, replicas[idle]), *right.steps, *words.stop_all(victim))
    oracle = Oracle(fails=("v_temporal",), description="A repair with two more actions.", steps=steps)
    short = {"warmup_s": 5.0, "settle_s": 3.0, "aftermath_s": 10.0}
    environment = scenario.environment.model_copy(update=short)
    return scenario.model_copy(update={"environment": environment, "oracles": {**scenario.oracles, "planted": oracle}})


def explained(scenario: Scenario, folder: Path) -> tuple[Effect, ...] | None:
    """Run the planted oracle of *scenario* and replay it; None where the trial came to no result."""
    agent = TrialAgent(name="oracle:planted")
    run = TrialRun(scenario, agent, "baseline", probes=True, seed=0, cluster=ClusterSettings())
    folders = run_trials(RunStore(folder / "store"), [run], progress=ProgressLines(print))
    if not folders:
        return None
    found = replay(RecordedTrial.read(folders[0]), folder / "replays", progress=ProgressLines(print))
    print(found.note)
    return found.effects


def main() -> None:
    """Draw, run and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("-n", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=None)
    asked = parser.parse_args()
    output = asked.output or Path(tempfile.mkdtemp(prefix="opsassay-counterfactual-"))
    both = of = 0
    for number in range(asked.n):
        scenario = planted(asked.seed, number)
        effects = explained(scenario, output / str(number))
        if effects is None:
            print(f"{number} {scenario.id}: no result")
            continue
        for effect in effects:
            print(number, scenario.id, effect.left_out, effect.verdict, effect.repairs, effect.harms, effect.numbers)
        of += 1
        both += effects[0].verdict == "nothing" and effects[-1].verdict in ("harms", "repairs and harms")
    low, high = wilson(both, of) if of else (0.0, 1.0)
    print(f"both named: {both} of {of} ({low:.0%} to {high:.0%})")


if __name__ == "__main__":
    main()
