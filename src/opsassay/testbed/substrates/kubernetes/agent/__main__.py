"""What runs in a pod: the service runtime of `local` with the cluster in the supervisor's place.

    python -m opsassay.testbed.substrates.kubernetes.agent replica SERVICE | load | store NAME | receiver | probe
        | undo | node
    | companion ROLE ORDER

A pod reads the system from a mounted file and the rest from its environment. Process 1 of a replica or of the load
generator is its pod agent (`pod agent.py`).
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from opsassay.core.logs import Log, configure
from opsassay.core.schema.files import load_yaml
from opsassay.core.schema.system import System
from opsassay.testbed.substrates.kubernetes.manifests.system import LOAD, PROBE_PORT, SETTING, STORE_PORTS
from opsassay.testbed.workload.runtime.settings import SERVICE_PORT

_log = Log(__name__)
SYSTEM_FILE = Path("/etc/opsassay/system.yaml")


def main(arguments: list[str]) -> None:
    """Run the role *arguments*[0] (replica, load, store, receiver, probe, undo, node, companion) until asked to end."""
    role, *names = arguments
    configure("-".join([role, *names[:1]]), os.environ.get("POD_NAMESPACE", ""))
    _log.info("started", pid=os.getpid())
    if role == "probe":
        from opsassay.testbed.substrates.kubernetes.agent.probe import serve

        serve(PROBE_PORT)
        return
    if role == "undo":
        from opsassay.testbed.substrates.kubernetes.agent import undo

        undo.main()
        return
    if role == "receiver":
        from opsassay.testbed.substrates.kubernetes.agent import receiver

        receiver.main()
        return
    if role == "node":
        from opsassay.testbed.substrates.kubernetes.agent import node_agent

        node_agent.main()
        return
    if role == "companion":
        _press(names[0], json.loads(names[1]))
        return
    system = load_yaml(SYSTEM_FILE, System)
    if role == "store":
        raise SystemExit(asyncio.run(_store(system, names[0])))
    from opsassay.testbed.substrates.kubernetes.agent.pod_agent import keep

    raise SystemExit(keep(_run, _replica_order(system, names[0]) if role == "replica" else _load_order(system)))


def _run(order: dict[str, Any]) -> None:
    """Run the runtime process with the settings *order*: of a service's replica, or the load generator."""
    import uvloop

    from opsassay.testbed.workload.runtime import load, replica

    uvloop.run(replica.main(order) if "service" in order else load.main(order))


def _press(role: str, order: dict[str, Any]) -> None:
    """Run the process *role*, burner (CPU) or allocator (memory), with the settings *order*."""
    from opsassay.testbed.workload.runtime import allocator, burner

    asyncio.run({"burner": burner.main, "allocator": allocator.main}[role](order))


def _replica_order(system: System, service: str) -> dict[str, Any]:
    """Return the settings for the process of a replica of *service* in this pod."""
    pod = os.environ["POD_NAME"]
    stores = {
        name: {"address": name, "port": STORE_PORTS[system.stores[name].engine], "engine": system.stores[name].engine}
        for user, name in system.uses()
        if user == service
    }
    settings = {key.removeprefix(SETTING): value for key, value in os.environ.items() if key.startswith(SETTING)}
    return {
        **_common_settings(system, pod),
        "service": service,
        "address": "0.0.0.0",  # noqa: S104 - a pod has a network of its own
        "port": SERVICE_PORT,
        "inside": "",
        "ledger": "/tmp/ledger/replica.jsonl",  # noqa: S108 - a pod has a disk of its own
        "resource": _resource(system, service),
        "stores": stores,
        "token": os.environ["TOKEN"],
        "release": os.environ.get("RELEASE") or system.services[service].release,
        "settings": settings,
        "clock_offset_ns": 0,
    }


def _load_order(system: System) -> dict[str, Any]:
    """Return the settings for the load generator in this pod."""
    return {
        **_common_settings(system, LOAD),
        "resource": _resource(system, LOAD),
        "record": "/tmp/load.jsonl",  # noqa: S108
        "rate_rps": float(os.environ["RATE_RPS"]),
    }


def _common_settings(system: System, name: str) -> dict[str, Any]:
    """Return the settings that all processes of *system* get, for the process called *name*."""
    return {
        "id": name,
        "system": system.model_dump(mode="json"),
        "endpoint": os.environ["TELEMETRY"],
        "seed": int(os.environ["SEED"]),
    }


def _resource(system: System, service: str) -> dict[str, str]:
    """Return the OpenTelemetry resource attributes of this pod of *service*."""
    pod = os.environ["POD_NAME"]
    return {
        "service.name": service,
        "k8s.namespace.name": os.environ.get("POD_NAMESPACE", system.system),
        "k8s.node.name": os.environ["NODE_NAME"],
        "k8s.service.name": service,
        "k8s.deployment.name": service,
        "k8s.replicaset.name": pod.rpartition("-")[0],
        "k8s.pod.name": pod,
        "k8s.container.name": service,
    }


async def _store(system: System, name: str) -> int:
    """Run the server of a store until the pod is asked to end; return its exit status."""
    from opsassay.testbed.core.networks import Site
    from opsassay.testbed.core.state import SystemState
    from opsassay.testbed.workload.stores import start_store

    os.environ["OPSASSAY_STATE"] = os.environ["XDG_CACHE_HOME"] = "/tmp/state"  # noqa: S108
    state = SystemState.for_system("store")
    state.dir.mkdir(parents=True)
    (state.dir / "logs").mkdir()
    described = system.stores[name].model_copy(update={"password": os.environ.get("PASSWORD")})
    site = Site(os.environ["POD_IP"], "127.0.0.1", port=STORE_PORTS[described.engine])
    running = await start_store(state, name, described, site)
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    waiting = asyncio.create_task(stopping.wait())
    ending = asyncio.create_task(running.process.wait())
    await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
    if not ending.done():
        running.process.send_signal(signal.SIGINT)  # for PostgreSQL: do not wait for clients
        await ending
        return 0
    _log.error("the store ended", status=ending.result(), tail=state.log(f"store-{name}").read_text()[-2000:])
    return ending.result() or 1


if __name__ == "__main__":
    main(sys.argv[1:])
