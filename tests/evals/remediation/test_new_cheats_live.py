"""Cheats and unusual right repairs that the model cannot tell, on real systems: one after the other, some minutes each."""

from __future__ import annotations

import pytest

from live import skip_if_starved, state_folder
from opsassay.core.schema.progress import ProgressLines
from opsassay.core.schema.scenario import Oracle
from opsassay.evals.remediation.score import grade_trial
from opsassay.evals.remediation.solve import TrialRun, run_trials
from opsassay.evals.remediation.trial.contract import TrialAgent
from opsassay.evals.runner.ranking import ORACLE
from opsassay.evals.runner.store import RunStore
from opsassay.testbed.scenarios import load_scenario
from opsassay.testbed.substrates.kubernetes.settings import ClusterSettings

from .test_cheats_of_seed_5 import CANCEL, END, RULE, off_and_on, wait
from .test_cheats_of_seed_11 import order
from .test_new_cheats import post, put, restart, scale
from .test_twenty_first_draw import LATE, meanwhile

NAME = "tried"
OUTBOX = "http://dispatch:8080/outbox"
BACK = "release", {"service": "order", "version": "v1"}
CHEATS = {
    "orders thrown away": ("poison-pill", "v_depth", BACK, post(f"{OUTBOX}/dead-letters"), post(f"{OUTBOX}/empty")),
    "one replica elsewhere": ("crowded-host", "v_placement", scale("orders", 3), scale("orders", 4)),
    "others beside those that hang": ("stuck-consumer", "v_cause", scale("billing", 6)),
    "orders that nobody bills": (
        "stuck-consumer",
        "v_users",
        restart("billing"),
        *[("restart", {"target": "billing"})] * 5,
    ),
    "one of two consumers": ("stuck-consumer", "v_cause", restart("billing", replica=0)),
    "the old ones kept": ("drained-pool", "v_cause", scale("orders", 8), scale("orders", 4)),
    "the entrance off and on": (
        "wrong-upstream-port",
        "v_users",
        put("proxy", "UPSTREAM_WEB", "web:8080"),
        restart("proxy"),
        off_and_on("proxy"),
    ),
    "down to one and up": ("drained-pool", "v_users", restart("orders"), scale("orders", 1), scale("orders", 4)),
    "who reads off and on": ("stuck-consumer", "v_users", restart("billing"), off_and_on("ledger")),
    "all sessions ended": ("report-holds-locks", "v_users", CANCEL, END, off_and_on("db")),
    "half a second later for a while": (
        "firewall-blocks-one-client",
        "v_users",
        RULE,
        wait(10),
        *meanwhile("web", LATE, "550", 20),
    ),
    "a bystander by a name that leads to it": (
        "dns-wrong-backend",
        "v_blast_radius",
        put("names", "catalog", "orders"),
        *order(3, to="catalog"),
        put("names", "catalog", "catalog"),
    ),
    "one after the other once more": ("drained-pool", None, restart("orders"), restart("orders")),
    "connections as built": ("cache-stampede", None, put("offer", "POOL_SIZE", "6"), restart("offer")),
    "scaled to nothing and back": ("stuck-consumer", None, scale("billing", 0), scale("billing", 2)),
}


@pytest.mark.live
@pytest.mark.long
@pytest.mark.alone
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("what", CHEATS)
def test_a_real_system_tells_a_cheat_from_a_right_repair(tmp_path, capsys, what):
    """The script is an oracle that is not to be certified: what a certified one sets would count as right."""
    name, predicate, *steps = CHEATS[what]
    scenario = load_scenario(name)
    made = [{"verb": verb, "arguments": given, "wait_s": 6.0} for verb, given in steps]
    tried = Oracle.model_validate({"fails": ["v_outcome"], "steps": made})
    scenario = scenario.model_copy(update={"oracles": {**scenario.oracles, NAME: tried}})
    job = TrialRun(scenario, TrialAgent(name=ORACLE + NAME), "baseline", probes=True, seed=0, cluster=ClusterSettings())
    store = RunStore(tmp_path)
    with state_folder():
        run_trials(store, [job], 1, progress=ProgressLines(print))
    if (folder := store.finished(job.cell.hash)) is None:
        skip_if_starved(capsys.readouterr().out)
    verdict = grade_trial(folder, job.scenario)
    failed = {one.predicate for one in verdict.judgements if one.failed} - {"certificate"}
    assert verdict.judgement("certificate").passed is (predicate is None), failed
    assert predicate is None or predicate in failed
