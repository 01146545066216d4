"""Groups of commands; a command is imported when it is used. Also the next command that the help suggests."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

import click

from opsassay.cli.output import TYPED, say
from opsassay.cli.tree import COMMANDS, GROUPS, STAGES, about, children, nearest_command, renamed_command

_MOST = 200
"""Most entries of a folder that are inspected."""


def next_command() -> str:
    """Return the command to suggest: `opsassay demo` when nothing is recorded here, else one to view the latest store."""
    store = _latest_store()
    return "opsassay demo" if store is None else f"opsassay view {store}"


def _latest_store() -> Path | None:
    """Return the most recently changed store in the working folder, below it or in `opsassay-out`; None without one."""
    places = [Path(), *_list_folders(Path()), *_list_folders(Path("opsassay-out"))]
    return max(filter(_is_store, places), key=lambda place: place.stat().st_mtime, default=None)


def _list_folders(parent: Path) -> list[Path]:
    """Return up to `_MOST` folders directly in *parent*, [] when it cannot be read."""
    try:
        with os.scandir(parent) as entries:
            return [parent / one.name for one, _ in zip(entries, range(_MOST), strict=False) if one.is_dir()]
    except OSError:
        return []


def _is_store(folder: Path) -> bool:
    """Return whether *folder* holds runs (attempts.jsonl) or incidents with their truth."""
    return (folder / "attempts.jsonl").is_file() or ((folder / "incidents").is_dir() and (folder / "truth").is_dir())


class CommandGroup(click.Group):
    """The group of commands named *path*, such as "trace export"; "" is the top level."""

    def __init__(self, *args: Any, path: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.path = path

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names of this group's commands and groups, without names that were renamed."""
        return [name.removeprefix(f"{self.path} ") for name in children(self.path)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the command or group *cmd_name* of this group; None for an unknown name."""
        name = f"{self.path} {cmd_name}".strip()
        if name in COMMANDS:
            return load(name)
        return CommandGroup(name, path=name, help=GROUPS[name]) if name in GROUPS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return (name, command, rest) for *args*, by a present or former name; a usage error suggests the nearest name."""
        if not self.path and (found := renamed_command(args)):
            old, new = found
            if not ctx.resilient_parsing:
                say(f"`opsassay {old}` is now `opsassay {new}`.")
            ctx.meta[TYPED] = found
            args = [*new.split(), *args[len(old.split()) :]]
        word, *rest = args
        name = f"{self.path} {word}".strip()
        if name in COMMANDS and rest and f"{name} {rest[0]}" in COMMANDS:
            word, rest = f"{word} {rest[0]}", rest[1:]
        command = self.get_command(ctx, word)
        if command is None and not ctx.resilient_parsing:
            near = nearest_command(self.path, word)
            way_out = f"did you mean {near!r}?" if near else f"see `opsassay {self.path} --help`.".replace("  ", " ")
            ctx.fail(f"There is no command {name!r}; {way_out}")
        return word, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write this group's commands into the help, at the top level by stages of work, without importing any."""
        parts = {"Commands": children(self.path)} if self.path else STAGES
        width = max(len(name.removeprefix(f"{self.path} ")) for names in parts.values() for name in names)
        for title, names in parts.items():
            with formatter.section(title):
                formatter.write_dl([(name.removeprefix(f"{self.path} ").ljust(width), about(name)) for name in names])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the suggested next command after the help of the top-level group."""
        super().format_epilog(ctx, formatter)
        if not self.path:
            formatter.write(f"\nNext: {next_command()}\n")


def load(name: str) -> click.Command:
    """Import and return the command *name*, such as "incident export"; its help also lists commands below that name."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    command: click.Command = getattr(importlib.import_module(f"opsassay.cli.{module}"), attribute or "command")
    if further := children(name):
        width = max(map(len, further))
        lines = (f"  opsassay {one.ljust(width)}  {about(one)}" for one in further)
        command.epilog = "\n".join(("\b", "Further commands:", *lines))
    return command
