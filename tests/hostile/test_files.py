"""Files of others are plain files: a link is not followed, a FIFO does not hold the reader up."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from opsassay.core.errors import OpsAssayError
from opsassay.core.untrusted import read_plain
from opsassay.evals.diagnosis.environment import opaque_view
from opsassay.solvers.proxy.formats.finding import read_traces
from opsassay.telemetry.datapack import Datapack
from telemetry.packs import make_pack

CLASS = "8 links and odd files"
NAMES = ("env.json", "incident.json", "normal_traces.parquet", "abnormal_logs.parquet", "abnormal_metrics.parquet")


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    return make_pack(tmp_path / "p").path


def replaced(path: Path, how: str, outside: Path) -> None:
    kept = path.read_bytes()
    path.unlink()
    if how == "a link to a file of the machine":
        path.symlink_to(outside)
    elif how == "a link to the same content":
        (path.parent.parent / "same").write_bytes(kept)
        path.symlink_to(path.parent.parent / "same")
    elif how == "a link to nothing":
        path.symlink_to("/nonexistent/x")
    elif how == "a link to itself":
        path.symlink_to(path)
    elif how == "a FIFO":
        os.mkfifo(path)
    else:
        path.mkdir()


HOW = (
    "a link to a file of the machine", "a link to the same content", "a link to nothing", "a link to itself", "a FIFO",
    "a folder",
)  # fmt: skip


@pytest.mark.sampled
@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", NAMES)
def test_a_pack_is_of_plain_files(pack: Path, outside: Path, name: str, how: str) -> None:
    Datapack.open(pack)  # the control
    replaced(pack / name, how, outside)
    with pytest.raises(OpsAssayError) as refused:
        Datapack.open(pack)
    assert "73190" not in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_became_a_link_is_not_copied_into_a_view(pack: Path, outside: Path, name: str) -> None:
    opened = Datapack.open(pack)
    with opaque_view(opened) as folder:
        assert any(folder.rglob("env.json"))
    if name == "incident.json":
        pytest.skip("a view writes its own")
    replaced(pack / name, HOW[0], outside)
    with pytest.raises(OpsAssayError), opaque_view(opened):
        pass


@pytest.mark.parametrize("name", ["t.json", "t.eval"])
@pytest.mark.parametrize("how", HOW[:1] + HOW[2:5])
def test_a_trace_is_a_plain_file(tmp_path: Path, outside: Path, name: str, how: str) -> None:
    path = tmp_path / "traces" / name
    path.parent.mkdir()
    shutil.copy(outside, path)
    assert b"73190" in read_plain(path, 1000)  # the control
    replaced(path, how, outside)
    with pytest.raises((OpsAssayError, OSError)) as refused:
        read_traces(path)
    assert "73190" not in str(refused.value)
