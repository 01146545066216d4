"""What each fault type does to a local system, by isolation level: one table each from type to actuator."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from assay.testbed.faults.hooks import ProcessStrain, RuntimeHook
from assay.testbed.faults.injection import Actuator
from assay.testbed.faults.lookups import FailingLookups, StrayLookups
from assay.testbed.faults.packets import Packets
from assay.testbed.faults.pressure import CpuPressure, MemoryPressure
from assay.testbed.faults.processes import KeepDown, Kill, KillPod

_PLAIN: Mapping[str, type[Actuator]] = {
    "PodKill": KillPod,
    "PodFailure": KeepDown,
    "ContainerKill": Kill,
    "CPUStress": CpuPressure,
    "MemoryStress": MemoryPressure,
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
    "JVMGarbageCollector": ProcessStrain,
    "JVMCPUStress": ProcessStrain,
    "JVMMemoryStress": ProcessStrain,
    "JVMMySQLLatency": RuntimeHook,
    "JVMMySQLException": RuntimeHook,
}

_LEVELS: Mapping[str, Mapping[str, type[Actuator]]] = {"plain": _PLAIN, "namespaced": _PLAIN}


def actuators(level: str) -> Mapping[str, type[Actuator]]:
    """Return what carries out each fault type that a system of the isolation *level* can take."""
    return _LEVELS.get(level, {})


LOCAL_REFUSALS: Mapping[str, str] = {
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
