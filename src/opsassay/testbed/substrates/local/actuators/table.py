"""What each fault type does to a local system, by isolation level: one table each from type to actuator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from opsassay.model.system import Setting
from opsassay.testbed.injection.hooks import ProcessStrain, RuntimeHook
from opsassay.testbed.injection.injection import Actuator, Injection
from opsassay.testbed.substrates.kubernetes.actuators.ways import CLUSTER
from opsassay.testbed.substrates.local.actuators.grouped import cpu_pressure, memory_pressure
from opsassay.testbed.substrates.local.actuators.lookups import FailingLookups, StrayLookups
from opsassay.testbed.substrates.local.actuators.packets import Packets
from opsassay.testbed.substrates.local.actuators.processes import KeepDown, Kill, KillPod

Maker = Callable[[Injection], Actuator]

_PLAIN: Mapping[str, Maker] = {
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
    "JVMGarbageCollector": ProcessStrain,
    "JVMCPUStress": ProcessStrain,
    "JVMMemoryStress": ProcessStrain,
    "JVMMySQLLatency": RuntimeHook,
    "JVMMySQLException": RuntimeHook,
}

_LEVELS: Mapping[Setting, Mapping[str, Maker]] = {
    "plain": _PLAIN,
    "namespaced": {**_PLAIN, "NetworkDuplicate": Packets},
    "kubernetes": CLUSTER,
}


def actuators(level: Setting) -> Mapping[str, Maker]:
    """Return what carries out each fault type that a system of the isolation *level* can take."""
    return _LEVELS[level]


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
