"""A group with a default command: ``opsassay blame TRACE`` and ``opsassay blame bench DIR``."""

from __future__ import annotations

from typing import Any

import click


class DefaultGroup(click.Group):
    """A group that runs the command *default* for arguments that do not begin with the name of another one."""

    def __init__(self, *args: Any, default: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command's name before arguments that name none; nothing at all shows the help."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            args = [self.default, *args]
        return super().parse_args(ctx, args)
