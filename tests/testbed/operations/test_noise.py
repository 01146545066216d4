"""Background noise: drawn by the seed, away from the incident, seen as an operator sees things, an arm of its own."""

from __future__ import annotations

import threading
from itertools import islice

import pytest

from opsassay.core.errors import OperationError, RefusedError
from opsassay.core.schema.incident import Alert
from opsassay.core.schema.scenario import GOLDEN_SIGNALS
from opsassay.evals.remediation.plan import TrialPlan, cells_of
from opsassay.testbed.operations import arguments as args
from opsassay.testbed.operations.noise import SCRAPE, Noise, NoiseEvent, bystanders, draw_noise, require_bystanders
from opsassay.testbed.operations.state_alerts import DEFINITIONS
from opsassay.testbed.operations.telemetry_view import TelemetryView
from opsassay.testbed.scenarios import generated_names, load_scenario, names, system_of

EVERY = [*names("local"), *generated_names("local")]


def drawn(name, seed=0, count=40):
    scenario = load_scenario(name)
    return list(islice(draw_noise(system_of(scenario), scenario, seed), count))


def test_the_same_seed_draws_the_same_noise_of_every_kind():
    assert drawn("bad-release") == drawn("bad-release")
    assert drawn("bad-release") != drawn("bad-release", seed=1)
    assert drawn("bad-release") != drawn("dns-wrong-backend")
    for seed in range(20):
        kinds = sorted(event.kind for event in drawn("bad-release", seed, 5))
        assert kinds == ["alert", "alert", "load", "redeploy", "restart"]
    assert len({event.target for event in drawn("bad-release") if event.kind == "alert"}) == 1


@pytest.mark.parametrize(
    ("name", "corner"),
    [
        ("bad-release", ["account", "archive", "billing", "export", "ledger", "orders", "session"]),
        ("drained-pool", ["session"]),  # all others use the database or call who does
        ("clock-skew-tokens", ["archive"]),  # the one service that is pinned to the other host and is not on the way
        ("firewall-blocks-one-client", ["archive", "billing", "catalog", "export", "ledger", "session"]),
    ],
)
def test_bystanders_are_those_that_the_incident_does_not_concern(name, corner):
    scenario = load_scenario(name)
    assert bystanders(system_of(scenario), scenario) == corner


def test_noise_happens_at_no_service_of_the_incident_and_where_callers_do_not_notice():
    with_noise = 0
    for name in EVERY:
        scenario = load_scenario(name)
        system = system_of(scenario)
        if not bystanders(system, scenario):
            continue
        with_noise += 1
        path = {end for one in scenario.truth.propagation for end in (one.source, one.target)}
        concerned = path | scenario.true_causes() | set(scenario.verification.protected_services)
        swings = {call.verb for call in scenario.trigger.operations} & {"load dip"}
        for event in drawn(name, count=30):
            assert event.target not in concerned, name
            if event.kind in ("restart", "redeploy"):
                assert system.services[event.target].replicas >= 2, name
                assert system.services[event.target].drain_s > 0, name
            assert event.kind != "load" or (not swings and 0.8 <= event.amount < 1)
    assert with_noise >= 90


class Desk:
    """A system of one service that carries out the verbs of the noise, and counts them."""

    def __init__(self, *states, pending=None):
        self.states, self.pending, self.calls = list(states), pending or {}, []

    def operate(self, verb, given):
        if verb == "describe":
            rows = [{"replica": f"session-{n}", "state": state} for n, state in enumerate(self.states)]
            return {"replicas": rows, "pending_restart": self.pending}
        self.calls.append((verb, given))
        return {}


def made(events, operate):
    """Return what is recorded of *events*, all of which are made."""
    recorded, done = [], threading.Event()

    def each():
        yield from events
        done.set()
        yield NoiseEvent("alert", "session", 60.0, 2.1)

    with Noise(each(), operate, recorded.append):
        assert done.wait(20)
    return recorded


RESTART, ROLLOUT = (NoiseEvent(kind, "session", 0.0, 0.6) for kind in ("restart", "redeploy"))


