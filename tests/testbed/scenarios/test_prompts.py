"""What agents are told: every scenario has an addendum of its own kind, and neither alert nor addendum names the fault."""

from __future__ import annotations

import re

import pytest

from opsassay.core.schema.scenario import Scenario
from opsassay.testbed.scenarios import load_scenario, names, system_of

SEEN = {
    "node-not-ready": {"{worker2}"},
    "missing-config-map": {"payment-app"},
    "tainted-nodes": {"opsassay-disk-full", "NoExecute"},
    "cordoned-nodes": {"ledger"},
    "unreachable-service": {"auth-service"},
    "bad-image-rollout": {"web"},
    "isolated-service": {"payment-service"},
    "crowded-node": {"payment-api"},
    "corrupt-image": {"catalog"},
    "crash-loop-command": {"catalog"},
    "memory-limit": {"catalog"},
    "node-assignment": {"catalog"},
    "wrong-credentials": {"catalog"},
    "wrong-service-port": {"catalog"},
    "storage-class": {"archive"},
    "crash-loop-missing-key": {"orders"},
    "crowded-host": {"orders", "host-a"},
    "drained-pool": {"orders"},
    "false-alarm-replaced-pod": {"web"},
    "stuck-consumer": {"ledger"},
    "wrong-database-password": {"catalog"},
}
"""What an alert names because an operator sees that it is ill, though the trigger changes it too."""
WORKLOADS = {"Deployment", "Service", "Node"}
"""Kinds whose names operators see all the time; a change of any other kind is itself the finding."""
PLAIN = re.compile(r"\d{1,2}|true|merge|Recreate|.{0,2}")
"""Values that say nothing by themselves."""


def leaves(value):
    """Return all values in *value* that are no mappings or lists, as texts."""
    if isinstance(value, dict):
        return {leaf for one in value.values() for leaf in leaves(one)}
    if isinstance(value, (list, tuple)):
        return {leaf for one in value for leaf in leaves(one)}
    return set() if value is None else {str(value)}


def fault_names(scenario: Scenario) -> set[str]:
    """Return what would give the cause away: changed objects and targets, values that the trigger sets, kinds of causes."""
    found = set(scenario.named_entities()) - set(system_of(scenario).entries())
    for operation in scenario.trigger.operations:
        found |= leaves(operation.arguments)
    block = scenario.cluster
    for change in block.changes if block else ():
        found.add(change.name)
        if change.patch is not None or change.kind not in WORKLOADS:
            found |= leaves(change.patch or change.create)
        if change.kind not in WORKLOADS:
            words = re.sub(r"(?<!^)([A-Z])", r" \1", change.kind).lower()
            found |= {change.kind, words, words.rpartition(" ")[2]}
    found |= {change.node for change in (block.nodes if block else ())}
    return {name for name in found - set(system_of(scenario).entries()) if not PLAIN.fullmatch(name)}


def given_away(scenario: Scenario, text: str) -> set[str]:
    """Return which of the names stand in *text*."""
    return {name for name in fault_names(scenario) if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text, re.I)}


@pytest.mark.parametrize("name", names())
def test_neither_the_alert_nor_the_addendum_names_what_an_operator_would_have_to_find(name):
    scenario = load_scenario(name)
    seen = SEEN.get(name, set())
    assert given_away(scenario, scenario.alert) <= seen
    assert given_away(scenario, scenario.constrained) == set(), "it says how to work and not where"
    assert all(word in scenario.alert for word in seen), "nothing is excused that does not stand there"


@pytest.mark.parametrize("name", names())
def test_every_scenario_has_an_addendum_for_its_arm(name):
    scenario = load_scenario(name)
    assert len(scenario.constrained.split()) >= 8
    assert scenario.prompt("constrained") == f"{scenario.prompt()}\n\n{scenario.constrained.strip()}"


def test_the_addenda_of_scenarios_on_a_cluster_are_written_for_each():
    texts = [load_scenario(name).constrained for name in names("kubernetes")]
    sentences = [sentence.strip() for text in texts for sentence in re.split(r"[.:;]\s", text) if sentence]
    assert len(sentences) == len(set(sentences))


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("unreachable-service", "Look for a network policy before you end.", {"network policy", "policy"}),
        ("unreachable-service", "Do not forget deny-all.", {"deny-all"}),
        ("unreachable-service", "Is auth-srv right?", {"auth-srv"}),
        ("wrong-service-port", "Port 9999 has no listener.", {"9999"}),
        ("storage-class", "There is no premium-ssd here.", {"premium-ssd"}),
        ("bad-config-map", "Compare front-config with what it was.", {"front-config"}),
        ("wrong-credentials", "Nobody uses copper-eight.", {"copper-eight"}),
        ("corrupt-image", "Who owns registry.invalid/catalog:v2?", {"registry.invalid/catalog:v2", "catalog"}),
        ("node-assignment", "worker-retired is gone for good.", {"worker-retired"}),
        ("crash-loop-missing-key", "Set the PAYMENT_KEY.", {"PAYMENT_KEY"}),
        ("wrong-upstream-port", "Nothing listens on web:9090.", {"web:9090"}),
        ("dns-wrong-backend", "Who answers for catalog?", {"catalog"}),
        ("stuck-consumer", "Have a look at billing.", {"billing"}),
    ],
)
def test_a_text_that_gives_the_cause_away_would_be_found(name, text, found):
    assert given_away(load_scenario(name), text) == found
