"""What carries out each fault type on a local system, by isolation level, and why a level cannot have a type."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from opsassay.core.schema.incident import PlannedFault
from opsassay.core.schema.system import IsolationLevel
from opsassay.testbed.core.injection import Injection, Intervention, Repertoire
from opsassay.testbed.injection.disturbances import Quiet
from opsassay.testbed.injection.hooks import ProcessStress, RuntimeHook
from opsassay.testbed.substrates.local.actuators.disturbances import HarmlessRestart, LoadSurge
from opsassay.testbed.substrates.local.actuators.grouped import cpu_pressure, memory_pressure
from opsassay.testbed.substrates.local.actuators.lookups import FailingLookups, StrayLookups
from opsassay.testbed.substrates.local.actuators.packets import Packets
from opsassay.testbed.substrates.local.actuators.processes import KeepDown, Kill, KillPod
from opsassay.testbed.substrates.local.actuators.under_test import LocalUnderTest

_PLAIN: Mapping[str, Callable[[Injection[LocalUnderTest]], Intervention]] = {
    "PodKill": KillPod,
    "PodFailure": KeepDown,
    "ContainerKill": Kill,
    "CPUStress": cpu_pressure,
    "MemoryStress": memory_pressure,
    "HTTPRequestAbort": RuntimeHook,
    "HTTPResponseAbort": RuntimeHook,
    "HTTPRequestDelay": RuntimeHook,
    "HTTPResponseDelay": RuntimeHook,
    "HTTPResponseReplaceBody": RuntimeHook,
    "HTTPResponsePatchBody": RuntimeHook,
    "HTTPRequestReplacePath": RuntimeHook,
    "HTTPRequestReplaceMethod": RuntimeHook,
    "HTTPResponseReplaceCode": RuntimeHook,
    "DNSError": FailingLookups,
    "DNSRandom": StrayLookups,
    "NetworkDelay": Packets,
    "NetworkLoss": Packets,
    "NetworkCorrupt": Packets,
    "NetworkBandwidth": Packets,
    "NetworkPartition": Packets,
    "TimeSkew": RuntimeHook,
    "JVMLatency": RuntimeHook,
    "JVMReturn": RuntimeHook,
    "JVMException": RuntimeHook,
    "JVMGarbageCollector": ProcessStress,
    "JVMCPUStress": ProcessStress,
    "JVMMemoryStress": ProcessStress,
    "JVMMySQLLatency": RuntimeHook,
    "JVMMySQLException": RuntimeHook,
}

_PLAIN_REFUSALS: Mapping[str, str] = {
    "NetworkDuplicate": (
        "on the plain level faults act on byte streams, and TCP drops a duplicate before anyone can notice it; "
        "this type needs packets, which is the namespaced level's"
    ),
    **(
        {}
        if sys.platform.startswith("linux")
        else {
            "MemoryStress": (
                "the plain level limits the target's memory from outside, which needs Linux; use JVMMemoryStress"
            )
        }
    ),
}
"""The fault types that the plain level does not pretend to have, with the reason and the way out."""

_DISTURBANCES: Mapping[str, Callable[[LocalUnderTest, PlannedFault], Intervention]] = {
    "quiet": Quiet,
    "load_surge": LoadSurge,
    "harmless_restart": HarmlessRestart,
}

REPERTOIRES: Mapping[IsolationLevel, Repertoire[LocalUnderTest]] = {
    "plain": Repertoire("local", "the plain level", _PLAIN, _DISTURBANCES, _PLAIN_REFUSALS),
    "namespaced": Repertoire("local", "the namespaced level", {**_PLAIN, "NetworkDuplicate": Packets}, _DISTURBANCES),
    "compose": Repertoire("local", "a compose project", {**_PLAIN, "NetworkDuplicate": Packets}, _DISTURBANCES),
}
"""What can be done to a system of each isolation level."""
