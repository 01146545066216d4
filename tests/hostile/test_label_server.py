"""The pages of the label audit show truth: nobody reads them, or writes a verdict, but the annotator who started them."""

from __future__ import annotations

import contextlib
import http.client
import re
import signal
import subprocess
import sys
import time
from urllib.parse import urlencode

import pytest

from annotation import systems
from annotation.cascade import Effect, fault, frames, incident
from opsassay.annotation.job import AnnotateJob, run_job
from opsassay.annotation.suites.agreement import read_verdicts
from opsassay.core.schema.incident import Truth
from opsassay.telemetry.content import write_datapack
from opsassay.telemetry.tree import Tree

CLASS = "20 the server of label audits"

CASE, EFFECT = "a" * 16, Effect(own_ms={"payment": 300})
TRUTH = "HTTPResponseDelay at payment"


class Served:
    """The command as a process, and what it printed."""

    def __init__(self, suite, annotator="ada"):
        command = [sys.executable, "-m", "opsassay", "incident", "audit-labels", str(suite), "-a", annotator]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        line = self.process.stderr.readline()
        self.port, self.key = re.search(r"http://127\.0\.0\.1:(\d+)/\?key=(\S+) ", line).groups()
        for _ in range(200):
            with contextlib.suppress(OSError):
                self.ask("GET", "/")
                return
            time.sleep(0.05)
        raise AssertionError("the server does not answer")

    def ask(self, method, path, headers=None, body=None, *, key=False, chunked=False):
        """Return the status, the text and the headers of one request, with the annotator's cookie if *key*."""
        client = http.client.HTTPConnection("127.0.0.1", int(self.port), timeout=20)
        headers = dict(headers or {})
        if key:
            headers.setdefault("Cookie", self.cookie)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent
                client.request(method, path, body, headers, encode_chunked=chunked)
            answer = client.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            client.close()

    @property
    def cookie(self):
        return f"opsassay-{self.port}={self.key}"

    def token(self):
        return re.search(r'name="token" value="([^"]+)"', self.ask("GET", f"/case/{CASE}", key=True)[1]).group(1)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        self.process.stderr.close()


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    tree = Tree(tmp_path_factory.mktemp("labels") / "suite")
    tree.incidents_dir.mkdir(parents=True)
    tree.write_truth(Truth(id=CASE, system="cascade", faults=(fault("HTTPResponseDelay", "payment", EFFECT),)))
    described = incident().model_copy(update={"id": CASE})
    write_datapack(tree.incident_path(CASE), frames(systems.deep(), EFFECT), described, {})
    run_job(AnnotateJob(tree.incident_path(CASE)))
    return tree.root


@pytest.fixture(scope="module")
def served(suite):
    served = Served(suite)
    yield served
    served.end()


@pytest.fixture(scope="module")
def another(suite):
    served = Served(suite, "grace")
    yield served
    served.end()


@pytest.mark.slow
def test_the_annotator_reads_and_writes(served, suite):
    """The control of all others."""
    status, text, headers = served.ask("GET", f"/?key={served.key}")
    assert (status, headers["location"], text) == (303, "/", "")
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=strict" in headers["set-cookie"]
    assert TRUTH in served.ask("GET", f"/case/{CASE}", key=True)[1]
    form = urlencode({"token": served.token(), "node-0": "1", "note": "seen"})
    assert served.ask("POST", f"/case/{CASE}", {"Origin": f"http://127.0.0.1:{served.port}"}, form, key=True)[0] == 303
    assert read_verdicts(suite, "ada")[CASE].note == "seen"


