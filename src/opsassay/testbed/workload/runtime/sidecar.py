"""The Envoy in front of a program's port: started, waited for, given the routes of a fault, ended with its replica.

It is in the pod's network, as a user of its own and in a root of its own: the socket of its administration lies in that
root's /tmp, where this process reaches it and the program does not. Connections from elsewhere are led to it by a rule
that goes with this process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil

from opsassay.core.errors import StartError
from opsassay.testbed.kernel.namespaces import close_served, enter, inside
from opsassay.testbed.kernel.private_root import SIDECAR_UID, program_words
from opsassay.testbed.workload.runtime.forks import die_with_parent
from opsassay.testbed.workload.runtime.sidecar_config import ADMIN, PORT, ROUTES, bootstrap, routes

if TYPE_CHECKING:
    from opsassay.testbed.kernel.netfilter import Table

ASK_EVERY_S, TAKEN_WITHIN_S = 0.02, 3.0
_BEGIN = 'umask 077; printf %s "$FIRST_ROUTES" > "$0"; unset FIRST_ROUTES; exec "$@"'
_OPTIONS = ("--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "--config-yaml")


class Sidecar:
    """Stands in front of the *port* of the program of *service* at *address*; *binary* is the path of an Envoy.

    In the network *namespace* of a container it stands at all addresses, else at that one of its own namespace.
    """

    def __init__(
        self, binary: str, service: str, address: str, port: int, telemetry_port: int, namespace: str | None = None
    ) -> None:
        self._binary, self._service, self._port, self._namespace = binary, service, port, namespace
        self._config = bootstrap(service, address, port, telemetry_port, everywhere=namespace is not None)
        self._root = Path("/nowhere")  # its /tmp, as this process finds it
        self._taken: list[dict[str, Any]] | None = routes((), 0)["resources"]
        self._version = 0
        self._changing = asyncio.Lock()
        self._table: Table | None = None

    async def start(self) -> None:
        """Start the sidecar process; it receives traffic once `wait_ready` has returned."""
        words = program_words("", "/tmp", [str(Path(self._binary).parent)], SIDECAR_UID)  # noqa: S108 - its own
        marker = {key: value for key, value in os.environ.items() if key.startswith("OPSASSAY_SYSTEM")}
        self._process = await asyncio.create_subprocess_exec(
            *words, "sh", "-c", _BEGIN, ROUTES, self._binary, *_OPTIONS, json.dumps(self._config),
            stdin=asyncio.subprocess.DEVNULL,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "FIRST_ROUTES": json.dumps(routes((), 0)), **marker},
            preexec_fn=self._begin,
        )  # fmt: skip

    async def wait_ready(self) -> None:
        """Wait until the sidecar answers and gets the connections to the port; raises StartError."""
        while not await self._is_live():
            if self._process.returncode is not None:
                raise StartError(f"The sidecar of {self._service} ended while starting; its own words are in this log.")
            await asyncio.sleep(ASK_EVERY_S)
        self._table = await asyncio.to_thread(self._lead)

    async def watch(self) -> None:
        """Raise RuntimeError when the sidecar ends, which ends the replica."""
        status = await self._process.wait()
        raise RuntimeError(f"the sidecar of {self._service} ended with status {status}")

    async def apply(self, hooks: Sequence[dict[str, Any]]) -> None:
        """Carry out exactly *hooks*, faults of later requests; raises RuntimeError when the sidecar rejects them."""
        async with self._changing:
            desired = routes(hooks, self._version + 1)
            if desired["resources"] == self._taken:  # Envoy would not take note of the version alone
                return
            self._version, self._taken = self._version + 1, None  # not known until it has taken these
            written = self._root / f"{self._version}.json"
            written.write_text(json.dumps(desired), encoding="utf-8")
            written.rename(self._root / Path(ROUTES).name)  # Envoy does not notice a file that is written over
            try:
                async with asyncio.timeout(TAKEN_WITHIN_S):
                    while not await self._has_taken(str(self._version)):  # noqa: ASYNC110 - another process's doing
                        await asyncio.sleep(ASK_EVERY_S)
            except TimeoutError as error:
                words = f"the sidecar of {self._service} did not take its routes within {TAKEN_WITHIN_S:g} s"
                raise RuntimeError(words) from error
            self._taken = desired["resources"]

    def _begin(self) -> None:
        """Enter the network of the container in the new process, and end with its parent."""
        die_with_parent()
        if self._namespace is not None:
            enter(self._namespace)

    def _lead(self) -> Table:
        """Return the table that leads connections to the sidecar; those that a container has are closed."""
        if self._namespace is None:
            return _redirect(self._port)
        table = inside(self._namespace, lambda: _redirect(self._port))
        close_served(self._namespace, self._port)
        return table

    async def _is_live(self) -> bool:
        """Return whether Envoy runs and says that it is live."""
        with contextlib.suppress(OSError, aiohttp.ClientError, psutil.Error):
            for first in psutil.Process(self._process.pid).children():
                self._root = Path(f"/proc/{first.pid}/root/tmp")
                return (await self._ask_admin("/ready")).startswith("LIVE")
        return False

    async def _has_taken(self, version: str) -> bool:
        """Return whether Envoy has loaded the routes with *version*."""
        dumped = json.loads(await self._ask_admin("/config_dump?resource=dynamic_route_configs"))
        return any(one.get("version_info") == version for one in dumped.get("configs", ()))

    async def _ask_admin(self, path: str) -> str:
        """Return what Envoy's admin interface answers at *path*."""
        connector = aiohttp.UnixConnector(path=str(self._root / Path(ADMIN).name))
        async with aiohttp.ClientSession(connector=connector) as session, session.get(f"http://envoy{path}") as answer:
            return await answer.text()


def _redirect(port: int) -> Table:
    """Return a table that redirects connections for *port* to the sidecar while it is open; raises StartError."""
    from pyroute2.netlink.exceptions import NetlinkError  # most systems have no sidecar, and all would import it

    from opsassay.testbed.kernel.netfilter import LATE_PACKETS, Table

    with contextlib.suppress(OSError):  # no such file, or not ours to write
        LATE_PACKETS.write_text("1", encoding="utf-8")
    try:
        table = Table("ip", "sidecar")
        table.redirect(port, PORT)
    except NetlinkError as error:
        words = f"This kernel leads no connections to a sidecar ({error}); it needs nf_tables with nft_redir."
        raise StartError(words) from error
    return table
