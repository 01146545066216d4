"""What an author is told: complexity by the paper's numbers, the depth of Table 6, and what does not fit a system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from opsassay.cli import run
from opsassay.core.errors import ConfigError
from opsassay.core.schema.files import load_yaml, parse_yaml
from opsassay.core.schema.scenario import Difficulty, Scenario
from opsassay.core.schema.system import Load
from opsassay.evals.remediation.authoring.checks import findings, layers, proposed_depth
from opsassay.evals.remediation.tasks import scenario_complexity
from opsassay.testbed.apps import load_system
from opsassay.testbed.operations.tools import TOOLS
from opsassay.testbed.scenarios import SCENARIOS, generated_names, load_scenario, names
from scoring.verifiers.made import scenario

VERBS = {name.replace("_", " "): tool.arguments for name, tool in TOOLS.items()}


@pytest.mark.parametrize(
    ("propagation", "steps", "technologies", "expected"),
    [  # rows of ITBench's Tables 12 and 13
        (3, 2, 1, 1.817), (8, 6, 3, 5.241), (7, 5, 3, 4.718), (4, 1, 5, 2.714), (1, 1, 2, 1.260), (4, 2, 1, 2.0),
    ],
)  # fmt: skip
def test_complexity_is_the_geometric_mean_of_eq_6(propagation, steps, technologies, expected):
    made = Difficulty(
        propagation=propagation, resolution_steps=steps, technologies=tuple(f"t{i}" for i in range(technologies))
    )
    assert scenario_complexity(made) == pytest.approx(expected, abs=5e-4)


def made(trigger, **changes):
    payload = {
        **scenario(committed_depth="D3").model_dump(mode="json", by_alias=True, exclude_defaults=True),
        **changes,
    }
    return Scenario.model_validate({**payload, "trigger": trigger, "truth": {"root_causes": ["frontend"]}})


@pytest.mark.parametrize(
    ("layer", "depth"),
    [("node", "D1"), ("pod", "D1"), ("scheduling", "D1"), ("service", "D3"), ("policy", "D3"), ("control_plane", "D4")],
)
def test_the_depth_of_table_6(layer, depth):
    assert proposed_depth(made({"operations": [{"verb": "config set"}], "layer": layer})) == depth


@pytest.mark.parametrize(
    ("fault", "layer", "depth"),
    [("PodKill", "pod", "D1"), ("NetworkDelay", "network", "D3"), ("DNSError", "name_service", "D3")],
)
def test_a_fault_of_the_catalogue_tells_its_layer(fault, layer, depth):
    one = made({"faults": [{"fault": fault, "target": {"service": "frontend"}}]})
    assert layers(one) == (layer,)
    assert proposed_depth(one) == depth


def test_the_deepest_of_several_layers_is_proposed_and_a_verb_tells_its_own():
    both = made({"operations": [{"verb": "restart"}, {"verb": "firewall add"}]})
    assert layers(both) == ("pod", "policy")
    assert proposed_depth(both) == "D3"
    assert proposed_depth(made({"operations": [{"verb": "conjure"}]})) is None


def test_what_a_load_of_its_own_does_not_give_is_named():
    shop = load_system("shop")
    commanded = shop.model_copy(update={"load": Load(command=("k6", "run", "load.js"), mix=shop.load.mix)})
    asking = made(
        {"operations": [{"verb": "load dip", "arguments": {"factor": 2, "seconds": 5}}]},
        verification={"committed_depth": "D3", "impact": {"max_user_minutes": 1}},
        environment={"system": "shop", "rate_rps": 20},
    )
    found = {one.field: one.message for one in findings(asking, commanded, VERBS)}
    assert found["verification.impact"] == (
        "what users lose is not known: the load of shop is `k6 run load.js`; leave it out"
    )
    for field in ("environment.rate_rps", "trigger.operations.0"):
        assert "which alone says how much it sends" in found[field]
    assert not {"verification.impact", "environment.rate_rps"} & {one.field for one in findings(asking, shop, VERBS)}


def test_what_does_not_fit_the_system_is_named():
    shop = load_system("shop")
    wrong = made(
        {"operations": [{"verb": "firewall add"}, {"verb": "confg set"}]},
        verification={
            "committed_depth": "D1", "protected_services": ["catalog"], "placement": {"spread": [{"service": "nobody"}]},
            "impact": {"max_user_minutes": 1, "weights": {"frontend GET /nothing": 2}},
            "alerts": {"triggering": [{"service": "ghost", "signal": "error_rate"}], "hold_s": 28},
        },
        oracles={"gentle": {"expect": "certified", "steps": [
            {"verb": "conjure"}, {"verb": "restart", "arguments": {"service": "frontend"}},
            {"verb": "config set", "arguments": {"target": "frontend", "key": "PORT", "value": 8080}},
        ]}},
    )  # fmt: skip
    found = {one.field: one.message for one in findings(wrong, shop, VERBS)}
    assert found["verification.committed_depth"] == (
        "a fault of the policy layer asks for D3; D1 cannot show what happens there"
    )
    assert "no entry of shop" in found["verification.protected_services"]
    assert found["verification.alerts.hold_s"] == (
        "28 s and 4 s of delay do not fit into what is recorded after the agent, 30 s"
    )
    assert "ghost" in found["verification.alerts"]
    assert "nobody" in found["verification.placement"]
    assert "GET /nothing" in found["verification.impact.weights"]
    assert found["oracles.gentle.steps.0"] == "there is no verb 'conjure'"
    assert found["trigger.operations.1"] == "there is no verb 'confg set'"
    wanted = "restart: target: this key is required; it takes target, replica, rolling"
    assert found["oracles.gentle.steps.1"] == wanted
    assert "config set: value: expected text" in found["oracles.gentle.steps.2"]


@pytest.mark.parametrize(
    ("signal", "hold_s", "fits"),
    [("autoscaler_at_limit", 30, False), ("autoscaler_at_limit", 39, True), ("replicas_missing", 14, False),
     ("replicas_missing", 15, True)],
)  # fmt: skip
def test_the_record_is_long_enough_for_the_alert_to_fire_again(signal, hold_s, fits):
    one = made(
        {"operations": [{"verb": "restart"}]},
        verification={
            "committed_depth": "D3", "settling": {"hold_s": hold_s, "limit_s": 60},
            "alerts": {"triggering": [{"service": "", "signal": signal}], "hold_s": 6},
        },
    )  # fmt: skip
    found = {one.field: one.message for one in findings(one, load_system("shop"), VERBS)}
    assert ("verification.alerts.triggering.0" in found) is not fits


@pytest.mark.parametrize(("depth", "every_s", "fits"), [("D3", 30, True), ("D3", 31, False), ("D1", 31, True)])
def test_a_probe_that_failed_before_the_repair_is_followed_by_another(depth, every_s, fits):
    shop = load_system("shop")
    one = made({"operations": [{"verb": "restart"}]}, verification={"committed_depth": depth, "probe_every_s": every_s})
    found = {one.field: one.message for one in findings(one, shop, VERBS)}
    assert ("verification.probe_every_s" in found) is not fits


def test_every_scenario_that_ships_is_valid_and_fits(capsys):
    for name in names():
        assert load_scenario(name).id == name
        assert run(["task", "check", name]) == 0, capsys.readouterr().out


def test_a_scenario_with_a_stage_of_its_own_is_checked_without_a_system(capsys):
    file = Path(__file__).parents[3] / "examples" / "compose" / "scenario.yaml"
    assert run(["task", "check", str(file)]) == 0
    assert "Committed depth D3, proposed from the fault's layer: D3." in capsys.readouterr().out
    assert run(["task", "discover", str(file), "-o", "nowhere"]) == 2
    assert "faults are searched on local and kubernetes" in capsys.readouterr().err
    assert not Path("nowhere").exists()


def test_the_list_has_the_promised_keys(capsys):
    assert run(["task", "scenarios", "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert (whole["command"], whole["schema_version"]) == ("task scenarios", 1)
    assert [item["id"] for item in whole["items"]] == [*names(), *generated_names()]
    assert all({"id", "substrate", "complexity", "committed_depth", "oracles"} <= set(item) for item in whole["items"])


def text_of(**changes):
    payload = scenario().model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return yaml.safe_dump({**payload, **changes}, sort_keys=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verfication": {}}, r"f.yaml:\d+: verfication: there is no such key; did you mean 'verification'"),
        (
            {"verification": {"committed_dpth": "D3"}},
            r"verification.committed_dpth: there is no such key; did you mean",
        ),
        ({"verification": {"committed_depth": "D5"}}, r"f.yaml:\d+: verification.committed_depth"),
        ({"oracles": {"a": {"fails": ["v_depth"]}}}, "no oracle is expected to be certified"),
        ({"oracles": {"a": {"expect": "certified", "fails": ["v_depth"]}}}, "either `expect: certified` or which"),
        ({"oracles": {"a": {"expect": "certified"}, "b": {"fails": ["v_placement"]}}}, "does not commit"),
        ({"oracles": {"a": {"expect": "certified", "steps": [{"arguments": {"x": 1}}]}}}, "a step needs a `verb`"),
        ({"trigger": {}}, "nothing is broken"),
        ({"no_fault": True}, "commits `blast_radius`"),
        ({"trigger": {"faults": [{"fault": "PodKil", "target": {"service": "a"}}]}}, "did you mean 'PodKill'"),
        ({"trigger": {"faults": [{"fault": "PodKill", "target": {"service": "a"}}] * 2}}, "one plan at a time"),
        (
            {"verification": {"committed_depth": "D3", "temporal_window_s": 30}},
            "temporal_window_s is for temporal_depth D3",
        ),
        ({"verification": {"committed_depth": "D3", "impact": {}}}, "give `max_user_minutes`"),
        ({"id": "Not An Id"}, r"f.yaml:1: id"),
    ],
)
def test_a_wrong_file_is_one_sentence_with_its_line(changes, message):
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text_of(**changes), Scenario, "f.yaml")


def test_the_digest_is_of_everything_and_does_not_depend_on_how_it_is_written(tmp_path):
    (tmp_path / "a.yaml").write_text(text_of())
    payload = yaml.safe_load(text_of())
    (tmp_path / "b.yaml").write_text("# a comment\n" + yaml.safe_dump(payload, sort_keys=True, default_flow_style=True))
    one, other = (load_yaml(tmp_path / name, Scenario) for name in ("a.yaml", "b.yaml"))
    assert one.digest() == other.digest() == scenario().digest()
    for changes in ({"alert": "x"}, {"truth": {"root_causes": ["b"]}}, {"oracles": {"other": {"expect": "certified"}}}):
        assert parse_yaml(text_of(**changes), Scenario, "f").digest() != one.digest()
    assert Path(SCENARIOS).is_dir()


def test_the_alert_and_the_constrained_addendum_are_what_the_agent_is_told():
    told = scenario().model_copy(update={"constrained": "Be careful."})
    assert told.prompt() == "it burns"
    assert told.prompt("constrained") == "it burns\n\nBe careful."
