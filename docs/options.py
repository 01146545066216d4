"""Write the tables of options into docs/commands: name, type, default and meaning of each option, from the code.

Run it as `python docs/options.py` after an option has changed. A table stands below the heading of its command.
"""

from __future__ import annotations

import re
from pathlib import Path

import click

from opsassay.cli.groups import load
from opsassay.cli.tree import COMMANDS

PAGES = Path(__file__).parent / "commands"
HEAD = "| option | type | default | meaning |\n| --- | --- | --- | --- |\n"
_HEADING = re.compile(r"^#+ opsassay (.+)$", re.MULTILINE)


def option_table(name: str) -> str:
    """Return the Markdown table of the options of the command *name*; '' when it has none."""
    rows = [_row(option) for option in load(name).params if isinstance(option, click.Option) and not option.hidden]
    return HEAD + "".join(rows) if rows else ""


def page_text(text: str) -> str:
    """Return the page *text* with the table of each command that it has a heading for made anew."""
    parts = _HEADING.split(text)
    made = [parts[0]]
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        heading = re.search(rf"^#+ opsassay {re.escape(name)}$", text, re.MULTILINE)
        assert heading is not None
        made.append(heading[0] + (_with_table(body, option_table(name)) if name in COMMANDS else body))
    return "".join(made)


def _with_table(body: str, table: str) -> str:
    """Return *body* with *table* in place of the one that it has; a new one stands at its end."""
    former = re.search(re.escape(HEAD) + r"(\|.*\n)+", body)
    if former is not None:
        return body[: former.start()] + table + body[former.end() :]
    return body if not table else f"{body.rstrip()}\n\n{table}" + ("\n" if body.endswith("\n\n") else "")


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    cells = (names, _type(option), _default(option), option.help or "")
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


def _type(option: click.Option) -> str:
    if option.is_flag:
        return "flag"
    if isinstance(option.type, click.Choice):
        return ", ".join(f"`{choice}`" for choice in option.type.choices)
    word = option.metavar or option.type.name.removesuffix(" range")
    low, high = getattr(option.type, "min", None), getattr(option.type, "max", None)
    limits = [f"{'over' if option.type.min_open else 'from'} {low:g}"] if low is not None else []
    limits += [f"to {high:g}"] if high is not None else []
    return " ".join((word.lower(), *limits))


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    value = option.to_info_dict()["default"]
    return "" if value is None or value is False or value == () else f"`{value}`"


def main() -> None:
    """Write every page of the commands anew."""
    for page in sorted(PAGES.glob("*.md")):
        page.write_text(page_text(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
