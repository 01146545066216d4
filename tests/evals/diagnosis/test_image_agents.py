"""Agents in container images, with a real engine: the image's files are its root in the seal, and nothing else changes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from evals.commands import GOOD
from opsassay.core.errors import ConfigError, OpsAssayError, RefusedError, UserError
from opsassay.core.schema.run import RunStatus
from opsassay.evals.diagnosis.setups.agents import setup_of
from opsassay.evals.diagnosis.solve import run_agent
from opsassay.evals.diagnosis.tasks import IncidentItem
from opsassay.evals.runner.store import RunStore, read_run
from opsassay.evals.runner.tool_servers import PlannedTools, tool_servers
from opsassay.solvers.agents import images
from opsassay.solvers.agents.command import CommandAgent
from opsassay.solvers.sandbox import sealing_refusal
from telemetry.packs import make_pack

IMAGE = "localhost/image-agent:1"
PROGRAMS = ("sh", "cat", "ls", "id", "env")

pytestmark = [
    pytest.mark.skipif(shutil.which("podman") is None, reason="needs podman (apt-get install podman)"),
    pytest.mark.skipif(sealing_refusal() is not None, reason=f"this machine cannot seal: {sealing_refusal()}"),
]


def root_of_an_image(folder: Path) -> Path:
    """Return a small root: a shell and a few programs with their libraries, and files that only the image has."""
    for name in PROGRAMS:
        program = Path(str(shutil.which(name))).resolve()
        libraries = re.findall(r"(/\S+)", subprocess.check_output(["ldd", program], text=True))
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        shutil.copy(program, folder / "bin" / name)
        for library in libraries:
            (folder / library[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, folder / library[1:])
    for name, text in {
        "opt/model/weights": "7",
        "etc/mine.conf": "mine",
        "etc/hosts": "theirs",
        "run/left": "x",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "opt/model/weights").chmod(0o600)
    return folder


def make_image(folder: Path, tag: str = IMAGE) -> None:
    archive = folder.with_suffix(".tar")
    with tarfile.open(archive, "w") as made:
        made.add(folder, ".")
    changes = ["--change", "ENV MODEL_HOME=/opt/model", "--change", "ENV LANG=xx", "--change", "ENV PATH=/bin"]
    subprocess.run(["podman", "import", "-q", *changes, archive, tag], check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """An engine with a store of its own, and a cache of its own."""
    folder = tmp_path_factory.mktemp("engine")
    storage = f'[storage]\ndriver = "vfs"\nrunroot = "{folder}/run"\ngraphroot = "{folder}/graph"\n'
    (folder / "storage.conf").write_text(storage)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONTAINERS_STORAGE_CONF", str(folder / "storage.conf"))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.setattr(images, "ENGINES", ("podman",))
        make_image(root_of_an_image(folder / "root"))
        yield folder


@pytest.fixture(scope="module")
def item(tmp_path_factory):
    return IncidentItem.from_datapack(make_pack(tmp_path_factory.mktemp("pack") / "p", error_in="cart"))


def agent_in(folder: Path, script: str, **further) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "answer.json").write_text(json.dumps(GOOD))
    command = ["sh", "-c", script, "sh", "{answer}", "{agent}/answer.json"]
    described = {"agent": "boxed", "image": IMAGE, "command": command, "files": ["answer.json"], **further}
    (folder / "agent.yaml").write_text(json.dumps(described))
    return str(folder / "agent.yaml")


def containers() -> str:
    return subprocess.check_output(["podman", "ps", "-aq"], text=True)


def test_it_runs_in_the_files_of_its_image_and_sees_nothing_of_the_machine(engine, item, tmp_path):
    script = (
        "ls / /etc /opt >&2; cat /opt/model/weights /etc/mine.conf /etc/hosts >&2; id -u >&2; env >&2; "
        "ls /run /usr/bin /root 2>&1 >&2; cat $2 > $1"
    )
    setup = setup_of(agent_in(tmp_path / "agent", script), sealing="required")
    run_dir = run_agent(RunStore(tmp_path / "store"), item, setup)
    run, said = read_run(run_dir), (run_dir / "solver.log").read_text()
    assert (run.status, run.isolation, run.error) == (RunStatus.DONE, "sealed", None), said
    assert "7mine127.0.0.1 localhost sealed" in said
    assert {"MODEL_HOME=/opt/model", "PATH=/bin", "LANG=C.UTF-8", "HOME=/work"} <= set(said.split())
    assert {"opsassay-agent", "model"} <= set(said.split())
    assert "left" not in said
    assert str(Path.cwd()) not in said
    assert "ls: cannot access '/usr/bin'" in said, "the machine's programs are seen"
    assert containers() == ""


def test_another_image_of_the_name_is_another_solver(engine, tmp_path):
    path = Path(agent_in(tmp_path / "agent", "true"))
    before = CommandAgent(path).source_hash
    assert CommandAgent(path).source_hash == before
    root = root_of_an_image(tmp_path / "root")
    (root / "opt/model/weights").write_text("8")
    make_image(root, "localhost/image-agent:2")
    other = Path(agent_in(tmp_path / "agent", "true", image="localhost/image-agent:2"))
    assert CommandAgent(other).source_hash != before
    assert CommandAgent(other).image.id != CommandAgent(Path(agent_in(tmp_path / "b", "true"))).image.id


def test_what_a_killed_process_was_unpacking_goes_at_the_next_start(engine, tmp_path):
    image = images.find_image(IMAGE)
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = tmp_path / "images" / f".{gone.pid}-x"
    left.mkdir(parents=True)
    subprocess.run(["podman", "create", "--name", f"{images.CONTAINER}{gone.pid}-x", image.id, "none"], check=True)
    folder = image.unpacked(tmp_path)
    assert (folder / "opt/model/weights").read_text() == "7"
    assert (folder / "opt/model/weights").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in folder.parent.iterdir()] == [image.id]
    assert containers() == ""


def test_a_failed_export_leaves_nothing(engine, tmp_path, monkeypatch):
    image = images.find_image(IMAGE)
    monkeypatch.setattr(images, "MOST_BYTES", 1000)
    with pytest.raises(UserError, match="has more than 1,000 bytes"):
        image.unpacked(tmp_path)
    assert not list((tmp_path / "images").iterdir())
    assert containers() == ""
    with pytest.raises(OpsAssayError, match="podman does not unpack"):
        images.ContainerImage("podman", "odd", "0" * 64, {}).unpacked(tmp_path)
    assert not list((tmp_path / "images").iterdir())


def test_an_image_that_is_not_here_or_not_sealed_is_refused_before_anything_runs(engine, tmp_path):
    with pytest.raises(UserError, match="no container image 'localhost/none' on this machine"):
        setup_of(agent_in(tmp_path / "a", "true", image="localhost/none"))
    with pytest.raises(RefusedError, match="runs sealed only"):
        setup_of(agent_in(tmp_path / "b", "true"), sealing="off")
    with pytest.raises(ConfigError, match="leave out one of them"):
        CommandAgent(Path(agent_in(tmp_path / "c", "true", remote=True)))
    with pytest.raises(ConfigError, match="names an image"):
        tool_servers([PlannedTools(mcp=agent_in(tmp_path / "d", "true"))], tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_links_and_modes_of_an_image_reach_nothing_outside_it(engine, item, tmp_path):
    root = root_of_an_image(tmp_path / "root")
    (root / "etc/passwd_of_the_machine").symlink_to("/old/etc/shadow")
    (root / "opt/up").symlink_to("../../../../../../etc")
    (root / "work").symlink_to("/opt")
    (root / "bin/id").chmod(0o6755)
    make_image(root, "localhost/image-agent:3")
    script = "cat /etc/passwd_of_the_machine /opt/up/shadow >&2; ls -l /bin/id >&2; cat $2 > $1"
    setup = setup_of(agent_in(tmp_path / "agent", script, image="localhost/image-agent:3"), sealing="required")
    run_dir = run_agent(RunStore(tmp_path / "store"), item, setup)
    said = (run_dir / "solver.log").read_text()
    assert read_run(run_dir).status == RunStatus.DONE, said
    assert said.count("No such file") == 2
    assert "root:" not in said
    assert "-rwxr-xr-x" in said
