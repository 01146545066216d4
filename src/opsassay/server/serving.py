"""The processes of the platform: a server with its database and workers, and separate workers."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socket import getaddrinfo, socket

import uvicorn
from procrastinate.exceptions import ConnectorException
from psycopg import OperationalError
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.middleware.trustedhost import TrustedHostMiddleware

from opsassay.core.errors import UserError
from opsassay.core.logs import configure
from opsassay.evals.runner.domain import DOMAINS, domain_named
from opsassay.server.access import add_user, renew_token
from opsassay.server.artefacts import Artefacts
from opsassay.server.benchmarks import Platform
from opsassay.server.database import USERS, engine_of, migrate, sole_server, unreachable
from opsassay.server.embedded import embedded_postgresql, running_url
from opsassay.server.events import KEY_FILE, Signer, append
from opsassay.server.index import note_events, rebuild
from opsassay.server.keeping import Restarter
from opsassay.server.site import platform_app
from opsassay.server.task_sets import FOLDER
from opsassay.server.work import Worker, run_worker
from opsassay.ui.loopback import bound

HOSTS = ("127.0.0.1", "localhost", "[::1]")
ADMIN = "admin"
ENDS_WITH = "OPSASSAY_ENDS_WITH"
"""Environment variable with the pid of the server with which a worker ends."""
WORKERS_END_S = 70.0


@dataclass(frozen=True)
class ServeSettings:
    """The settings of the server; *database* None starts its own PostgreSQL, *say* prints messages for the operator.

    *artefacts* is the URL of an object store for uploads, None for the folder. With a *command* the server runs as long as
    the command, whose environment has OPSASSAY_SERVER, OPSASSAY_DATABASE, OPSASSAY_EVENTS_KEY and, at the first start,
    OPSASSAY_TOKEN.
    """

    state: Path
    port: int = 0
    bind: str = "127.0.0.1"
    names: Sequence[str] = ()
    database: str | None = None
    workers: int = 1
    reindex: bool = False
    command: Sequence[str] = ()
    artefacts: str | None = None
    say: Callable[[str], None] = print


@dataclass(frozen=True)
class WorkSettings:
    """The settings of a worker; () for *domains* takes cells of all domains."""

    state: Path
    database: str
    server: str = ""
    domains: Sequence[str] = ()
    jobs: int = 1
    until_empty: bool = False
    artefacts: str | None = None


def renew_in_folder(folder: Path, database: str | None, user: str) -> str:
    """Return a new token for *user* of the platform in *folder*; *database* is its URL, None: that of the folder."""
    if not (folder / KEY_FILE).is_file():
        raise UserError(f"{folder} holds no platform; give the folder of `opsassay server start --state`.")
    with ExitStack() as stack:
        url = (
            database
            or running_url(folder)
            or stack.enter_context(embedded_postgresql(folder.absolute(), Restarter(print)))
        )
        engine = engine_of(url)
        stack.callback(engine.dispose)
        platform = Platform(folder.absolute(), engine, Signer.from_folder(folder), _open_artefacts(folder, None))
        try:
            with platform.asking() as connection:
                token = renew_token(connection, platform.state, user)
                append(connection, "token renewed", user, {})
        except SQLAlchemyError as error:
            raise unreachable(url, error) from error
    return token


def require_address(bind: str) -> None:
    """Raise UserError unless *bind* is an IP address or a host name that resolves."""
    try:
        getaddrinfo(bind, None)
    except (OSError, UnicodeError) as error:
        raise UserError(f"--bind {bind}: there is no such address; give one of this machine, as 127.0.0.1.") from error


def serve(settings: ServeSettings) -> int:
    """Run the platform until SIGINT, SIGTERM or the end of the command in *settings*; return the exit code.

    All processes that it started are ended then. Raises OpsAssayError.
    """
    require_address(settings.bind)
    with ExitStack() as stack:
        listener = stack.enter_context(bound(settings.port, settings.bind))
        if (given := settings.database) is not None:
            engine_of(given).dispose()  # an address that is none is refused before anything is written
        state = _make_state_folder(settings.state)
        address = f"http://{settings.bind}:{listener.getsockname()[1]}"
        restarter = Restarter(settings.say)
        url = stack.enter_context(embedded_postgresql(state, restarter) if given is None else nullcontext(given))
        engine = engine_of(url)
        stack.callback(engine.dispose)
        version = migrate(engine, url)
        stack.enter_context(sole_server(engine))
        platform = Platform(state, engine, Signer.from_folder(state), _open_artefacts(state, settings.artefacts))
        if settings.reindex:
            counts = _rebuild_index(platform)
            settings.say(f"opsassay: filled from {state}: {', '.join(f'{n} {name}' for name, n in counts.items())}")
        if (token := _create_first_admin(platform)) is not None:
            settings.say(f"opsassay: the token of the user {ADMIN}, shown this once: {token}")
        settings.say(f"opsassay: serving at {address} on PostgreSQL {version}, with {settings.workers} workers")
        _keep_workers(stack, restarter, settings, state, url, address)
        app = TrustedHostMiddleware(platform_app(platform, url), [*HOSTS, settings.bind, *settings.names])
        config = uvicorn.Config(
            app,
            log_level="error",
            server_header=False,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=65_536,
        )
        server = uvicorn.Server(config)
        # A leaderboard keeps 100,000 objects; with the usual threshold half of the time to make it is garbage collection.
        gc.freeze()
        gc.set_threshold(100_000)

        def end_serving() -> None:
            server.should_exit = True

        restarter.give_up = end_serving
        if not settings.command:
            server.run(sockets=[listener])
            return int(restarter.has_given_up.is_set())
        variables = {"SERVER": address, "DATABASE": url, "EVENTS_KEY": platform.signer.public_hex, "TOKEN": token or ""}
        return _serve_during_command(
            server, listener, settings.command, {f"OPSASSAY_{name}": said for name, said in variables.items()}
        )


def _serve_during_command(
    server: uvicorn.Server, listener: socket, command: Sequence[str], variables: Mapping[str, str]
) -> int:
    """Run *server* in a thread while *command* runs, *variables* in its environment; return the command's exit code."""
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="server")
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.02)
        return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode
    except OSError as error:
        raise UserError(f"{command[0]} cannot be started: {error.strerror}.") from error
    finally:
        server.should_exit = True
        thread.join()


