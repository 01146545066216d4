"""Registered agents: built-in ones by name, uploaded bundles run in the sandbox, and self-hosted ones."""

from __future__ import annotations

import shutil
import time
import unicodedata
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, Field
from sqlalchemy import Connection, func, insert, select

from opsassay.core.errors import UserError
from opsassay.core.schema.base import Written
from opsassay.evals.runner.domain import DOMAINS
from opsassay.evals.runner.ranking import ORACLE
from opsassay.server.access import ForbiddenError, User, new_id
from opsassay.server.artefacts import Artefacts, unpack
from opsassay.server.database import AGENTS
from opsassay.server.events import append
from opsassay.server.index import note
from opsassay.server.task_info import LEVEL_OF
from opsassay.server.task_sets import USUAL_BASELINES
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.agents.limits import Limits

AGENT_YAML = "agent.yaml"
_FOLDER = "agents"
LEVELS: Mapping[str, str] = {"any": "all", **LEVEL_OF}
"""The tasks for an agent of each level, as a word."""


def _require_domain(name: str) -> str:
    """Return *name* if it is a domain; raises ValueError naming the domains."""
    if name not in DOMAINS.names():
        raise ValueError(f"there is no such domain; choose from {', '.join(DOMAINS.names())}")
    return name


DomainName = Annotated[str, Field(max_length=40), AfterValidator(_require_domain)]


class AgentForm(Written):
    """What is said of an agent when it is registered (Table 8 of ITBench)."""

    name: str = Field(min_length=1, max_length=80, pattern=r"^[\w][\w .()+-]*$")
    kind: Literal["built_in", "bundle", "self_hosted"] = Field(
        description="run by name, run from an upload in our seal, or run by its owner"
    )
    level: Literal["any", "beginner", "intermediate", "expert"] = Field(
        default="any", description="which tasks it is given: easy, medium or hard ones, or all of them"
    )
    domains: tuple[DomainName, ...] = Field(min_length=1)
    source: str = Field(
        default="",
        max_length=200,
        description="of a built-in one its name, as in a plan; of one that ITBench's words registered its scenario_class",
    )


def register(
    connection: Connection, state: Path, artefacts: Artefacts, user: User, form: AgentForm, bundle: bytes | None
) -> str:
    """Register the agent of *form* for *user* and return its id; raises UserError for a form that is not allowed.

    Its files go to *state*, the server's folder; for the kind "bundle" they come from the tar *bundle*, and *artefacts*
    stores that tar.
    """
    _require_own_name(connection, user, form.name)
    if form.kind == "bundle" and bundle is None:
        raise UserError("A bundle has to be uploaded: a tar with agent.yaml and the files of the agent.")
    if form.kind == "built_in" and (not form.source or any(c in form.source for c in "/\\") or form.source[:1] == "."):
        raise UserError("Name the built-in agent or method in `source`, as in a plan; files are uploaded as a bundle.")
    if form.kind == "built_in" and form.source.endswith((".yaml", ".yml", ".py")):
        raise UserError("A file is no built-in agent; upload it as a bundle.")
    if form.kind == "built_in" and ":" in form.source.removeprefix(ORACLE):
        raise UserError("A module is no built-in agent: it would run as the platform; upload it as a bundle.")
    if form.kind == "built_in" and form.source.startswith(ORACLE):
        user.require()  # who knows the truth is for whoever runs the platform
    agent, source = new_id(), form.source
    if form.kind != "built_in":
        kept = select(func.count()).where(AGENTS.c.owner_id == user.id, AGENTS.c.kind != "built_in")
        user.require_uploads_left(connection.execute(kept).scalar_one(), "agents")
    if form.kind == "bundle":
        assert bundle is not None
        _require_harmless(user, _unpack_bundle(state, agent, bundle))
        source = artefacts.keep(bundle)
    elif form.kind == "self_hosted":
        _write_relay(state, agent, form.name)
    row = {
        "id": agent, "owner_id": user.id, "name": form.name, "kind": form.kind, "level": form.level,
        "domains": list(form.domains), "source": source, "created_ns": time.time_ns(),
    }  # fmt: skip
    connection.execute(insert(AGENTS).values(**row))
    note(state, "agents", [row])
    append(connection, "agent registered", agent, {"name": form.name, "kind": form.kind, "source": source})
    return agent