WITHOUT = {
    "no key": {},
    "an empty key": {"query": "?key="},
    "a guess": {"query": "?key=guess"},
    "a key that is no text": {"query": "?key=%ff%fe"},
    "two keys": {"query": "?key=a&key=b"},
    "an empty cookie": {"cookie": "opsassay-{port}="},
    "a guessed cookie": {"cookie": "opsassay-{port}=guess"},
    "a cookie that is no text": {"cookie": "opsassay-{port}=\xff"},
    "the key in another cookie": {"cookie": "opsassay={key}"},
    "the key of another annotator": {"cookie": "opsassay-{port}={other}"},
    "the key as a password": {"authorization": "Bearer {key}"},
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS"])
def test_without_the_key_nothing_is_read(served, another, name, method):
    given = WITHOUT[name]
    fill = {"port": served.port, "key": served.key, "other": another.key}
    headers = {header: given[header].format(**fill) for header in ("cookie", "authorization") if header in given}
    for path in ("/", f"/case/{CASE}", "/nothing"):
        status, text, answered = served.ask(method, path + given.get("query", ""), headers)
        assert status == 403
        assert TRUTH not in text
        assert served.key not in text + str(answered)


HOST = {"another name": "evil.example", "a name that ends well": "evil.localhost", "this machine's name and more": "127.0.0.1.evil.example",
        "an address": "0.0.0.0", "a user": "127.0.0.1@evil.example", "none": "", "a port of words": "127.0.0.1:x"}  # fmt: skip


@pytest.mark.parametrize("name", HOST)
def test_a_page_from_elsewhere_does_not_reach_it_by_a_name_of_its_own(served, name):
    status, text, _ = served.ask("GET", f"/case/{CASE}", {"Host": HOST[name]}, key=True)
    assert status == 400
    assert TRUTH not in text
    assert served.ask("GET", f"/case/{CASE}", {"Host": f"localhost:{served.port}"}, key=True)[0] == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1:{port}", ""]
)
def test_a_page_from_elsewhere_sends_no_verdict(served, suite, origin):
    before = read_verdicts(suite, "ada")
    form = urlencode({"token": served.token(), "note": "forged"})
    status, _, _ = served.ask("POST", f"/case/{CASE}", {"Origin": origin.format(port=served.port)}, form, key=True)
    assert status == 403
    assert read_verdicts(suite, "ada") == before


@pytest.mark.parametrize("token", [None, "", "guess", "\ud800", "é"])
def test_a_form_without_its_token_is_no_verdict(served, suite, token):
    before = read_verdicts(suite, "ada")
    fields = {"note": "forged"} | ({} if token is None else {"token": token})
    status, _, _ = served.ask("POST", f"/case/{CASE}", {}, urlencode(fields, errors="surrogatepass"), key=True)
    assert status == 403
    assert read_verdicts(suite, "ada") == before


@pytest.mark.parametrize(
    "case", ["../../truth/x", "%2e%2e%2f", "..%2f..%2f" + "a" * 16, "b" * 16, "%00", "%ff", "a" * 100_000, "<script>"]
)
def test_other_cases_and_files_are_not_found(served, case):
    status, text, _ = served.ask("GET", f"/case/{case}", key=True)
    assert status in (400, 404)
    assert TRUTH not in text
    assert "<script>" not in text


def test_a_path_of_two_slashes_sends_nobody_elsewhere(served):
    status, _, headers = served.ask("GET", f"//evil.example/?key={served.key}")
    assert status == 303
    assert headers["location"].startswith("/evil.example")


FORMS = {
    "2 MB in one": {"body": b"note=" + b"x" * 2_000_000},
    "2 MB in parts": {"body": [b"note=" + b"x" * 500_000] * 4, "chunked": True, "headers": {"Transfer-Encoding": "chunked"}},
    "too many fields": {"body": "&".join(f"f{i}=1" for i in range(50_000))},
    "a length that is no number": {"body": b"", "headers": {"Content-Length": "many"}},
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_form_without_bounds_is_refused_and_the_server_goes_on(served, suite, name):
    before = read_verdicts(suite, "ada")
    given = FORMS[name]
    status, text, _ = served.ask(
        "POST", f"/case/{CASE}", given.get("headers"), given["body"], key=True, chunked=given.get("chunked", False)
    )
    assert status in (400, 413), text
    assert read_verdicts(suite, "ada") == before
    assert served.ask("GET", "/", key=True)[0] == 200


def test_pages_are_framed_and_kept_by_nobody(served):
    _, _, headers = served.ask("GET", f"/case/{CASE}", key=True)
    assert headers["x-frame-options"] == "DENY"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]