def work(settings: WorkSettings) -> str:
    """Run a worker until a signal, or until the queue is empty if so set; return a sentence; raises OpsAssayError."""
    domains = [domain_named(name).name for name in settings.domains] or list(DOMAINS.names())
    configure("worker")
    _end_with_server()
    engine = engine_of(settings.database, settings.jobs)
    state = _make_state_folder(settings.state)
    try:
        migrate(engine, settings.database)
        worker = Worker(
            Platform(state, engine, Signer.from_folder(state), _open_artefacts(state, settings.artefacts)),
            settings.server,
        )
        running = run_worker(
            worker, settings.database, domains, concurrency=settings.jobs, until_empty=settings.until_empty
        )
        asyncio.run(running)
    except (ConnectorException, OperationalError) as error:
        raise unreachable(settings.database, error) from error
    finally:
        engine.dispose()
    return "there is nothing left to do" if settings.until_empty else "the worker has ended"


def _make_state_folder(folder: Path) -> Path:
    """Create the platform's state folder if missing; return its absolute path."""
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    return folder.absolute()


def _open_artefacts(state: Path, url: str | None) -> Artefacts:
    """Return the store of uploads at *url*, or in the folder *state* for None."""
    return Artefacts(url or state / "artefacts")


def _create_first_admin(platform: Platform) -> str | None:
    """Create the administrator if there are no users; return the token, else None."""
    with platform.asking() as connection:
        if connection.execute(select(func.count()).select_from(USERS)).scalar_one():
            return None
        token = add_user(connection, platform.state, ADMIN, "admin")
        append(connection, "user", ADMIN, {"role": "admin"})
    with platform.engine.connect() as connection:
        note_events(connection, platform.state, 0)
    return token


def _rebuild_index(platform: Platform) -> dict[str, int]:
    """Fill the database from the files of the platform; return the number of rows by table."""
    with platform.engine.begin() as connection:
        return rebuild(connection, platform.state)


def _keep_workers(
    stack: ExitStack, restarter: Restarter, settings: ServeSettings, state: Path, url: str, address: str
) -> None:
    """Run workers on the database *url* for the server at *address*, restarted if they end, until *stack* closes."""
    environment = {
        **os.environ,
        "OPSASSAY_DATABASE": url,
        ENDS_WITH: str(os.getpid()),
    }  # not words, which others may read
    if settings.artefacts is not None:
        environment["OPSASSAY_ARTEFACTS"] = settings.artefacts
    command = [sys.executable, "-m", "opsassay", "server", "worker", "--state", str(state), "--server", address]

    def start(number: int) -> subprocess.Popen[bytes]:
        with (state / f"worker-{number}.log").open("ab") as log:
            return subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def end(worker: subprocess.Popen[bytes]) -> None:
        worker.terminate()
        try:
            worker.wait(WORKERS_END_S)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()

    for number in range(settings.workers):
        stack.enter_context(restarter.keeping(f"worker {number}", partial(start, number), end))


def _end_with_server() -> None:
    """Watch the server process that started this worker, and end this process when it is gone."""
    server = os.environ.get(ENDS_WITH)
    if server is None:
        return

    def watch() -> None:
        while os.getppid() == int(server):
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="watch over the server", daemon=True).start()
