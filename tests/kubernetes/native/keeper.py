"""The process in the cluster's namespaces: makes the network, starts control plane and nodes, serves the control socket.

python -m tests.kubernetes.native.keeper ORDER      (by `cluster.Cluster.start`, as the child of process 1)
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.kubernetes.native.cache import Cache
from tests.kubernetes.native.control_plane import ControlPlane
from tests.kubernetes.native.daemons import Daemons, run, wait_for
from tests.kubernetes.native.node import Node
from tests.kubernetes.native.system_objects import apply_system_objects

READY_TIMEOUT_S = 400.0
TUNABLES = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What kubelet wants of the kernel: it reads these files in place of the machine's own, which stay as they are."""

LINK = {"partition": "down", "restore": "up"}
"""A node's link to all others, and to the control plane."""
LATE = {"delay": signal.SIGUSR1, "undelay": signal.SIGUSR2}
"""What the door by which the API is reached from outside is told."""


class Keeper:
    """Runs one cluster as *order* says."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.order = order
        self.cache, self.folder = Cache(Path(order["cache"])), Path(order["folder"])
        self.started = time.monotonic()
        os.environ.update(self.cache.environment())  # everything that is run here is found in the cache first
        self.daemons = Daemons(self.folder / "logs", self.cache.environment())
        self.control_plane = ControlPlane(self.folder, self.cache, self.daemons, order["port"])
        self.nodes = {
            f"worker{number}": Node(f"worker{number}", number, self.folder, self.cache, self.daemons, order["group"])
            for number in range(1, order["workers"] + 1)
        }

    def run(self) -> None:
        """Start everything, say so, and serve; until killed, or until the owner has gone."""
        if self.order["owned"]:
            threading.Thread(target=_end_with, args=(sys.stdin.fileno(),), daemon=True).start()
        self._prepare()
        self.say("network")
        with ThreadPoolExecutor(len(self.nodes) + 1) as pool:
            places = [pool.submit(node.prepare) for node in self.nodes.values()]
            self.control_plane.start(self.order["listener"])
            self.say("control plane ready")
            for place in places:
                place.result()
            self.say("containerd ready")
            for node in self.nodes.values():
                self.control_plane.admit(node.name, node.pods)
                node.start(self.control_plane)
            apply_system_objects(self.control_plane)
            self.say("nodes started")
        wait_for(self._nodes_ready, READY_TIMEOUT_S, "nodes Ready")
        self.say("nodes Ready")
        wait_for(self.control_plane.names_ready, READY_TIMEOUT_S, "DNS ready")
        self.say("DNS ready")
        ready = self.folder / "ready.json.partial"
        ready.write_text(json.dumps(self.about()))
        ready.rename(self.folder / "ready.json")
        self._serve()

    def about(self) -> dict[str, Any]:
        """Return what users of the cluster are told."""
        return {
            "kubeconfig": str(self.folder / "admin.yaml"),
            "nodes": list(self.nodes),
            "started_in_s": round(time.monotonic() - self.started, 1),
        }

    def say(self, what: str) -> None:
        """Log progress."""
        print(f"{time.monotonic() - self.started:5.1f} s  {what}", flush=True)

    def _nodes_ready(self) -> bool:
        return self.control_plane.ready_nodes() >= set(self.nodes)

    def _prepare(self) -> None:
        """Give the namespaces what daemons expect: mounts of their own, loopback, the bridge between nodes."""
        run("mount", "--make-rshared", "/")
        run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
        tunables = self.folder / "tunables"
        for name, value in TUNABLES.items():
            (tunables / name).parent.mkdir(parents=True, exist_ok=True)
            (tunables / name).write_text(value + "\n")
            run("mount", "--bind", str(tunables / name), f"/proc/sys/{name}")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "fabric", "type", "bridge")
        run("ip", "addr", "add", "10.77.0.1/16", "dev", "fabric")
        run("ip", "link", "set", "fabric", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _serve(self) -> None:
        """Obey the control socket until killed."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.bind(str(self.folder / "control.sock"))
            server.listen()
            while True:
                connection, _ = server.accept()
                with connection:
                    request = json.loads(connection.makefile().readline())
                    try:
                        self._obey(request)
                        answer: dict[str, Any] = {"ok": True}
                    except Exception as error:  # noqa: BLE001 - the caller is told
                        answer = {"error": f"{type(error).__name__}: {error}"}
                    connection.sendall(json.dumps(answer).encode() + b"\n")

    def _obey(self, request: dict[str, Any]) -> None:
        if request["op"] in LINK:
            run("ip", "link", "set", f"up{self.nodes[request['node']].number}", LINK[request["op"]])
            return
        if request["op"] in LATE:
            self.daemons.tell("relay", LATE[request["op"]])
            return
        daemon = f"{request['node']}-{request['unit']}" if request["node"] else request["unit"]
        {
            "stop": self.daemons.stop,
            "start": self.daemons.start_again,
            "freeze": self.daemons.freeze,
            "thaw": self.daemons.thaw,
        }[request["op"]](daemon)


def _end_with(descriptor: int) -> None:
    while os.read(descriptor, 4096):
        pass
    os._exit(0)  # process 1 follows, and with it everything


if __name__ == "__main__":
    Keeper(json.loads(sys.argv[1])).run()
