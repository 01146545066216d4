"""What runs in a pod: the service runtime of `local` with the cluster in the supervisor's place.

    python -m assay.testbed.kubernetes.pod replica SERVICE | load | store NAME | probe | undo

A pod reads the system from a mounted file and the rest from its environment. Names are looked up in the cluster's DNS; a
little name server in the process turns them into the SRV records that the runtime asks for.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.model.files import load_yaml
from assay.model.system import System
from assay.testbed.kubernetes.manifests import LOAD, SETTING, STORE_PORTS
from assay.testbed.runtime.settings import SERVICE_PORT

if TYPE_CHECKING:
    from assay.testbed.local.names import Endpoint

SYSTEM_FILE = Path("/etc/assay/system.yaml")
NAMES_TIMEOUT_S = 5.0


def main(arguments: list[str]) -> None:
    """Run the role that the arguments name until the pod is told to end."""
    role, *names = arguments
    if role == "probe":
        from assay.testbed.kubernetes.probe_server import serve

        serve()
        return
    if role == "undo":
        from assay.testbed.kubernetes import undo

        undo.main()
        return
    system = load_yaml(SYSTEM_FILE, System)
    if role == "store":
        raise SystemExit(asyncio.run(_store(system, names[0])))
    signal.signal(
        signal.SIGTERM, lambda *_: os._exit(0)
    )  # process 1 has no default; a server drains before this is called
    import uvloop

    from assay.testbed.runtime import load, replica

    if role == "replica":
        uvloop.run(_managed(replica.main, _replica_order(system, names[0])))
    else:
        uvloop.run(_managed(load.main, _load_order(system)))


async def _managed(run: Any, order: dict[str, Any]) -> None:
    """Run a process of the runtime; where its supervisor would be, nobody asks anything and nobody hangs up."""
    connected: list[asyncio.StreamWriter] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.append(writer)
        await reader.read()

    server = await asyncio.start_unix_server(listen, order["management"])
    async with server:
        await run(order)


def _replica_order(system: System, service: str) -> dict[str, Any]:
    pod = os.environ["POD_NAME"]
    stores = {
        name: {"address": name, "port": STORE_PORTS[system.stores[name].engine], "engine": system.stores[name].engine}
        for user, name in system.uses()
        if user == service
    }
    settings = {key.removeprefix(SETTING): value for key, value in os.environ.items() if key.startswith(SETTING)}
    return {
        **_common(system, pod),
        "service": service,
        "address": "0.0.0.0",  # noqa: S104 - a pod has a network of its own
        "port": SERVICE_PORT,
        "inside": "",
        "ledger": "/tmp/ledger.jsonl",  # noqa: S108 - a pod has a disk of its own
        "resource": _resource(system, service),
        "stores": stores,
        "token": os.environ["TOKEN"],
        "release": os.environ.get("RELEASE") or system.services[service].release,
        "settings": settings,
        "clock_offset_ns": 0,
    }


def _load_order(system: System) -> dict[str, Any]:
    return {
        **_common(system, LOAD),
        "resource": _resource(system, LOAD),
        "record": "/tmp/load.jsonl",  # noqa: S108
        "rate_rps": float(os.environ["RATE_RPS"]),
    }


def _common(system: System, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "system": system.model_dump(mode="json"),
        "management": "/tmp/management.sock",  # noqa: S108
        "endpoint": os.environ["TELEMETRY"],
        "names": ["127.0.0.1", _serve_names()],
        "seed": int(os.environ["SEED"]),
    }


def _resource(system: System, service: str) -> dict[str, str]:
    """Return the OpenTelemetry resource of this pod; a pod's name holds its replica set's."""
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


def _serve_names() -> int:
    """Start a name server in a thread of its own, where a slow look-up holds up nobody else; return its port."""
    from assay.testbed.local.names import NameServer

    ready: threading.Event = threading.Event()
    ports: list[int] = []

    async def run() -> None:
        ports.append(await NameServer(lambda service, _caller: _look_up(service)).start("127.0.0.1"))
        ready.set()
        await asyncio.Event().wait()

    threading.Thread(target=lambda: asyncio.run(run()), name="names", daemon=True).start()
    ready.wait(NAMES_TIMEOUT_S)
    return ports[0]


def _look_up(service: str) -> list[Endpoint] | None:
    """Return where the cluster says that *service* is; None when it knows none of that name."""
    try:
        return [(socket.gethostbyname(service), SERVICE_PORT)]
    except socket.gaierror as error:
        if error.errno == socket.EAI_NONAME:
            return None
        raise


async def _store(system: System, name: str) -> int:
    """Run the server of a store until the pod is told to end; return its exit status."""
    from assay.testbed.local.networks import Site
    from assay.testbed.local.state import SystemState
    from assay.testbed.local.stores import start_store

    os.environ["ASSAY_STATE"] = os.environ["XDG_CACHE_HOME"] = "/tmp/state"  # noqa: S108
    state = SystemState.of("store")
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
    print(state.log(f"store-{name}").read_text()[-2000:], file=sys.stderr)
    return ending.result() or 1


if __name__ == "__main__":
    main(sys.argv[1:])
