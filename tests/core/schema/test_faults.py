"""The catalogue against Tables 5 and 6 of OpenRCA 2.0."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest

from opsassay.core.errors import NotFoundError, UserError
from opsassay.core.schema.faults import CATALOGUE, NETWORK_KINDS, OBSERVATION, Channel, FaultKind, Level, fault_type
from opsassay.core.schema.plan import complete

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
    names = [*CATALOGUE, *CATALOGUE.aliases]
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
    assert complete("NetworkDelay", {"delay_ms": 200}) == {
        "delay_ms": 200.0, "jitter_ms": 0.0, "direction": "from",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"delay": 5}, "NetworkDelay has no parameter 'delay'; did you mean 'delay_ms'?"),
        ({"delay_ms": -1}, "NetworkDelay: parameter 'delay_ms' must be at least 1, not -1."),
        ({"delay_ms": math.nan}, "NetworkDelay: parameter 'delay_ms' must be at least 1, not nan."),
        ({"delay_ms": "long"}, "NetworkDelay: parameter 'delay_ms' must be a number, not 'long'."),
        (
            {"direction": "up"},
            "NetworkDelay: parameter 'direction' must be one of from, to, both, inbound, outbound, not 'up'.",
        ),
    ],
)
def test_a_wrong_parameter_is_named_in_one_sentence(given, sentence):
    with pytest.raises(UserError) as error:
        complete("NetworkDelay", given)
    assert str(error.value) == sentence


def test_an_unknown_type_gets_the_nearest_name():
    with pytest.raises(NotFoundError, match="did you mean 'PodKill'"):
        fault_type("podkil")


@pytest.mark.parametrize(
    ("fault", "given", "sentence"),
    [
        ("NetworkDelay", {"delay_ms": 0.5}, "must be at least 1, not 0.5"),
        ("NetworkLoss", {"loss_percent": 0}, "must be between 1 and 100, not 0"),
        ("HTTPResponsePatchBody", {"patch": "[1]"}, "patch must be a JSON object"),
        ("HTTPRequestReplacePath", {"new_path": "nowhere"}, "must begin with '/'"),
        ("JVMReturn", {"value": "x", "value_type": "int"}, "must be a whole number"),
        ("TimeSkew", {"offset_ms": 20}, "must be 100 or more either way"),
        ("NoFault", {"disturbance": "load_surges"}, "did you mean 'load_surge'"),
        ("NoFault", {"disturbance": "load_surge", "factor": 1}, "factor must be a number above 1"),
        ("NoFault", {"disturbance": "load_surge", "factor": "3"}, "factor must be a number above 1"),
        ("NoFault", {"disturbance": "load_surge", "factor": math.inf}, "factor must be a number above 1"),
        ("NoFault", {"factor": 3}, "has no parameter 'factor'"),
    ],
)
def test_what_makes_no_sense_is_told(fault, given, sentence):
    with pytest.raises(UserError, match=re.escape(sentence)):
        complete(fault, given)


def test_an_incident_without_a_fault_is_quiet_unless_told():
    assert complete("NoFault", {}) == {"disturbance": "quiet"}
    assert complete("NoFault", {"disturbance": "load_surge"}) == {"disturbance": "load_surge", "factor": 3.0}
