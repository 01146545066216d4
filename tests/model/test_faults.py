"""The catalogue against Tables 5 and 6 of OpenRCA 2.0."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from assay.errors import NotFoundError, UserError
from assay.model.faults import (
    ALIASES,
    CATALOGUE,
    NETWORK_KINDS,
    OBSERVATION,
    Channel,
    FaultKind,
    Level,
    complete_parameters,
    fault_type,
)

TABLE_5_COUNTS = {
    "PodChaos": 3, "StressChaos": 2, "HTTPChaos": 9, "DNSChaos": 2, "NetworkChaos": 6, "TimeChaos": 1, "JVMChaos": 8,
}  # fmt: skip

TABLE_6 = {
    "pod_failure": {"PodKill", "ContainerKill"},
    "pod_unavailable": {"PodFailure"},
    "network_delay": {"NetworkDelay"},
    "network_loss": {"NetworkLoss"},
    "network_partition": {"NetworkPartition"},
    "network_corrupt": {"NetworkCorrupt"},
    "network_duplicate": {"NetworkDuplicate"},
    "network_bandwidth_limit": {"NetworkBandwidth"},
    "http_aborted": {"HTTPRequestAbort", "HTTPResponseAbort"},
    "http_slow": {"HTTPRequestDelay", "HTTPResponseDelay"},
    "http_payload_modified": {
        "HTTPResponseReplaceBody", "HTTPResponsePatchBody", "HTTPRequestReplacePath", "HTTPRequestReplaceMethod",
    },
    "http_response_status_modified": {"HTTPResponseReplaceCode"},
    "cpu_stress": {"CPUStress"},
    "mem_stress": {"MemoryStress"},
    "jvm_thread_cpu_stress": {"JVMCPUStress"},
    "jvm_heap_stress": {"JVMMemoryStress"},
    "jvm_gc_pressure": {"JVMGarbageCollector"},
    "jvm_method_exception": {"JVMException"},
    "jvm_jdbc_exception": {"JVMMySQLException"},
    "jvm_method_latency": {"JVMLatency"},
    "jvm_jdbc_latency": {"JVMMySQLLatency"},
    "jvm_method_mutated": {"JVMReturn", "JVMRuntimeMutator"},
    "dns_resolution_failed": {"DNSError", "DNSChaos"},
    "dns_resolution_wrong": {"DNSRandom"},
    "clock_skew": {"TimeSkew", "TimeChaos"},
}  # fmt: skip


def test_table_5_has_31_types_in_7_categories():
    assert Counter(row.category.value for row in CATALOGUE.values()) == TABLE_5_COUNTS
    assert len(CATALOGUE) == 31


def test_table_6_maps_every_type_and_public_alias_to_one_of_25_kinds():
    names = [*CATALOGUE, *ALIASES]
    found = {kind: {name for name in names if fault_type(name).kind == kind} for kind in FaultKind}
    assert {kind.value: sources for kind, sources in found.items()} == TABLE_6
    assert set(OBSERVATION) == set(FaultKind)
    assert len(FaultKind) == 25


@pytest.mark.parametrize(
    ("name", "levels", "channel"),
    [
        ("ContainerKill", {Level.SERVICE, Level.POD, Level.CONTAINER}, Channel.VERTICAL),
        ("HTTPRequestAbort", {Level.SERVICE, Level.SPAN}, Channel.HORIZONTAL),
        ("NetworkCorrupt", {Level.SERVICE, Level.POD}, Channel.BOTH),
        ("JVMGarbageCollector", {Level.SERVICE, Level.POD}, Channel.VERTICAL),
        ("JVMMySQLLatency", {Level.SERVICE, Level.FUNCTION}, Channel.HORIZONTAL),
    ],
)
def test_levels_and_channel_of_table_5(name, levels, channel):
    assert set(CATALOGUE[name].levels) == levels
    assert CATALOGUE[name].channel is channel


def test_network_kinds_are_the_six_of_the_network_family():
    assert {kind.value for kind in NETWORK_KINDS} == {name for name in TABLE_6 if name.startswith("network_")}


def test_parameters_are_completed_with_their_defaults():
    assert complete_parameters(CATALOGUE["NetworkDelay"], {"delay_ms": 200}) == {
        "delay_ms": 200.0, "jitter_ms": 0.0, "direction": "from",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"delay": 5}, "NetworkDelay has no parameter 'delay'; did you mean 'delay_ms'?"),
        ({"delay_ms": -1}, "NetworkDelay: parameter 'delay_ms' must be at least 0, not -1."),
        ({"delay_ms": math.nan}, "NetworkDelay: parameter 'delay_ms' must be at least 0, not nan."),
        ({"delay_ms": "long"}, "NetworkDelay: parameter 'delay_ms' must be a number, not 'long'."),
        ({"direction": "up"}, "NetworkDelay: parameter 'direction' must be one of from, to, both, not 'up'."),
    ],
)
def test_a_wrong_parameter_is_named_in_one_sentence(given, sentence):
    with pytest.raises(UserError) as error:
        complete_parameters(CATALOGUE["NetworkDelay"], given)
    assert str(error.value) == sentence


def test_an_unknown_type_gets_the_nearest_name():
    with pytest.raises(NotFoundError, match="did you mean 'PodKill'"):
        fault_type("podkil")
