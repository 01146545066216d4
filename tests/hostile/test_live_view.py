"""The pages over stores: nobody without the key reads them, and no text, name or file of a store gets out of its place."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from opsassay.cli import run as command_line
from opsassay.evals.runner.store import RunStore
from opsassay.ui.browsing.exporting import export
from opsassay.ui.browsing.site import StorePages
from opsassay.ui.browsing.verdicts import StoredVerdicts
from opsassay.ui.browsing.watching import Watcher
from opsassay.ui.page import asset
from ui.stores import begun, ended, finish, two_solvers

CLASS = "21 the live view"

SECRET = "of-the-machine-73190"
NASTY = {
    "markup": "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "an attribute": '" onmouseover="alert(1)" x="',
    "a template": "{{ 7*191 }}{% raw %}",
    "a terminal": "\x1b[2J\x1b]8;;http://evil.example\x07red",
    "a turned direction": "safe\u202egnp.exe",
    "hidden characters": "a\u200bb\u2066c",
    "a path": "../../../../etc/passwd",
    "a scheme": "javascript:alert(1)",
    "a lone surrogate": "a\\ud800b",
    "another host": "//evil.example/x",
    "long": "x" * 20_000,
}  # fmt: skip


class Served:
    """The command as a process, and what it printed."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "opsassay", "view", *map(str, arguments)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        found = None
        while found is None:
            found = re.search(r"http://127\.0\.0\.1:(\d+)/\?key=(\S+) ", self.process.stderr.readline())
        self.port, self.key = int(found[1]), found[2]
        for _ in range(200):
            with contextlib.suppress(OSError):
                self.ask("/")
                return
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def ask(self, path, method="GET", *, key=True, **headers):
        """Return the status, the text and the headers of one request."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        given = {"Cookie": self.cookie} if key else {}
        try:
            client.request(method, path, headers=given | {k.replace("_", "-"): v for k, v in headers.items()})
            answer = client.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            client.close()

    @property
    def cookie(self):
        return f"opsassay-{self.port}={self.key}"

    def events(self):
        """Return an open stream of events."""
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        client.request("GET", "/events", headers={"Cookie": self.cookie})
        return client, client.getresponse()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(20)
        left = self.process.stderr.read()
        self.process.stderr.close()
        return code, left


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    root = tmp_path_factory.mktemp("view") / "store"
    two_solvers(root, 3)
    return root


@pytest.fixture(scope="module")
def served(store):
    served = Served(store)
    yield served
    served.end()


def a_run(served):
    return "/" + json.loads(served.ask("/index.json")[1])["results"][0]["page"]


@pytest.mark.slow
def test_who_has_the_key_reads_everything(served):
    """The control of all others."""
    status, _, headers = served.ask(f"/?key={served.key}", key=False)
    assert (status, headers["location"]) == (303, "/")
    for path in ("/", "/index.json", a_run(served), "/boards/finops.html", "/compare/finops.good.poor.html"):
        assert served.ask(path)[0] == 200


@pytest.mark.parametrize(
    "path", ["/", "/index.json", "/events", "/boards/finops.html", "/nothing", "/truth/x?reveal=1"]
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_without_the_key_nothing_is_read(served, path, method):
    for headers in ({}, {"Cookie": f"opsassay-{served.port}=guess"}, {"Authorization": f"Bearer {served.key}"}):
        status, text, _ = served.ask(path, method, key=False, **headers)
        assert status == 403
        assert "t-00" not in text
        assert served.key not in text


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "0.0.0.0", "127.0.0.1@evil.example", ""])
@pytest.mark.parametrize("path", ["/", "/events", "/boards/finops.json"])
def test_another_name_of_this_machine_is_not_served(served, host, path):
    status, text, _ = served.ask(path, Host=host)
    assert status == 400
    assert "good" not in text
    assert served.ask("/index.json", Host=f"localhost:{served.port}")[0] == 200


OUTSIDE = ["../{name}", "runs/../../{name}", "..%2f{name}", "%2e%2e/%2e%2e/{name}", "runs/{path}", "{path}", "/{path}", "runs/store.%2e%2e.1.html",
           "runs/store.x/../../../{name}.html", "traces/{path}.html", "runs/a%00.html", "runs/%ff.html", "static/live.js", "index.html%00", "~1.html",
           "index~0000001.html", "index~99999999999.html", "compare/a.b.html", "compare/finops.good.nobody.html", "whole/x.html?reveal=1", "a" * 30_000]  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE)
def test_addresses_lead_to_pages_and_to_no_file(served, outside, path):
    address = "/" + path.format(name=outside.name, path=str(outside).lstrip("/"))
    client = socket.create_connection(("127.0.0.1", served.port), timeout=20)
    with client:
        client.sendall(
            f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {served.cookie}\r\nConnection: close\r\n\r\n".encode()
        )
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert SECRET.encode() not in answer
    assert b"Traceback" not in answer
    assert int(answer.split()[1]) in (200, 400, 404)
    assert b" 200 " not in answer.split(b"\r\n")[0]


def elements_of(page):
    """Return the names of all attributes that a browser would find in *page*."""
    found = set()
    parser = HTMLParser()
    parser.handle_starttag = lambda _, attributes: found.update(name for name, _ in attributes)
    parser.feed(page)
    assert "href" in found
    return found


def exported(root, out):
    """Write the pages over *root* into *out* as the command does; return what could not be shown."""
    watcher = Watcher([root])
    return export(StorePages(lambda: watcher.catalogue, StoredVerdicts(), live=False), out)[1]


@pytest.mark.parametrize("name", NASTY)
def test_what_an_agent_writes_is_text_and_nothing_else(tmp_path, name):
    text = NASTY[name].encode("latin-1", "ignore").decode("unicode_escape") if "surrogate" in name else NASTY[name]
    folder = ended(
        tmp_path, reason=text, error=text, solver=text, task=text, system=text, notes=(text,), spent={text[:500]: 1.0}
    )
    (folder / "solver.log").write_text(text, errors="backslashreplace")
    action = {"tool": text, "arguments": {text: text}, "status": text, "output": text}
    (folder / "actions.jsonl").write_text(json.dumps(action) + "\n")
    ended(tmp_path, solver="control", task=text)
    out = tmp_path / "out"
    assert exported(tmp_path, out) == []
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert all(path.resolve().is_relative_to(out.resolve()) for path in files)
    for path in files:
        assert re.fullmatch(r"[A-Za-z0-9_.~-]{1,250}", path.name)
        page = path.read_text()
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", page)
        assert "1337" not in page
        if path.suffix == ".html":
            scripts = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
            assert set(scripts) <= {asset("static/clock.js"), asset("static/board.js")}
            assert page.count("<script") == len(scripts)
            assert "<img" not in page
            assert not elements_of(page) & {"onmouseover", "onerror"}
            assert not re.search(r'href="(javascript|//|http)', page)
        else:
            json.loads(page)


def planted(root, name):
    """Put something hostile in the place of a file of the run in *root*, and return its folder."""
    folder = ended(root, task="planted")
    target = folder / name
    target.unlink(missing_ok=True)
    return folder, target


FILES = ["run.json", "solver.log", "actions.jsonl", "diagnosis.json", "trace.jsonl", "verdicts/default.json"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["link", "fifo", "folder", "noise", "deep", "huge number"])
def test_files_that_are_none_cost_their_own_part_of_a_page(tmp_path, outside, name, kind):
    two_solvers(tmp_path, 2)
    _, target = planted(tmp_path, name)
    if kind == "link":
        target.symlink_to(outside)
    elif kind == "fifo":
        os.mkfifo(target)
    elif kind == "folder":
        target.mkdir()
    else:
        target.write_bytes(
            {"noise": os.urandom(5000), "deep": b"[" * 200_000, "huge number": b'{"a": 1e999, "started_ns": 1e400}\n'}[
                kind
            ]
        )
    exported(tmp_path, tmp_path / "out")
    assert "t-01" in (tmp_path / "out" / "index.html").read_text()
    assert [path for path in (tmp_path / "out").rglob("*.*") if SECRET in path.read_text()] == []


def test_a_cell_in_the_log_that_is_a_path_leads_nowhere(tmp_path):
    root = tmp_path / "store"
    two_solvers(root, 2)
    away = ended(tmp_path / "other", task=SECRET)
    (root / "runs" / "linked").symlink_to(away.parent)
    watcher = Watcher([root])
    lines = [{"event": "ended", "cell": f"../../other/runs/{away.parent.name}", "attempt": 1}, {"event": "ended", "cell": "..", "attempt": "../x"},
             {"event": "ended", "cell": ["a"], "attempt": None}, {"event": 1}, {"event": "ended", "cell": "\0", "attempt": 1},
             {"event": "ended", "cell": "linked", "attempt": 1}]  # fmt: skip
    with (root / "attempts.jsonl").open("a") as log:
        log.writelines(f"{json.dumps(line)}\n" for line in lines)
    assert [one.run.item for store in watcher._stores for _, one in store.follow()] == []
    assert {one.run.item for one in Watcher([root]).catalogue.runs} == {"t-00", "t-01"}


@pytest.mark.slow
def test_beginnings_and_ends_come_within_a_second_and_the_first_page_has_them(tmp_path):
    two_solvers(tmp_path, 2)
    served = Served(tmp_path)
    try:
        client, stream = served.events()
        assert stream.headers["content-type"].startswith("text/event-stream")
        time.sleep(0.5)
        began = time.monotonic()
        folder, run = begun(tmp_path, task="<b>new\u202e")
        first = next_event(stream)
        assert time.monotonic() - began < 2  # the bar is one second; a busy machine gets another
        assert (first["event"], first["task"], first["status"]) == ("begun", "<b>new⟨U+202E⟩", "running")
        assert json.loads(served.ask("/index.json")[1])["running"][0]["page"] == first["run"]
        finish(tmp_path, folder, run)
        assert (next_event(stream)["event"], json.loads(served.ask("/index.json")[1])["running"]) == ("ended", [])
        client.close()
    finally:
        served.end()


def next_event(stream):
    quiet = 0
    while (line := stream.readline()) and quiet < 3:  # a comment every ten seconds
        if line.startswith(b"data: "):
            return json.loads(line[6:])
        quiet += line.startswith(b":")
    raise AssertionError(f"the stream has ended, or nothing came in it: {line}")


@pytest.mark.slow
def test_who_follows_again_hears_what_was_missed(tmp_path):
    ended(tmp_path)
    served = Served(tmp_path)
    try:
        client, stream = served.events()
        for at in range(3):
            begun(tmp_path, task=f"new-{at}")
        assert [next_event(stream)["task"] for _ in range(3)] == ["new-0", "new-1", "new-2"]
        client.close()
        client = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
        client.request("GET", "/events", headers={"Cookie": served.cookie, "Last-Event-ID": "1"})
        stream = client.getresponse()
        assert [next_event(stream)["task"] for _ in range(2)] == ["new-1", "new-2"]
        client.close()
    finally:
        served.end()


@pytest.mark.slow
def test_open_streams_do_not_keep_the_server_from_ending_and_are_bounded(tmp_path):
    ended(tmp_path)
    served = Served(tmp_path)
    streams = [served.events() for _ in range(21)]
    assert [stream.status for _, stream in streams] == [200] * 20 + [503]
    assert served.ask("/")[0] == 200
    for client, _ in streams[:5]:
        client.close()
    began = time.monotonic()
    _, left = served.end()
    assert time.monotonic() - began < 5
    assert "Traceback" not in left
    for client, _ in streams:
        client.close()


@pytest.mark.slow
def test_a_store_that_goes_while_it_is_read_is_no_failure_of_the_server(tmp_path):
    root = tmp_path / "store"
    two_solvers(root, 20)
    served = Served(root)
    try:
        page, over, statuses = a_run(served), threading.Event(), set()

        def reading():
            while not over.is_set():
                for path in ("/", page, "/boards/finops.html", "/solvers/finops.good.json"):
                    statuses.add(served.ask(path)[0])

        reader = threading.Thread(target=reading)
        reader.start()
        time.sleep(0.3)
        shutil.rmtree(root)
        time.sleep(4)
        over.set()
        reader.join()
        assert statuses <= {200, 404, 409}
        assert json.loads(served.ask("/index.json")[1])["stores"][0]["state"] == "the folder is gone"
        ended(root, task="back")
        time.sleep(4)
        assert "back" in served.ask("/index.json")[1]
    finally:
        _, left = served.end()
    assert "Traceback" not in left


def test_wrong_use_is_one_sentence(tmp_path, capsys):
    def run_view(*arguments):
        code = command_line(["view", *map(str, arguments)])
        return code, *capsys.readouterr()

    root = ended(tmp_path / "store").parents[2]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = run_view(root, "--port", taken.getsockname()[1])
    (tmp_path / "file").write_text("x")
    answers = [port, run_view(tmp_path / "none"), run_view(tmp_path / "file"), run_view(root, "--cases", tmp_path / "none"),
               run_view(root, "--export", root), run_view(root, "--export", tmp_path / "file"), run_view(), run_view(root, "--port", "70000")]  # fmt: skip
    for answer in answers:
        assert answer[:2] == (2, "")
        assert "Traceback" not in answer[2]
    assert "cannot be used" in port[2]
    assert len(list(RunStore(root).runs())) == 1


def test_filters_and_pages_that_are_nonsense_are_no_error(served):
    for query in (
        "?domain=%00",
        "?task=" + "x" * 5000,
        "?solver=" + quote("<script>"),
        "?status[]=1",
        "?reveal=1",
        "?page=-1",
    ):
        status, text, _ = served.ask("/" + query)
        assert status == 200
        assert "<script>alert" not in text
        assert 'value="<script>' not in text


def test_pages_may_ask_for_nothing_but_their_own_stream(served):
    for path in ("/", a_run(served), "/boards/finops.html", "/nothing.html"):
        _, text, headers = served.ask(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert ("connect-src 'self'" in policy) == (path == "/")
        scripts = policy.partition("script-src")[2].partition(";")[0].split()
        assert all(re.fullmatch(r"'none'|'sha256-[A-Za-z0-9+/=]+'", script) for script in scripts)
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert served.key not in text
