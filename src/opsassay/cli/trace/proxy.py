"""opsassay trace proxy."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsassay.cli.output import FOLDER, echo, say

if TYPE_CHECKING:
    from opsassay.solvers.proxy.policies import Policy
    from opsassay.solvers.proxy.server import ProxySettings

_FOLDER = click.Path(path_type=Path)


@click.command("proxy", context_settings={"ignore_unknown_options": False})
@click.argument("agent", nargs=-1, type=click.UNPROCESSED)
@click.option("--upstream", required=True, help="URL of the API, or scripted:FILE.yaml for a model without network.")
@click.option("-o", "--output", "directory", type=FOLDER, required=True, help="Folder of the record.")
@click.option("--session", help="Session that the printed token stands for, a new one; run, run-2, ... when left out.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port; 0 takes a free one.")
@click.option("--key-env", default="OPSASSAY_UPSTREAM_KEY", show_default=True, help="Variable that holds the real key.")
@click.option("--replay", type=_FOLDER, help="Recorded session to answer from instead of the upstream.")
@click.option(
    "--by",
    type=click.Choice(["hash", "position"]),
    default="hash",
    show_default=True,
    help="How a replay finds answers.",
)
@click.option("--intervene", type=_FOLDER, help="YAML of an edit to one step of the --replay session.")
def command(
    agent: tuple[str, ...], upstream: str, directory: Path, session: str | None, port: int, key_env: str,
    replay: Path | None, by: str, intervene: Path | None,
) -> int:  # fmt: skip
    """Record the model calls of an agent: run AGENT (after --) behind a proxy, or serve the proxy until interrupted.

    The agent gets its own token as OPENAI_API_KEY and ANTHROPIC_API_KEY, and the proxy as base URL. With --replay a
    recorded session answers instead of --upstream, by request hash or position (--by), with the edit in --intervene.
    """
    from opsassay.core.errors import UserError
    from opsassay.solvers.agents.models.scripted import running_upstream
    from opsassay.solvers.proxy.record import RECORD, new_session, session_folder
    from opsassay.solvers.proxy.running import running_proxy
    from opsassay.solvers.proxy.secrets import is_placeholder
    from opsassay.solvers.proxy.server import ProxySettings
    from opsassay.solvers.proxy.tokens import issue_token

    policy = _make_policy(replay, by, intervene)
    if agent and shutil.which(agent[0]) is None:
        raise UserError(f"There is no command {agent[0]}; give the path of a file, or a program that is installed.")
    name = new_session(directory, session)
    with ExitStack() as stack:
        base = stack.enter_context(running_upstream(upstream))
        settings = ProxySettings(upstream=base, directory=directory, key=os.environ.get(key_env) or None, policy=policy)
        if settings.key and is_placeholder(settings.key):
            say(f"opsassay: the key in {key_env} is a placeholder, as for servers that want none; it is not masked.")
        if not agent:
            return _serve_forever(settings, port, name)
        url = stack.enter_context(running_proxy(settings, port))
        given = _client_environment(url, issue_token(directory, name))
        done = subprocess.run(agent, env={**_environment_without(key_env), **given}, check=False)
        folder = session_folder(directory, name)
        if (folder / RECORD).exists():
            look = f"`opsassay trace blame view {folder} -o trace.html`, `opsassay trace blame {folder}`"
            say(f"opsassay: recorded in {folder}; next: {look}.")
        else:
            say(f"opsassay: nothing was recorded: {agent[0]} asked no model at OPENAI_BASE_URL or ANTHROPIC_BASE_URL.")
        return done.returncode


@click.command("token")
@click.argument("session")
@click.option("-o", "--output", "directory", type=FOLDER, required=True, help="Folder of the record.")
def token(session: str, directory: Path) -> None:
    """Print a new token; the model calls of a client that uses it are recorded as SESSION in the folder --output."""
    from opsassay.solvers.proxy.tokens import issue_token

    echo(issue_token(directory, session))


def _serve_forever(settings: ProxySettings, port: int, session: str) -> int:
    """Print the environment variables for clients, then serve the proxy until Ctrl-C; return 0."""
    from opsassay.core.logs import configure
    from opsassay.solvers.proxy.running import run_proxy
    from opsassay.solvers.proxy.tokens import issue_token

    configure("proxy", "")

    def ready(listening: int) -> None:
        url = f"http://127.0.0.1:{listening}"
        for name, value in _client_environment(url, issue_token(settings.directory, session)).items():
            echo(f"export {name}={value}")
        say(f"opsassay: proxy on {url}, recording into {settings.directory}; Ctrl-C ends it.")

    run_proxy(settings, port, ready)
    return 0


def _client_environment(url: str, token: str) -> dict[str, str]:
    """Return the environment variables that send OpenAI and Anthropic clients to *url* with *token*."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": token, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": token
    }  # fmt: skip


def _environment_without(key_env: str) -> dict[str, str]:
    """Return the environment variables without *key_env*, so that the agent never sees the real key."""
    return {name: value for name, value in os.environ.items() if name != key_env}


def _make_policy(replay: Path | None, by: Any, intervene: Path | None) -> Callable[[], Policy]:
    """Return a factory of the proxy's policy: record; replay a session, matched *by*; or edit a step (*intervene*)."""
    from opsassay.core.errors import UserError
    from opsassay.core.schema.files import load_yaml
    from opsassay.solvers.proxy.exchanges import read_session
    from opsassay.solvers.proxy.policies import Intervene, Record, Replay, StepIntervention

    if replay is None:
        if intervene is not None:
            raise UserError("--intervene edits a step of a recorded session; name it with --replay.")
        return Record
    recorded = read_session(replay)
    if intervene is None:
        return lambda: Replay(recorded, by)
    intervention = load_yaml(intervene, StepIntervention)
    return lambda: Intervene(recorded, intervention)
