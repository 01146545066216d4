"""opsassay server register, benchmark and token renew: clients of a platform's HTTP API.

The token stands in OPSASSAY_TOKEN alone: words of a command can be read by every user of the machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import click

from opsassay.cli.output import FOLDER, echo, json_option, print_json, print_table, say
from opsassay.core.errors import NotFoundError, OperationError, UserError
from opsassay.ui.platform.cell_words import BENCHMARK_WORDS, BUNDLE_WORDS, why_not

if TYPE_CHECKING:
    from opsassay.server.client import PlatformClient

TOKEN = "OPSASSAY_TOKEN"  # noqa: S105 - the name of a variable
LOOK_S = 1.0
server_option = click.option(
    "--server", envvar="OPSASSAY_SERVER", default="http://127.0.0.1:8400", show_default=True, help="The platform."
)


@contextmanager
def _connect(server: str) -> Iterator[PlatformClient]:
    """Yield a client of *server*; the block raises UserError for its refusals, OperationError when it does not answer."""
    from opsassay.server.client import PlatformClient, PlatformError

    if not server.startswith(("http://", "https://")):
        raise UserError(f"--server {server}: this is no address; give one such as http://127.0.0.1:8400.")
    if not (token := os.environ.get(TOKEN, "").strip()).isascii() or not token:
        raise UserError(f"{TOKEN} holds no token; set it to the one that the platform's admin gave you.")
    try:
        yield PlatformClient(server, token, tries=2)
    except PlatformError as error:
        if error.status == 401:
            raise UserError(f"The token in {TOKEN} is not known or has ended; the admin can renew it.") from error
        if 400 <= error.status < 500:
            raise UserError(str(error)) from error
        raise OperationError(f"{error}; is the platform running, and is --server its address?") from error
    except ValueError as error:
        raise UserError(f"{server} is no platform: it does not answer in JSON.") from error


@click.command("register")
@click.argument("name")
@click.option(
    "--domain", "domains", multiple=True, required=True, help="Domain of its tasks, such as sre; repeat for more."
)
@click.option("--bundle", type=FOLDER, help="Folder with agent.yaml, which the platform runs in its seal.")
@click.option("--built-in", "built_in", metavar="NAME", help="A method or agent of OpsAssay by its name.")
@click.option("--level", default="any", show_default=True, help="any, beginner, intermediate or expert.")
@server_option
@json_option
def register(
    name: str,
    domains: tuple[str, ...],
    bundle: Path | None,
    built_in: str | None,
    level: str,
    server: str,
    *,
    as_json: bool,
) -> None:
    """Register the agent NAME at --server: a folder (--bundle), a --built-in one, else one that you run yourself."""
    if bundle is not None and built_in is not None:
        raise UserError("--bundle and --built-in: an agent is one of both; leave one out.")
    content = None if bundle is None else _pack_agent(bundle)
    with _connect(server) as platform:
        if content is not None:
            query = urlencode({"name": name, "level": level, "domains": ",".join(domains)})
            found = platform.ask("POST", f"/api/agents/bundle?{query}", content)
        else:
            kind = "self_hosted" if built_in is None else "built_in"
            form = {"name": name, "kind": kind, "domains": domains, "level": level, "source": built_in or ""}
            found = platform.ask("POST", "/api/agents", form)
    if as_json:
        print_json("server register", [found])
        return
    echo(f"{name} is registered as {found['id']}.")
    if found["manifest"]:
        echo(f"It asks for its tasks at {server.rstrip('/')}{found['manifest']}.")


def _pack_agent(folder: Path) -> bytes:
    """Return the files of the agent's *folder* as a tar archive, agent.yaml at its top; raises UserError."""
    import io
    import tarfile

    if not (folder / "agent.yaml").is_file():
        raise UserError(f"{folder} holds no agent.yaml; `opsassay new agent NAME` writes one.")
    kept = io.BytesIO()
    with tarfile.open(fileobj=kept, mode="w") as archive:
        archive.add(folder, ".", filter=lambda member: None if "__pycache__" in member.name else member)
    return kept.getvalue()


@click.command("benchmark")
@click.argument("agent")
@click.argument("task_set", metavar="TASK_SET")
@click.option("--no-wait", is_flag=True, help="Ask for it, and do not wait for its end.")
@server_option
@json_option
@click.pass_context
def benchmark(context: click.Context, agent: str, task_set: str, server: str, *, no_wait: bool, as_json: bool) -> None:
    """Start a benchmark of AGENT, a name or an id, on TASK_SET; wait for its end and print the outcome of each task."""
    with _connect(server) as platform:
        yours = platform.ask("GET", "/api/agents")["items"]
        ids = [one["id"] for one in yours if agent in (one["id"], one["name"])]
        if not ids:
            raise NotFoundError("agent of yours", agent, [one["name"] for one in yours])
        asked = platform.request(ids[0], task_set)
        say(f"opsassay: benchmark {asked}: {server.rstrip('/')}/benchmarks/{asked}")
        found = platform.benchmark(asked) if no_wait else _wait_for_end(lambda: platform.benchmark(asked))
    cells = found.pop("cells")
    if as_json:
        print_json("server benchmark", cells, **found)
    else:
        rows = [
            (one["task"], str(one["seed"]), BUNDLE_WORDS[one["bundle"]], _yes_or_no(one), why_not(one) or None)
            for one in cells
        ]
        print_table(
            f"{agent} on {task_set}: {BENCHMARK_WORDS[found['state']]}",
            ("task", "seed", "state", "passed", "why not"),
            rows,
        )
    context.exit(int(found["state"] == "Error" or any(one["bundle"] == "Error" for one in cells)))


def _wait_for_end(read_benchmark: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Call *read_benchmark* until the benchmark has ended, printing its progress on change; return its last state."""
    said = ""
    while True:
        found = read_benchmark()
        ended = sum(one["bundle"] in ("Terminated", "Error") for one in found["cells"])
        now = f"opsassay: {BENCHMARK_WORDS[found['state']]}, {ended} of {len(found['cells'])} tasks at an end"
        if now != said:
            say(said := now)
        if found["state"] in ("Finished", "Error"):
            return found
        time.sleep(LOOK_S)


def _yes_or_no(cell: dict[str, Any]) -> str | None:
    """Return whether the benchmark's *cell* passed as "yes" or "no", None while that is not known."""
    return None if cell["passed"] is None else "yes" if cell["passed"] else "no"


@click.command("renew")
@click.argument("user", default="admin")
@click.option("--state", type=FOLDER, help="The platform's folder, on its machine: no token is needed.")
@click.option("--database", metavar="URL", envvar="OPSASSAY_DATABASE", help="With --state: a database of your own.")
@server_option
def renew(user: str, state: Path | None, database: str | None, server: str) -> None:
    """Replace the platform token of USER (default: admin); the old one becomes invalid.

    An admin asks the platform at --server. With --state, the platform's folder on its own machine, no token is needed,
    as when that of the admin is lost; --database is that of the platform, if you gave it one.
    """
    if state is None:
        with _connect(server) as platform:
            token = platform.ask("POST", f"/api/users/{quote(user, safe='')}/token")["token"]
    else:
        from opsassay.server.serving import renew_in_folder

        token = renew_in_folder(state, database, user)
    echo(f"The new token of {user}, shown this once: {token}")
