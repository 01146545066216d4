"""What a plan must be to be carried out on a system, told before anything is started."""

from __future__ import annotations

import pytest

import testbed
from opsassay.core.errors import ConfigError, NotFoundError, RefusedError
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.incident import FaultPlan
from opsassay.core.schema.system import System
from opsassay.testbed.apps import load_system
from opsassay.testbed.core.fleet import Fleet
from opsassay.testbed.core.links import touched
from opsassay.testbed.injection.preconditions import require
from opsassay.testbed.substrates.local.actuators.table import REPERTOIRES

PLAIN = REPERTOIRES["plain"].refusal
CORNER = load_system(testbed.CORNER)


def one(fault, target, **parameters):
    return {"fault": fault, "target": target, "parameters": parameters}


def service(name, fault, **parameters):
    return one(fault, {"service": name}, **parameters)


def host(name, fault, **parameters):
    return one(fault, {"host": name}, **parameters)


@pytest.mark.parametrize(
    ("plan", "kind", "says"),
    [
        (service("stok", "PodKill"), NotFoundError, "did you mean 'stock'"),
        (host("host-c", "CPUStress"), NotFoundError, "There is no host 'host-c'"),
        (one("PodKill", {"service": "price", "replica": 2}), RefusedError, "price has no replica 2; it has 2"),
        (service("stock", "HTTPResponseAbort", operation="GET /item"), NotFoundError, "operation of stock"),
        (service("counter", "HTTPResponseAbort"), RefusedError, "serves no HTTP operation"),
        (service("rate", "JVMMySQLException"), RefusedError, "uses no database; these services do: archive, stock"),
        (service("stock", "JVMMySQLLatency", operation="GET /names"), RefusedError, "GET /names uses no database"),
        (service("stock", "DNSError", hostname="price"), RefusedError, "it asks for rate"),
        (service("rate", "DNSError"), RefusedError, "stores are reached by address"),
        (service("stock", "NetworkLoss", peer="counter"), RefusedError, "exchanges no packets with 'counter'"),
        (service("stock", "NetworkLoss", peer="countr"), NotFoundError, "did you mean 'counter'"),
        (
            service("rate", "NetworkDelay", protocol="nats"),
            RefusedError,
            "no packets of nats that way; leave `protocol`",
        ),
        (service("rate", "NetworkDelay", direction="outbound"), RefusedError, "no packets with others that way"),
        (service("stock", "JVMMemoryStress", memory_type="stack"), RefusedError, "use memory_type heap"),
        (service("stock", "NetworkDuplicate"), RefusedError, "TCP drops a duplicate"),
        (host("host-a", "PodKill"), RefusedError, "use PodFailure for a host that is down"),
        (host("host-a", "HTTPResponseAbort"), RefusedError, "acts inside the process of one service"),
        (host("host-a", "TimeSkew"), RefusedError, "has no meaning on a host"),
        (host("host-a", "DNSError"), RefusedError, "each process looks names up for itself"),
        ({"fault": "NoFault", "target": {"host": "host-a"}}, RefusedError, "name a service"),
        ({"faults": [service("rate", "PodFailure"), service("rate", "CPUStress")]}, RefusedError, "keeps rate-0 down"),
        ({"faults": [host("host-b", "PodFailure"), service("stock", "CPUStress")]}, RefusedError, "keeps stock-0 down"),
        ({"faults": [host("host-b", "CPUStress"), service("stock", "CPUStress")]}, RefusedError, "both are CPUStress"),
        ({"faults": [service("rate", "TimeSkew"), service("rte", "CPUStress")]}, NotFoundError, "did you mean 'rate'"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(plan, kind, says):
    with pytest.raises(kind, match=says):
        require(CORNER, FaultPlan.model_validate(plan), PLAIN)


@pytest.mark.parametrize(
    "plan",
    [
        service("counter", "JVMException"),
        service("stock", "NetworkPartition", peer="db"),
        host("host-b", "NetworkBandwidth"),
        {"faults": [service("stock", "NetworkDelay", protocol=protocol) for protocol in ("http", "postgresql")]},
        {"fault": "NoFault", "parameters": {"disturbance": "harmless_restart"}, "target": {"service": "counter"}},
        {"faults": [service("rate", "NetworkLoss"), service("rate", "NetworkDelay"), host("host-b", "MemoryStress")]},
        {"faults": [service("stock", "HTTPResponseDelay", operation="GET /items"),
                    service("stock", "HTTPResponseDelay", operation="GET /names")]},
    ],
)  # fmt: skip
def test_what_can_work_is_let_through(plan):
    require(CORNER, FaultPlan.model_validate(plan), PLAIN)


def test_two_faults_that_make_copies_on_one_replica_are_refused():
    copies = [service("stock", "NetworkDuplicate", peer=peer) for peer in ("rate", "db")]
    with pytest.raises(RefusedError, match="both send copies to stock-0"):
        require(CORNER, FaultPlan.model_validate({"faults": copies}), REPERTOIRES["namespaced"].refusal)


def test_a_plan_from_a_file_is_refused_by_file_line_and_field(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(
        "faults:\n- fault: PodKill\n  target: {service: rate}\n- fault: PodKill\n  target:\n    service: rte\n"
    )
    with pytest.raises(
        ConfigError, match=r"two.yaml:6: faults.1.target.service: There is no service 'rte'; did you mean"
    ):
        require(CORNER, load_yaml(path, FaultPlan), PLAIN, source=path)


def test_a_fault_on_a_host_touches_only_what_leaves_it():
    fleet = Fleet(CORNER, 0)
    on_host = {replica.id for replica in fleet.replicas.values() if replica.host == "host-a"}
    streams = touched(fleet, on_host, {"direction": "both"})
    assert streams
    inside = {(a, b) for a, b in fleet.links() if a in on_host and b in on_host}
    assert inside, "the test needs two neighbours that talk"
    assert not inside & {(s.source, s.destination) for s in streams}
    leaving = {(a, b) for a, b in fleet.links() if (a in on_host) != (b in on_host)}
    assert leaving == {(s.source, s.destination) for s in streams}
    assert len(streams) == 2 * len(leaving)


@pytest.mark.parametrize(
    ("parameters", "links"),
    [
        ({"direction": "both"}, {"front>stock", "stock>rate", "stock>db", "stock>cache"}),
        ({"direction": "inbound"}, {"front>stock"}),
        ({"direction": "outbound"}, {"stock>rate", "stock>db", "stock>cache"}),
        ({"direction": "both", "protocol": "http"}, {"front>stock", "stock>rate"}),
        ({"direction": "both", "protocol": "postgresql"}, {"stock>db"}),
        ({"direction": "both", "peer": "rate"}, {"stock>rate"}),
    ],
)
def test_a_fault_touches_packets_of_both_ways_on_the_links_that_are_selected(parameters, links):
    streams = touched(Fleet(CORNER, 0), {"stock-0"}, parameters)
    assert {stream.link.replace("-0", "") for stream in streams} == links
    assert len(streams) == 2 * len(links)


def test_packets_do_not_tell_whose_call_they_belong_to():
    """Where two services call each other a fault on the calls of one way alone is refused."""
    told = CORNER.model_dump(mode="json", exclude_unset=True)
    told["services"]["rate"]["operations"]["GET /rate"]["steps"].append({"call": "stock GET /names", "timeout_s": 1})
    mutual = System.model_validate(told)
    for direction in ("inbound", "outbound"):
        plan = FaultPlan.model_validate(service("rate", "NetworkDelay", direction=direction))
        with pytest.raises(RefusedError, match="rate and stock-0 call each other"):
            require(mutual, plan, PLAIN)
    require(mutual, FaultPlan.model_validate(service("rate", "NetworkDelay", direction="both")), PLAIN)
