"""opsassay new agent, method, scenario and plan."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from opsassay.cli.output import FOLDER, echo
from opsassay.core.errors import UserError

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def _class_name(name: str) -> str:
    """Return the Python class name of *name*: "my-agent" gives "MyAgent"."""
    return "".join(part.capitalize() for part in name.split("-"))


@dataclass(frozen=True)
class ExampleTemplate:
    """An example to copy: its *source* path, the (text, replacement) pairs for its name, and the suggested next command."""

    source: str
    named: tuple[tuple[str, Callable[[str], str]], ...]
    next: str


TEMPLATES = {
    "agent": ExampleTemplate(
        "agents/by_mcp", (("agent: by-mcp", "agent: {}".format),), "opsassay agent check {path}/agent.yaml"
    ),
    "method": ExampleTemplate(
        "extending/opsassay_extending/method.py",
        (("class Slowest", lambda name: f"class {_class_name(name)}"), ('"slowest"', '"{}"'.format)),
        "opsassay run diagnose INCIDENTS -m {path}:{class_} -o STORE",
    ),
    "scenario": ExampleTemplate(
        "extending/scenario.yaml", (("id: half-drained-pool", "id: {}".format),), "opsassay task check {path}"
    ),
    "plan": ExampleTemplate("trials/plan.yaml", (), "opsassay run {path} -o STORE"),
}
"""The example of each kind that `opsassay new` copies."""
_KINDS = {"agent": "an agent", "method": "a method", "scenario": "a remediation scenario", "plan": "a plan"}


def examples_folder() -> Path:
    """Return the folder of the examples, in the installed package or at the top of the checkout."""
    package = Path(__file__).parents[2]
    found = next((one for one in (package / "examples", package.parents[1] / "examples") if one.is_dir()), None)
    if found is None:
        raise UserError("The examples did not come with this installation; install OpsAssay from its wheel.")
    return found


def command_for(kind: str) -> click.Command:
    """Return the click command `opsassay new KIND`, which copies an example agent, method, scenario or plan."""

    @click.command(kind, help=f"Write a working example of {_KINDS[kind]}, called NAME, to begin with.")
    @click.argument("name")
    @click.option(
        "-o", "--output", type=FOLDER, default=Path(),
        help="Folder to write into; this one when left out.",
    )  # fmt: skip
    def command(name: str, output: Path) -> None:
        """Copy the example of the command's kind into --output, with names changed to NAME."""
        write_example(kind, name, output)

    return command


def write_example(kind: str, name: str, output: Path) -> None:
    """Copy the example of *kind* into the folder *output*, with its names changed to *name*; raises UserError."""
    template = TEMPLATES[kind]
    if not _NAME.fullmatch(name):
        raise UserError(f"{name!r} is no name; take small letters, digits and dashes, such as my-{kind}.")
    source = examples_folder() / template.source
    stem = name.replace("-", "_") if source.suffix == ".py" else name
    target = output / f"{stem}{source.suffix}"
    if target.exists():
        raise UserError(f"{target} is there already; choose another name.")
    output.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)
    for path in (target,) if target.is_file() else sorted(target.iterdir()):
        text = path.read_text(encoding="utf-8")
        for old, new in template.named:
            text = text.replace(old, new(name))
        path.write_text(text, encoding="utf-8")
    echo(f"Written to {target}. Next: `{template.next.format(path=target, class_=_class_name(name))}`.")


agent, method, scenario, plan = map(command_for, TEMPLATES)
