"""Artefacts: by their content, in a folder as in an object store."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import time

import pytest

from opsassay.core.errors import OperationError, UserError
from opsassay.server.artefacts import Artefacts


@pytest.fixture(params=["folder", "memory", "file"])
def artefacts(request, tmp_path):
    if request.param != "folder":
        pytest.importorskip("fsspec", reason="fsspec is not installed: pip install '.[artefacts]'")
    place = {"folder": tmp_path / "a", "memory": f"memory://{tmp_path.name}", "file": f"file://{tmp_path}/b"}
    return Artefacts(place[request.param])


def test_what_is_kept_is_read_by_its_digest_and_is_one_however_often_it_is_kept(artefacts):
    digest = artefacts.keep(b"evidence")
    assert digest == hashlib.sha256(b"evidence").hexdigest() == artefacts.keep(b"evidence")
    assert artefacts.read(digest) == b"evidence"
    with pytest.raises(OperationError, match="is not there"):
        artefacts.read("0" * 64)


def test_what_was_changed_is_not_handed_out(tmp_path):
    artefacts = Artefacts(tmp_path)
    digest = artefacts.keep(b"evidence")
    (tmp_path / digest[:2] / digest).write_bytes(b"forged")
    with pytest.raises(OperationError, match="not what its name says"):
        artefacts.read(digest)


def test_a_store_of_a_kind_that_is_none_is_one_sentence():
    pytest.importorskip("fsspec")
    with pytest.raises(UserError, match="cannot be kept at cheese://"):
        Artefacts("cheese://moon")


@pytest.mark.long
@pytest.mark.timeout(200)
def test_artefacts_lie_in_a_bucket_of_s3(tmp_path, monkeypatch):
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed: pip install '.[artefacts]'")
    pytest.importorskip("moto", reason="no server of S3: pip install 'moto[server]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name, value in (
        ("ACCESS_KEY_ID", "x"),
        ("SECRET_ACCESS_KEY", "y"),
        ("ENDPOINT_URL", f"http://127.0.0.1:{port}"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with (tmp_path / "moto.log").open("wb") as log:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
    try:
        files = s3fs.S3FileSystem()
        for _ in range(300):
            try:
                files.mkdir("evidence")
                break
            except OSError:
                time.sleep(0.2)
        artefacts = Artefacts("s3://evidence/of/platform")
        digest = artefacts.keep(b"evidence" * 1000)
        assert artefacts.read(digest) == b"evidence" * 1000
        assert files.ls("evidence/of/platform") == [f"evidence/of/platform/{digest[:2]}"]
    finally:
        server.terminate()
        server.wait(30)
    with pytest.raises(OperationError, match="cannot be reached"):
        artefacts.keep(b"more")
