"""The platform's own PostgreSQL: one folder, one password, loopback only; it ends with the server."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg

from opsassay.core.errors import StartError
from opsassay.server.keeping import Restarter
from opsassay.testbed.kernel.private_root import give, unprivileged
from opsassay.testbed.workload.postgresql import postgresql_programs

USER, DATABASE, PASSWORD_FILE = "opsassay", "opsassay", "database.password"
READY_S = 30.0


@contextmanager
def embedded_postgresql(state: Path, restarter: Restarter) -> Iterator[str]:
    """Run PostgreSQL on the data in *state* for the block, restarted if it ends; yield its URL; raises StartError."""
    programs, data = postgresql_programs(), state / "postgresql"
    password = _read_or_make_password(state)
    if not (data / "PG_VERSION").exists():
        _initialise_cluster(programs, data, password)
    port = _find_free_port()
    options = {
        "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": "1000",
        "shared_buffers": "128MB", "password_encryption": "scram-sha-256", "jit": "off",
    }  # fmt: skip
    words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
    command = [
        *unprivileged(programs.parent, data),
        str(programs / "postgres"),
        "-D",
        str(data),
        "-p",
        str(port),
        *words,
    ]
    url = f"postgresql://{USER}:{password}@127.0.0.1:{port}/{DATABASE}"

    def start() -> subprocess.Popen[bytes]:
        _end_previous(data)
        with (state / "postgresql.log").open("ab") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", start_new_session=True)
        try:
            _wait_until_ready(server, url, state)
        except BaseException:
            _shut_down(server, data)
            raise
        return server

    with restarter.keeping("PostgreSQL", start, lambda server: _shut_down(server, data)):
        yield url


def running_url(state: Path) -> str | None:
    """Return the URL of the PostgreSQL that runs on the data in *state*; None when it does not run."""
    with suppress(OSError, IndexError, ValueError, psycopg.OperationalError):
        password = (state / PASSWORD_FILE).read_text(encoding="ascii").strip()
        port = int((state / "postgresql" / "postmaster.pid").read_text(encoding="ascii").splitlines()[3])
        url = f"postgresql://{USER}:{password}@127.0.0.1:{port}/{DATABASE}"
        psycopg.connect(url, connect_timeout=5).close()
        return url
    return None


def _initialise_cluster(programs: Path, data: Path, password: str) -> None:
    """Create PostgreSQL's data folder *data* with *password* by initdb in *programs*; raises StartError."""
    data.mkdir(parents=True, mode=0o700, exist_ok=True)
    secret = data.with_name("postgresql.password")
    secret.touch(mode=0o600)
    secret.write_text(password, encoding="ascii")
    inside = data / "password"  # where who makes the folder may read it
    secret.replace(inside)
    give(data)
    made = data / "made"
    words = ["-D", str(made), "-U", USER, "-A", "scram-sha-256", "--pwfile", str(inside), "-E", "UTF8", "--no-locale"]
    done = subprocess.run(
        [*unprivileged(programs.parent, data), str(programs / "initdb"), *words],
        capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    inside.unlink(missing_ok=True)
    if done.returncode:
        raise StartError("PostgreSQL's data folder could not be made.", done.stderr.strip()[-2000:])
    for path in made.iterdir():
        path.rename(data / path.name)
    made.rmdir()


def _wait_until_ready(server: subprocess.Popen[bytes], url: str, state: Path) -> None:
    """Wait until *server* answers at *url*, and create its database if missing; raises StartError."""
    deadline, plain = time.monotonic() + READY_S, url.rpartition("/")[0] + "/postgres"
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        with suppress(psycopg.OperationalError):
            with psycopg.connect(plain, autocommit=True, connect_timeout=2) as connection:
                if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                    connection.execute(f"CREATE DATABASE {DATABASE}")
            return
        time.sleep(0.1)
    log = (state / "postgresql.log").read_text(encoding="utf-8", errors="replace")[-2000:]
    raise StartError(f"PostgreSQL did not start; its log is {state / 'postgresql.log'}.", log)


def _end_previous(data: Path) -> None:
    """Shut down a PostgreSQL that still runs on *data* after its parent was killed, and wait for its end."""
    with suppress(OSError, ValueError, IndexError):
        pid = int((data / "postmaster.pid").read_text(encoding="ascii").splitlines()[0])
        if str(data).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and any(_is_process_of(folder, data) for folder in Path("/proc").glob("[0-9]*")):
        time.sleep(0.1)


def _is_process_of(process: Path, data: Path) -> bool:
    """Return whether the /proc folder *process* is of the PostgreSQL on *data*, by its working directory."""
    try:
        return (process / "cwd").readlink() == data
    except OSError:
        return False


def _shut_down(server: subprocess.Popen[bytes], data: Path) -> None:
    """Shut PostgreSQL down by SIGINT to the process in postmaster.pid; kill *server* after 20 s."""
    with suppress(OSError, ValueError, IndexError):
        os.kill(int((data / "postmaster.pid").read_text(encoding="ascii").splitlines()[0]), signal.SIGINT)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _read_or_make_password(state: Path) -> str:
    """Return the database password stored in *state*; make one at the first start."""
    path = state / PASSWORD_FILE
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(24), encoding="ascii")
    return path.read_text(encoding="ascii").strip()


def _find_free_port() -> int:
    """Return a free TCP port of 127.0.0.1."""
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
