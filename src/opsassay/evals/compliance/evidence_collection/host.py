"""Runs playbooks: real ansible-core over a local connection, in a sandbox whose root is the test host."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from opsassay.core.errors import UserError
from opsassay.core.extras import install_hint
from opsassay.core.schema.files import YAML_LOADER
from opsassay.evals.compliance.evidence_collection.evidence import LIMITS, CollectedEvidence, collected_in
from opsassay.evals.compliance.hosts.worlds import BIN, HostWorld
from opsassay.solvers.sandbox import Ended, Sandbox, SandboxLimits, python_path

MAX_DEPTH = 60


def playbook_problem(text: str) -> str | None:
    """Return why *text* is no Ansible playbook (a YAML list of plays), None when it is; no expression is evaluated."""
    try:
        if _is_too_deep(text):
            return f"it nests deeper than {MAX_DEPTH}"
        found = yaml.compose(text, Loader=YAML_LOADER)
    except (yaml.YAMLError, ValueError) as error:
        return f"it is no YAML: {' '.join(str(error).split())[:300]}"
    if not isinstance(found, yaml.SequenceNode) or not found.value:
        return "it is no list of plays"
    for play in found.value:
        keys = [key.value for key, _ in play.value] if isinstance(play, yaml.MappingNode) else []
        if "hosts" not in keys:
            return f"line {play.start_mark.line + 1}: a play has no hosts"
    return None


def _is_too_deep(text: str) -> bool:
    """Whether the YAML nests deeper than `MAX_DEPTH`."""
    depth = 0
    for event in yaml.parse(text, Loader=YAML_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            return True
    return False


PLAYBOOK = "playbook.yml"
TARGET = "target"
_INVENTORY = f"""\
[{TARGET}]
host
[all:vars]
ansible_connection=local
ansible_become=false
ansible_python_interpreter={{python}}
"""
_PACKAGES = ("ansible", "jinja2", "markupsafe", "yaml", "packaging", "resolvelib", "cryptography", "cffi", "pycparser")
_LIBRARY = "/opt/opsassay-ansible"
_SETTINGS = {
    "ANSIBLE_HOME": "/tmp/ansible",  # noqa: S108 - the seal's own
    "ANSIBLE_REMOTE_TEMP": "/tmp/ansible/remote",  # noqa: S108
    "ANSIBLE_LOCAL_TEMP": "/tmp/ansible/local",  # noqa: S108
    "ANSIBLE_LOCALHOST_WARNING": "False",
    "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
    "ANSIBLE_RETRY_FILES_ENABLED": "False",
    "ANSIBLE_NOCOLOR": "1",
    "ANSIBLE_PIPELINING": "True",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONPATH": _LIBRARY,
    "PYTHONWARNINGS": "ignore",
    "LANG": "C.UTF-8",
    "HOME": "/tmp",  # noqa: S108
    "TZ": "UTC",
}


def gather_on_host(files: Mapping[str, bytes], world: HostWorld, limits: SandboxLimits = LIMITS) -> CollectedEvidence:
    """Run the playbook among *files* on a test host; return its evidence. Raises StartError without a sandbox."""
    with TemporaryDirectory(prefix="opsassay-host-") as made:
        end, work = play_on_host(files[PLAYBOOK], world, Path(made), limits)
        return collected_in(work, end)


def play_on_host(playbook: bytes, world: HostWorld, folder: Path, limits: SandboxLimits = LIMITS) -> tuple[Ended, Path]:
    """Run *playbook* with ansible-core in a sandbox whose root is the test host *world*.

    Return how it ended and its work folder, which is in *folder*. Raises StartError without a sandbox, UserError
    without ansible-core.
    """
    view, work, host = (folder / name for name in ("view", "work", "host"))
    for made in (view, work, host):
        made.mkdir()
    for name, text in world.files.items():
        path = host / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)
    python = python_path()
    (view / "inventory.ini").write_text(_INVENTORY.format(python=python), encoding="utf-8")
    (work / PLAYBOOK).write_bytes(playbook)
    search = f"/{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    seal = Sandbox(view, work, {}, {}, limits, {**_SETTINGS, "PATH": search}, readable=_ansible_mounts(), host=host)
    return seal.run([python, "-S", "-m", "ansible.cli.playbook", "-i", "/view/inventory.ini", PLAYBOOK]), work


def _ansible_mounts() -> dict[str, Path]:
    """Return the folders of ansible-core and its dependencies on this machine, by their path in the sandbox."""
    found = {}
    for name in _PACKAGES:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            folder = Path(next(iter(spec.submodule_search_locations)))
            found[f"{_LIBRARY}/{name}"] = folder
            found |= {f"{_LIBRARY}/{one.name}": one for one in folder.parent.glob(f"{name}-*.dist-info")}
    if f"{_LIBRARY}/ansible" not in found:
        raise UserError(f"Playbooks are run with ansible-core, which is not installed; {install_hint('ciso')}.")
    return found
