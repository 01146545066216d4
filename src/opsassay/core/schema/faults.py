"""The vocabulary of faults, and the catalogue of their types; families in `testbed/catalogue/` and packages fill it.

Source: OpenRCA 2.0 (arXiv 2606.27154), Table 5 (31 chaos types) and Table 6 (25 observable kinds). Parameter names,
defaults and actuators are ours.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from opsassay.core.errors import ConfigError, NotFoundError
from opsassay.core.registry import Registry
from opsassay.core.schema.base import Noun

NO_FAULT = "NoFault"
"""The type of an incident in which nothing was broken; none of the 31."""

DISTURBANCES = ("quiet", "load_surge", "harmless_restart")
"""The kinds of incidents without a fault: nothing happens, or something harmless."""


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
    """The layer that a fault acts on."""

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
    """The means that a substrate must offer so that a fault type can be injected on it."""

    SIGNAL = "signal"
    CGROUP = "cgroup"
    RUNTIME_HOOK = "runtime_hook"
    NAME_SERVICE = "name_service"
    PACKET = "packet"


class FaultKind(StrEnum):
    """The observable kinds of faults of Table 6: those that a diagnosis may claim."""

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
    """One parameter of a fault type; *default* None means that it may be left out."""

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


class Catalogued(Protocol):
    """A fault type as its family describes it, with more than its row of Table 5."""

    @property
    def row(self) -> FaultType:
        """The fault type in the form of Table 5: its name, parameters and aliases."""


FAMILIES = Registry(
    "fault family",
    "opsassay.faults",
    {
        family: f"opsassay.testbed.catalogue.{family}:FAMILY"
        for family in ("pod", "stress", "http", "dns", "network", "time", "jvm")
    },
)
"""Families of types, each a tuple of `Catalogued`; packages add to them through the entry point ``opsassay.faults``."""


@functools.cache
def families() -> tuple[tuple[Catalogued, ...], ...]:
    """Return the fault types in groups (families): those of OpenRCA 2.0, Table 5, then those of other packages."""
    return tuple(FAMILIES.load(name) for name in FAMILIES.names())


class FaultCatalogue(Mapping[str, FaultType]):
    """The fault types by published name, in the order of Table 5; built at first use.

    The first use raises ConfigError when two families have a type of one name.
    """

    @functools.cached_property
    def _fault_types_by_name(self) -> dict[str, FaultType]:
        """All fault types by published name; raises ConfigError when two families share one."""
        rows: dict[str, FaultType] = {}
        for family in families():
            for fault in family:
                if fault.row.name in rows:
                    raise ConfigError(
                        f"Two families have a fault type {fault.row.name!r}; uninstall one of the packages."
                    )
                rows[fault.row.name] = fault.row
        return rows

    @functools.cached_property
    def aliases(self) -> dict[str, str]:
        """Alias in public data sets to the published name of the fault type."""
        return {alias: row.name for row in self._fault_types_by_name.values() for alias in row.aliases}

    def __getitem__(self, name: str) -> FaultType:
        return self._fault_types_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fault_types_by_name)

    def __len__(self) -> int:
        return len(self._fault_types_by_name)


CATALOGUE = FaultCatalogue()
"""The 31 chaos types of Table 5, and those that packages add."""

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

NETWORK_KINDS = frozenset(kind for kind in FaultKind if kind.startswith("network_"))
"""Kinds for which either end of the faulted link is a correct answer (OpenRCA 2.0, G.1)."""


def fault_type(name: str) -> FaultType:
    """Return the fault type whose published name or alias is *name*; raises NotFoundError."""
    row = CATALOGUE.get(CATALOGUE.aliases.get(name, name))
    if row is None:
        raise NotFoundError("fault type", name, CATALOGUE, "See `opsassay system faults`.")
    return row
