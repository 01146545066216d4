"""The fault catalogue: one table that everything else reads.

Source: OpenRCA 2.0 (arXiv 2606.27154), Table 5 (31 chaos types) and Table 6 (25 observable kinds). The parameter names
and defaults and the actuator are ours: a fault type names the *actuator* that it needs, a substrate offers actuators.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from opsassay.errors import NotFoundError
from opsassay.model.base import Noun

NO_FAULT = "NoFault"
"""The type of an incident in which nothing was broken; not one of the 31."""

DISTURBANCES = ("quiet", "load_surge", "harmless_restart")
"""The kinds of incidents without a fault: nothing happens, or what happens harms nobody."""


class Category(StrEnum):
    """The seven Chaos Mesh families of Table 5."""

    POD = "PodChaos"
    STRESS = "StressChaos"
    HTTP = "HTTPChaos"
    DNS = "DNSChaos"
    NETWORK = "NetworkChaos"
    TIME = "TimeChaos"
    JVM = "JVMChaos"


class Layer(StrEnum):
    """What a fault acts on."""

    INFRASTRUCTURE = "infrastructure"
    APPLICATION = "application"


class Channel(StrEnum):
    """How a fault spreads: down from infrastructure, or along calls."""

    VERTICAL = "vertical"
    HORIZONTAL = "horizontal"
    BOTH = "vertical+horizontal"


class Level(StrEnum):
    """The granularity at which a label applies (Table 4)."""

    SERVICE = "service"
    POD = "pod"
    CONTAINER = "container"
    FUNCTION = "function"
    SPAN = "span"


class Actuator(StrEnum):
    """What a substrate must offer so that a fault type can be injected on it."""

    SIGNAL = "signal"
    CGROUP = "cgroup"
    RUNTIME_HOOK = "runtime_hook"
    NAME_SERVICE = "name_service"
    PACKET = "packet"


class FaultKind(StrEnum):
    """The observable vocabulary of Table 6: what a diagnosis may claim."""

    POD_FAILURE = "pod_failure"
    POD_UNAVAILABLE = "pod_unavailable"
    NETWORK_DELAY = "network_delay"
    NETWORK_LOSS = "network_loss"
    NETWORK_PARTITION = "network_partition"
    NETWORK_CORRUPT = "network_corrupt"
    NETWORK_DUPLICATE = "network_duplicate"
    NETWORK_BANDWIDTH_LIMIT = "network_bandwidth_limit"
    HTTP_ABORTED = "http_aborted"
    HTTP_SLOW = "http_slow"
    HTTP_PAYLOAD_MODIFIED = "http_payload_modified"
    HTTP_RESPONSE_STATUS_MODIFIED = "http_response_status_modified"
    CPU_STRESS = "cpu_stress"
    MEM_STRESS = "mem_stress"
    JVM_THREAD_CPU_STRESS = "jvm_thread_cpu_stress"
    JVM_HEAP_STRESS = "jvm_heap_stress"
    JVM_GC_PRESSURE = "jvm_gc_pressure"
    JVM_METHOD_EXCEPTION = "jvm_method_exception"
    JVM_JDBC_EXCEPTION = "jvm_jdbc_exception"
    JVM_METHOD_LATENCY = "jvm_method_latency"
    JVM_JDBC_LATENCY = "jvm_jdbc_latency"
    JVM_METHOD_MUTATED = "jvm_method_mutated"
    DNS_RESOLUTION_FAILED = "dns_resolution_failed"
    DNS_RESOLUTION_WRONG = "dns_resolution_wrong"
    CLOCK_SKEW = "clock_skew"


class Parameter(Noun):
    """One knob of a fault type; *default* None means that it may be left out."""

    name: str
    type: str  # "int", "float" or "str"
    default: float | int | str | None
    help: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


class FaultType(Noun):
    """One row of Table 5."""

    name: str
    category: Category
    layer: Layer
    levels: tuple[Level, ...]
    channel: Channel
    kind: FaultKind
    actuator: Actuator
    parameters: tuple[Parameter, ...] = ()
    aliases: tuple[str, ...] = ()
    emulated_on_local: bool = False


def _number(name: str, default: float, help_: str, low: float | None = 0, high: float | None = None) -> Parameter:
    return Parameter(name=name, type="float", default=default, help=help_, minimum=low, maximum=high)


def _whole(name: str, default: int, help_: str, low: int = 1, high: int | None = None) -> Parameter:
    return Parameter(name=name, type="int", default=default, help=help_, minimum=low, maximum=high)


def _text(name: str, default: str | None, help_: str, choices: tuple[str, ...] = ()) -> Parameter:
    return Parameter(name=name, type="str", default=default, help=help_, choices=choices)


_DELAY = _number("delay_ms", 300.0, "added delay, milliseconds; under 1 ms nobody could tell it from noise", 1)
_CODE = _whole("code", 500, "HTTP status that the caller sees", 400, 599)
_ROUTE = _text("operation", None, "the operation that is hit; all of the service's when left out")
_METHOD = _text("operation", None, "the operation whose handler is hit; all of the service's when left out")
_EXCEPTION = _text("exception", "IllegalStateException", "class name of the raised exception")
_DIRECTION = _text(
    "direction", "from", "packets that the target sends, those sent to it, or both", ("from", "to", "both")
)
_PEER = _text("peer", None, "only traffic with this service or store; all when left out")


_HOSTNAME = _text("hostname", None, "the name whose look-ups by the target go wrong; all when left out")
_SERVICE_POD = (Level.SERVICE, Level.POD)

_FAMILIES: Mapping[Category, Mapping[str, Any]] = {
    Category.POD: {
        "layer": Layer.INFRASTRUCTURE, "levels": _SERVICE_POD, "channel": Channel.VERTICAL, "actuator": Actuator.SIGNAL,
    },
    Category.STRESS: {
        "layer": Layer.INFRASTRUCTURE, "levels": _SERVICE_POD, "channel": Channel.VERTICAL, "actuator": Actuator.CGROUP,
    },
    Category.HTTP: {
        "layer": Layer.APPLICATION, "levels": (Level.SERVICE, Level.SPAN), "channel": Channel.HORIZONTAL,
        "actuator": Actuator.RUNTIME_HOOK,
    },
    Category.DNS: {
        "layer": Layer.INFRASTRUCTURE, "levels": _SERVICE_POD, "channel": Channel.VERTICAL,
        "actuator": Actuator.NAME_SERVICE,
    },
    Category.NETWORK: {
        "layer": Layer.INFRASTRUCTURE, "levels": _SERVICE_POD, "channel": Channel.BOTH, "actuator": Actuator.PACKET,
    },
    Category.TIME: {
        "layer": Layer.INFRASTRUCTURE, "levels": _SERVICE_POD, "channel": Channel.VERTICAL,
        "actuator": Actuator.RUNTIME_HOOK,
    },
    Category.JVM: {
        "layer": Layer.APPLICATION, "levels": (Level.SERVICE, Level.FUNCTION), "channel": Channel.HORIZONTAL,
        "actuator": Actuator.RUNTIME_HOOK, "emulated_on_local": True,
    },
}  # fmt: skip
"""What the types of a family share."""

_IN_THE_POD: Mapping[str, Any] = {"levels": _SERVICE_POD, "channel": Channel.VERTICAL}
"""JVM types that exhaust the pod rather than touch a method."""


def _row(category: Category, name: str, kind: FaultKind, *parameters: Parameter, **exceptions: Any) -> FaultType:
    return FaultType(
        category=category, name=name, kind=kind, parameters=parameters, **{**_FAMILIES[category], **exceptions}
    )


_TABLE_5: tuple[FaultType, ...] = (
    _row(Category.POD, "PodKill", FaultKind.POD_FAILURE),
    _row(Category.POD, "PodFailure", FaultKind.POD_UNAVAILABLE),
    _row(Category.POD, "ContainerKill", FaultKind.POD_FAILURE, levels=(*_SERVICE_POD, Level.CONTAINER)),
    _row(
        Category.STRESS,
        "CPUStress",
        FaultKind.CPU_STRESS,
        _whole("cores", 1, "cores' worth of burners"),
        _number("load_percent", 95.0, "share of the pod's CPU that the burners take", 1, 100),
    ),
    _row(
        Category.STRESS,
        "MemoryStress",
        FaultKind.MEM_STRESS,
        _whole("size_mb", 256, "memory that is allocated and touched, MiB"),
    ),
    _row(Category.HTTP, "HTTPRequestAbort", FaultKind.HTTP_ABORTED, _CODE, _ROUTE),
    _row(Category.HTTP, "HTTPResponseAbort", FaultKind.HTTP_ABORTED, _CODE, _ROUTE),
    _row(Category.HTTP, "HTTPRequestDelay", FaultKind.HTTP_SLOW, _DELAY, _ROUTE),
    _row(Category.HTTP, "HTTPResponseDelay", FaultKind.HTTP_SLOW, _DELAY, _ROUTE),
    _row(
        Category.HTTP,
        "HTTPResponseReplaceBody",
        FaultKind.HTTP_PAYLOAD_MODIFIED,
        _text("body_type", "empty", "what the body becomes", ("empty", "random")),
        _ROUTE,
    ),
    _row(
        Category.HTTP,
        "HTTPResponsePatchBody",
        FaultKind.HTTP_PAYLOAD_MODIFIED,
        _text("patch", '{"patched": true}', "JSON merged into the body"),
        _ROUTE,
    ),
    _row(
        Category.HTTP,
        "HTTPRequestReplacePath",
        FaultKind.HTTP_PAYLOAD_MODIFIED,
        _text("new_path", "/nowhere", "the path that the service sees"),
        _ROUTE,
    ),
    _row(
        Category.HTTP,
        "HTTPRequestReplaceMethod",
        FaultKind.HTTP_PAYLOAD_MODIFIED,
        _text("method", "DELETE", "the method that the service sees", ("GET", "POST", "PUT", "DELETE", "PATCH")),
        _ROUTE,
    ),
    _row(Category.HTTP, "HTTPResponseReplaceCode", FaultKind.HTTP_RESPONSE_STATUS_MODIFIED, _CODE, _ROUTE),
    _row(Category.DNS, "DNSError", FaultKind.DNS_RESOLUTION_FAILED, _HOSTNAME, aliases=("DNSChaos",)),
    _row(Category.DNS, "DNSRandom", FaultKind.DNS_RESOLUTION_WRONG, _HOSTNAME),
    _row(
        Category.NETWORK,
        "NetworkDelay",
        FaultKind.NETWORK_DELAY,
        _DELAY,
        _number("jitter_ms", 0.0, "half-width of a uniform jitter, milliseconds"),
        _DIRECTION,
        _PEER,
    ),
    _row(
        Category.NETWORK,
        "NetworkLoss",
        FaultKind.NETWORK_LOSS,
        _number("loss_percent", 10.0, "packets lost", 1, 100),
        _DIRECTION,
        _PEER,
    ),
    _row(
        Category.NETWORK,
        "NetworkDuplicate",
        FaultKind.NETWORK_DUPLICATE,
        _number("duplicate_percent", 10.0, "packets sent twice", 1, 100),
        _DIRECTION,
        _PEER,
    ),
    _row(
        Category.NETWORK,
        "NetworkCorrupt",
        FaultKind.NETWORK_CORRUPT,
        _number("corrupt_percent", 10.0, "packets with a flipped bit", 1, 100),
        _DIRECTION,
        _PEER,
    ),
    _row(
        Category.NETWORK,
        "NetworkBandwidth",
        FaultKind.NETWORK_BANDWIDTH_LIMIT,
        _whole("rate_bps", 64_000, "bits per second"),
        _DIRECTION,
        _PEER,
    ),
    _row(Category.NETWORK, "NetworkPartition", FaultKind.NETWORK_PARTITION, _DIRECTION, _PEER),
    _row(
        Category.TIME,
        "TimeSkew",
        FaultKind.CLOCK_SKEW,
        _number("offset_ms", -60_000.0, "added to the target's wall clock, milliseconds", None),
        aliases=("TimeChaos",),
    ),
    _row(Category.JVM, "JVMLatency", FaultKind.JVM_METHOD_LATENCY, _DELAY, _METHOD),
    _row(
        Category.JVM,
        "JVMReturn",
        FaultKind.JVM_METHOD_MUTATED,
        _text("value", "", "what the method returns instead"),
        _text("value_type", "string", "type of the value", ("string", "int")),
        _METHOD,
        aliases=("JVMRuntimeMutator",),
    ),
    _row(Category.JVM, "JVMException", FaultKind.JVM_METHOD_EXCEPTION, _EXCEPTION, _METHOD),
    _row(Category.JVM, "JVMGarbageCollector", FaultKind.JVM_GC_PRESSURE, **_IN_THE_POD),
    _row(
        Category.JVM,
        "JVMCPUStress",
        FaultKind.JVM_THREAD_CPU_STRESS,
        _whole("cpu_count", 1, "busy threads"),
        **_IN_THE_POD,
    ),
    _row(
        Category.JVM,
        "JVMMemoryStress",
        FaultKind.JVM_HEAP_STRESS,
        _text("memory_type", "heap", "where it grows", ("heap", "stack")),
        _whole("size_mb", 256, "growth, MiB", 16),
        **_IN_THE_POD,
    ),
    _row(Category.JVM, "JVMMySQLLatency", FaultKind.JVM_JDBC_LATENCY, _DELAY, _METHOD),
    _row(
        Category.JVM,
        "JVMMySQLException",
        FaultKind.JVM_JDBC_EXCEPTION,
        _text("exception", "SQLException", "class name of the raised exception"),
        _METHOD,
    ),
)

CATALOGUE: Mapping[str, FaultType] = MappingProxyType({row.name: row for row in _TABLE_5})
"""The 31 chaos types by their published name, in the order of Table 5."""

ALIASES: Mapping[str, str] = MappingProxyType({alias: row.name for row in _TABLE_5 for alias in row.aliases})
"""Names that public data uses for some of them."""

OBSERVATION: Mapping[FaultKind, str] = MappingProxyType(
    {
        FaultKind.POD_FAILURE: "trace emission gap, brief, recovers in window",
        FaultKind.POD_UNAVAILABLE: "trace emission gap, sustained to window end",
        FaultKind.NETWORK_DELAY: "container.network.*, trace latency tail",
        FaultKind.NETWORK_LOSS: "container.network.*, trace retry pattern",
        FaultKind.NETWORK_PARTITION: "container.network.*, timeout share approaches one",
        FaultKind.NETWORK_CORRUPT: "container.network.*, TCP retransmit signal",
        FaultKind.NETWORK_DUPLICATE: "container.network.*, duplicate-ack pattern",
        FaultKind.NETWORK_BANDWIDTH_LIMIT: "container.network.*, throughput drop",
        FaultKind.HTTP_ABORTED: "HTTP span status, request-failure rate",
        FaultKind.HTTP_SLOW: "HTTP span duration distribution",
        FaultKind.HTTP_PAYLOAD_MODIFIED: "response body, path or method differs from baseline",
        FaultKind.HTTP_RESPONSE_STATUS_MODIFIED: "HTTP span status-code distribution",
        FaultKind.CPU_STRESS: "container.cpu.* saturated",
        FaultKind.MEM_STRESS: "container.memory.* saturated",
        FaultKind.JVM_THREAD_CPU_STRESS: "jvm.cpu.* elevated, container CPU normal",
        FaultKind.JVM_HEAP_STRESS: "jvm.memory.used climbs to limit",
        FaultKind.JVM_GC_PRESSURE: "jvm.gc.duration histogram spikes",
        FaultKind.JVM_METHOD_EXCEPTION: "log exception class on a specific method",
        FaultKind.JVM_JDBC_EXCEPTION: "exception on a JDBC client call",
        FaultKind.JVM_METHOD_LATENCY: "elevated span duration on a method",
        FaultKind.JVM_JDBC_LATENCY: "elevated span duration on a JDBC call",
        FaultKind.JVM_METHOD_MUTATED: "method returns a value differing from baseline",
        FaultKind.DNS_RESOLUTION_FAILED: "DNS error log entries on the affected service",
        FaultKind.DNS_RESOLUTION_WRONG: "resolution succeeds but returns wrong target",
        FaultKind.CLOCK_SKEW: "cross-service timestamp drift in correlated logs",
    }
)
"""Table 6: the primary observation channel of each kind."""

NETWORK_KINDS = frozenset(row.kind for row in _TABLE_5 if row.category is Category.NETWORK)
"""Kinds for which either end of the faulted link is a correct answer (OpenRCA 2.0, G.1)."""


def fault_type(name: str) -> FaultType:
    """Return the catalogue row of *name* or of one of its public aliases; raises NotFoundError."""
    row = CATALOGUE.get(ALIASES.get(name, name))
    if row is None:
        raise NotFoundError("fault type", name, CATALOGUE, "See `opsassay faults`.")
    return row