def fold_lookalikes(name: str) -> str:
    """Return *name* normalised such that names that look alike (case, spaces, similar letters) are equal."""
    from confusable_homoglyphs.confusables import confusables_data

    def letter(one: str) -> str:
        alike = {entry["c"] for form in {one, one.upper()} for entry in confusables_data.get(form, ())}
        plain = {text.casefold() for text in (one, *alike) if text.isascii() and text.isalnum()}
        return max(plain, key=lambda text: (len(text), text), default=one)

    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter(one) for one in folded if one.isalnum())


def _require_own_name(connection: Connection, user: User, name: str) -> None:
    """Raise UserError when *name* looks like another agent's or, unless *user* is an admin, a baseline's."""
    others = connection.execute(select(AGENTS.c.name)).scalars().all()
    if taken := next((one for one in others if fold_lookalikes(one) == fold_lookalikes(name)), None):
        raise UserError(f"There is an agent {taken!r} already, which {name!r} looks like; choose another name.")
    known = {fold_lookalikes(one.removeprefix(ORACLE)) for names in USUAL_BASELINES.values() for one in names}
    if user.role != "admin" and (
        fold_lookalikes(name) in known or fold_lookalikes("baseline of") in fold_lookalikes(name)
    ):
        raise UserError(f"{name!r} looks like a baseline of the platform; choose another name.")


def agent_of(connection: Connection, user: User, agent: str) -> Mapping[str, Any]:
    """Return the row of the agent with the id *agent*; raises ForbiddenError unless *user* owns it."""
    row = connection.execute(select(AGENTS).where(AGENTS.c.id == agent)).mappings().first()
    if row is None or not user.owns(row["owner_id"]):
        raise ForbiddenError("There is no such agent, or it is not yours.")
    return dict(row)


def planned(state: Path, artefacts: Artefacts, agent: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return (name in a run plan, further plan fields) of *agent*, a row; its files are in *state*, else *artefacts*."""
    if agent["kind"] == "built_in":
        return str(agent["source"]), {}
    folder = state / _FOLDER / agent["id"]
    if agent["kind"] == "bundle" and not folder.exists():  # a state folder without what follows from artefacts
        _unpack_bundle(state, agent["id"], artefacts.read(agent["source"]))
    sealing = "required" if agent["kind"] == "bundle" else "off"
    return str((folder / AGENT_YAML).absolute()), {"settings": {"sealing": sealing}}


def _unpack_bundle(state: Path, agent: str, bundle: bytes) -> Path:
    """Unpack the tar *bundle* into the folder of *agent* and return it; raises UserError without agent.yaml."""
    folder = state / _FOLDER / agent
    unpack(bundle, folder)
    if not (folder / AGENT_YAML).is_file():
        shutil.rmtree(folder)
        raise UserError(f"The bundle has no {AGENT_YAML} at its top; `opsassay new agent NAME` writes one.")
    return folder


def _require_harmless(user: User, folder: Path) -> None:
    """Raise UserError, and remove *folder*, when the agent in it requests machine folders, an image or high limits."""
    try:
        agent = CommandAgent(folder / AGENT_YAML)
        list(agent.each_file())
        if agent.file.readable:
            raise UserError("The agent asks for folders of the machine (readable); bring in the bundle what it needs.")
        if agent.file.image and user.role != "admin":
            raise UserError(
                "The agent names a container image of the machine (image); an administrator registers those."
            )
        _require_default_limits(agent.file.limits)
    except Exception:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _require_default_limits(limits: Limits) -> None:
    """Raise UserError if *limits* (time, memory, requests) exceed the default ones."""
    usual = Limits()
    for name in sorted(limits.model_fields_set):
        asked, most = getattr(limits, name), getattr(usual, name)
        if most is not None and asked > most:
            raise UserError(
                f"The agent asks for limits.{name} {asked:g}, and a bundle gets {most:g} at most; ask less."
            )


def _write_relay(state: Path, agent: str, name: str) -> None:
    """Write the program and agent.yaml that run in place of the self-hosted agent *name* with the id *agent*."""
    folder = state / _FOLDER / agent
    folder.mkdir(parents=True)
    (folder / "relay.py").write_text(files("opsassay.server").joinpath("relay.py").read_text(encoding="utf-8"))
    described = {
        "agent": name,
        "command": ["{python}", "{agent}/relay.py", "{prompt}", "{tools}"],
        "files": ["relay.py"],
        "needs": ["mcp"],
        "limits": {"seconds": 3600},
    }
    (folder / AGENT_YAML).write_text(yaml.safe_dump(described, sort_keys=False), encoding="utf-8")