def test_restarts_are_made_one_replica_at_a_time_and_recorded_as_the_environments_own():
    desk = Desk("ready", "ready")
    recorded = made([RESTART, ROLLOUT], desk.operate)
    assert desk.calls == [("restart", {"target": "session", "replica": index}) for index in (1, 0, 1)]
    assert [(one.kind, one.status, one.touched) for one in recorded] == [
        ("restart", "done", ("session-1",)),
        ("redeploy", "done", ("session-0",)),
        ("redeploy", "done", ("session-1",)),
    ]
    assert all(one.started_ns <= one.ended_ns for one in recorded)


@pytest.mark.parametrize(
    "desk",
    [Desk("ready"), Desk("ready", "starting"), Desk("ready", "ready", pending={"session-0": ["POOL_SIZE"]})],
    ids=["too few replicas", "one is not ready", "what somebody set waits for a restart"],
)
def test_a_service_that_is_not_whole_is_left_alone(desk):
    assert [one.status for one in made([RESTART, ROLLOUT], desk.operate)] == ["left_alone", "left_alone"]
    assert desk.calls == []


def test_load_dips_and_a_system_that_has_ended_ends_no_trial():
    desk = Desk("ready", "ready")
    assert [one.status for one in made([NoiseEvent("load", "users", 0.0, 0.9, 0.1)], desk.operate)] == ["done"]
    assert desk.calls == [("load dip", {"factor": 0.9, "seconds": 0.1})]

    def ended(verb, given):
        raise OperationError("The system is gone.")

    assert [one.status for one in made([RESTART, ROLLOUT], ended)] == ["failed", "failed"]


class Rules:
    """Alert rules of which one fires."""

    def firing(self):
        return 0, [Alert(time_ns=0, service="web", signal="error_rate", value=1, threshold=0.1, message="web: errors")]


def test_an_operator_sees_the_alert_among_the_others_and_not_that_it_is_noise():
    view, fires = TelemetryView(None, Rules()), threading.Event()

    def each():
        yield NoiseEvent("alert", "account", 0.0, 2.25, 30.0)

    recorded = []
    with Noise(each(), Desk().operate, recorded.append) as noise:
        view.besides = lambda: noise.alerts
        while not noise.alerts:
            fires.wait(0.01)
        text = view.answer_query(args.Alerts())
    assert (
        text
        == f"- warning: account: a scrape of its metrics takes 2.25 s [{SCRAPE}]\n- alert: web: errors [error_rate]"
    )
    assert view.answer_query(args.Alerts()) == "- alert: web: errors [error_rate]"
    assert [(one.kind, one.target, one.touched) for one in recorded] == [("alert", "account", ())]
    assert SCRAPE not in {*DEFINITIONS, *GOLDEN_SIGNALS}


def test_it_is_an_arm_of_its_own():
    plan = {"scenarios": ("bad-release",), "agents": ({"name": "sre", "model": "m"},)}
    without, arm = cells_of(TrialPlan(**plan, noise=(False, True)))
    assert (without.cell.arm.knob("noise"), arm.cell.arm.knob("noise")) == (None, "on")
    assert without.cell.hash == cells_of(TrialPlan(**plan))[0].cell.hash
    assert without.cell.hash != arm.cell.hash
    assert "noise-on" in arm.solver_name


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("replicas-scaled-to-zero", "happens on kubernetes"),
        ("report-holds-locks", "leaves no service that its incident does not concern"),
    ],
)
def test_where_it_cannot_be_made_a_plan_is_refused(name, why):
    plan = TrialPlan(scenarios=(name,), agents=("oracle:*",), noise=(False, True))
    with pytest.raises(RefusedError, match=f"^noise: {name} {why}"):
        cells_of(plan)


def test_it_is_refused_in_what_is_not_our_own():
    scenario = load_scenario("bad-release")
    system = system_of(scenario)
    own = system.services["archive"].model_copy(update={"program": ("archive",)})
    changed = system.model_copy(update={"services": {**system.services, "archive": own}})
    with pytest.raises(RefusedError, match="programs or containers of a team's own"):
        require_bystanders(changed, scenario)
