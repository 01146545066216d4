"""A suite is published as a data set, read by `datasets`, and fetched again: from a folder, a tar and a server, checked."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import polars as pl
import pytest
import yaml

from opsassay.annotation.suites import fetch as fetching
from opsassay.cli import run

GOLDEN = Path(__file__).parents[2] / "evals" / "golden" / "diagnosis_store"
ITEM = "28a6d673b4bcc31b"
EXAMPLES = re.findall(
    r"```python\n(.*?)```", (Path(__file__).parents[3] / "docs" / "formats.md").read_text(), re.DOTALL
)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    out = tmp_path_factory.mktemp("published") / "published"
    assert run(["incident", "export", "dataset", str(GOLDEN), "-o", str(out), "--license", "cc-by-4.0"]) == 0
    return out


@pytest.fixture
def copy(published, tmp_path):
    return shutil.copytree(published, tmp_path / "copy")


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fetched(source, out):
    return run(["incident", "fetch", str(source), "-o", str(out)])


def refused(source, tmp_path, capsys):
    """Return what a fetch of *source* says, which fails and leaves nothing."""
    assert fetched(source, tmp_path / "into" / "out") == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, said
    assert not list((tmp_path / "into").glob("*")) + list((tmp_path / "into").glob(".*"))
    return said


def seal(folder):
    """Write SHA256SUMS anew, as who tampers with a data set does."""
    lines = [
        f"{hashlib.sha256(data).hexdigest()}  {name}\n"
        for name, data in files_of(folder).items()
        if name != "SHA256SUMS"
    ]
    (folder / "SHA256SUMS").write_text("".join(lines))


@pytest.mark.slow
def test_datasets_reads_the_folder(published, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    load = partial(datasets.load_dataset, str(published), cache_dir=str(tmp_path / "cache"))
    (row,) = load(split="train").to_list()
    assert row["id"] == ITEM
    assert "store" in row["services"]
    spans = load("abnormal_traces", split=row["id"])
    told = pl.read_parquet(GOLDEN / "incidents" / ITEM / "abnormal_traces.parquet")
    assert spans["span_id"][:] == told["span_id"].to_list()
    head = yaml.safe_load((published / "README.md").read_text().split("---\n")[1])
    assert head["license"] == "cc-by-4.0"
    monkeypatch.chdir(published.parent)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (example,) = [block for block in EXAMPLES if 'load_dataset("published"' in block]
    found: dict = {}
    exec(example, found)
    assert found["spans"].num_rows == spans.num_rows
    names = set(datasets.get_dataset_config_names(str(published)))
    assert (
        names
        == {config["config_name"] for config in head["configs"]}
        >= {"incidents", "normal_traces", "normal_metrics"}
    )


def test_what_is_fetched_is_what_was_published_and_can_be_run(published, tmp_path, capsys):
    assert fetched(published, tmp_path / "out") == 0
    assert files_of(tmp_path / "out") == files_of(published)
    assert "there already" not in capsys.readouterr().out
    assert fetched(published, tmp_path / "out") == 0
    assert "there already" in capsys.readouterr().out
    assert run(["task", "list", str(tmp_path / "out"), "--domain", "diagnosis", "--json"]) == 0
    assert [item["id"] for item in json.loads(capsys.readouterr().out)["items"]] == [ITEM]


def test_without_the_truth_there_is_none(tmp_path):
    assert run(["incident", "export", "dataset", str(GOLDEN), "-o", str(tmp_path / "out"), "--without-truth"]) == 0
    fault = json.loads((GOLDEN / "truth" / ITEM / "truth.json").read_text())["faults"][0]["type"]
    assert not (tmp_path / "out" / "truth").exists()
    assert not [name for name, data in files_of(tmp_path / "out").items() if fault.encode() in data]


@pytest.mark.parametrize("name", ["suite.tar", "suite.tar.gz"])
def test_a_tar_is_fetched(published, tmp_path, name):
    with tarfile.open(tmp_path / name, "w:gz" if name.endswith("gz") else "w") as archive:
        archive.add(published, "small")
    assert fetched(tmp_path / name, tmp_path / "out") == 0
    assert files_of(tmp_path / "out") == files_of(published)


class Server(ThreadingHTTPServer):
    """Serves a folder; *breaks_at* is a path of which half is sent, once."""

    breaks_at = ""
    asked: list[str]


class Handler(SimpleHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        if self.server.breaks_at and self.path.endswith(self.server.breaks_at):
            self.server.breaks_at = ""
            self.send_response(200)
            self.send_header("Content-Length", "1000000")
            self.end_headers()
            self.wfile.write(b"half")
            return
        super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def server(published, tmp_path):
    """A server on which the data set lies as on the Hub and as in a plain folder."""
    hub = tmp_path / "www" / "datasets" / "team" / "small" / "resolve"
    hub.mkdir(parents=True)
    (hub / "main").symlink_to(published)
    (tmp_path / "www" / "plain").symlink_to(published)
    with Server(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "www"))) as httpd:
        httpd.asked = []
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield httpd
        httpd.shutdown()
        thread.join()


def test_the_hub_and_any_server_of_files(server, published, tmp_path, monkeypatch):
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", address)
    for number, source in enumerate(("team/small", f"{address}/datasets/team/small", f"{address}/plain/")):
        assert fetched(source, tmp_path / f"out{number}") == 0
        assert files_of(tmp_path / f"out{number}") == files_of(published)


def test_a_fetch_that_broke_off_goes_on(server, published, tmp_path, capsys):
    address, out = f"http://127.0.0.1:{server.server_port}/plain", tmp_path / "into" / "out"
    server.breaks_at = "abnormal_traces.parquet"
    assert fetched(address, out) != 0
    assert "fetch again" in capsys.readouterr().err
    assert not out.exists()
    before = [path for path in server.asked if not path.endswith(("SHA256SUMS", "abnormal_traces.parquet"))]
    server.asked.clear()
    assert fetched(address, out) == 0
    assert files_of(out) == files_of(published)
    assert before
    assert not set(before) & set(server.asked)
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_a_changed_file_is_refused(copy, tmp_path, capsys):
    (copy / "incidents.parquet").write_bytes(b"PAR1")
    assert "incidents.parquet is not what SHA256SUMS says" in refused(copy, tmp_path, capsys)


def test_a_missing_file_is_refused(copy, tmp_path, capsys):
    (copy / "README.md").unlink()
    assert "README.md, which SHA256SUMS names" in refused(copy, tmp_path, capsys)


@pytest.mark.parametrize("name", ["../out.txt", "/etc/passwd", "a//b", "a\\b", "./a", "x/../../y", "a\x1bb"])
def test_a_name_that_leads_elsewhere_is_refused(copy, tmp_path, capsys, name):
    with (copy / "SHA256SUMS").open("a") as file:
        file.write(f"{'0' * 64}  {name}\n")
    assert "names no file of it" in refused(copy, tmp_path, capsys)


def test_links_are_refused(copy, tmp_path, capsys):
    (copy / "README.md").unlink()
    (copy / "README.md").symlink_to("/etc/hostname")
    seal(copy)
    assert "is a link" in refused(copy, tmp_path, capsys)
    (copy / "README.md").unlink()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a").write_text("a")
    (copy / "more").symlink_to(tmp_path / "elsewhere")
    (copy / "SHA256SUMS").write_text(f"{hashlib.sha256(b'a').hexdigest()}  more/a\n")
    assert "is a link" in refused(copy, tmp_path, capsys)


def tar_of(path, *members):
    with tarfile.open(path, "w:gz") as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def member(name, kind=tarfile.REGTYPE, link=""):
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    "odd",
    [
        member("s/a", tarfile.SYMTYPE, "/etc/passwd"),
        member("s/a", tarfile.LNKTYPE, "s/b"),
        member("s/a", tarfile.CHRTYPE),
        member("s/a", tarfile.FIFOTYPE),
        member("../a"),
        member("/tmp/a"),
    ],
)
def test_what_is_no_plain_file_in_a_tar_is_refused(tmp_path, capsys, odd):
    source = tar_of(tmp_path / "odd.tar.gz", (odd, b""), (member("s/SHA256SUMS"), b""))
    assert "no plain file inside it" in refused(source, tmp_path, capsys)


def test_a_bomb_is_refused(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fetching.tempfile, "tempdir", str(tmp_path))
    source = tar_of(tmp_path / "bomb.tar.gz", (member("s/SHA256SUMS"), b""), (member("s/zeros"), bytes(8 * 2**20)))
    assert source.stat().st_size < 2**15
    assert run(["incident", "fetch", str(source), "-o", str(tmp_path / "out"), "--most-gib", "0.001"]) == 2
    assert "larger than 0.001 GiB" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bomb.tar.gz"]


def test_what_is_no_source_is_said_in_one_sentence(tmp_path, capsys):
    assert "give a folder, a tar" in refused(tmp_path / "nothing", tmp_path, capsys)
    (tmp_path / "text.tar").write_text("no tar")
    assert "cannot be read as a tar" in refused(tmp_path / "text.tar", tmp_path, capsys)
    (tmp_path / "empty").mkdir()
    assert "holds no SHA256SUMS" in refused(tmp_path / "empty", tmp_path, capsys)


def test_a_folder_that_is_something_else_is_not_touched(published, tmp_path, capsys):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    assert fetched(published, tmp_path / "out") == 2
    assert "exists already and is something else" in capsys.readouterr().err
    assert files_of(tmp_path / "out") == {"mine": b"mine"}
