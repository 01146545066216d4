"""Backends that fail, wait or ask for tokens, and imports that are killed: one sentence each, nothing twice, no secrets."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from opsassay.telemetry.tree import Tree
from telemetry.past_incidents.stores import ABNORMAL, NORMAL, SECOND, jaeger, loki, prometheus, serving, tempo
from telemetry.past_incidents.test_reading import START_NS, entries, samples, trees

TOKEN = "tok-5f3a91c7e2"
SERIES = [({"__name__": f"m{n}", "service": "a"}, samples(0, 120)) for n in range(30)]


def command(out, stores, *words):
    urls = [word for name, store in stores.items() for word in (f"--{name}", store.url)]
    program = [sys.executable, "-m", "opsassay", "incident", "import", "backends"]
    return [*program, *urls, "--normal", NORMAL, "--abnormal", ABNORMAL, "-o", str(out), *words]


def run(out, stores, *words, **environment):
    with ExitStack() as stack:
        for store in stores.values():
            stack.enter_context(serving(store))
        return subprocess.run(
            command(out, stores, *words), env={**os.environ, **environment}, capture_output=True, text=True, timeout=100,
            check=False,
        )  # fmt: skip


def everything_in(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def first_times(number, status, **headers):
    """Return what spoils the first *number* requests."""
    return lambda n, _path, _headers: (status, b"wait", headers) if n <= number else None


@pytest.mark.sampled
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_backend_that_is_busy_for_a_while_is_asked_again(tmp_path, status):
    store = loki(entries(20), spoil=first_times(2, status, **{"Retry-After": "1"} if status == 429 else {}))
    began = time.monotonic()
    done = run(tmp_path / "t", {"loki": store})
    assert done.returncode == 0, done.stderr
    assert "loki: 20 entries" in done.stderr
    assert time.monotonic() - began > 1


BAD = {
    "always 500": (lambda *_: (500, b"boom"), "answers 500, also after"),
    "refuses": (lambda *_: (403, b"not for you"), "answers 403 (not for you)"),
    "redirects": (lambda *_: (302, b"", {"Location": "http://127.0.0.1:1/"}), "redirects elsewhere"),
    "slow": (lambda *_: time.sleep(3) or (200, b"{}"), "gives no answer within 1 s"),
    "garbage": (lambda *_: (200, b"<html>hello"), "something that is not JSON"),
    "other form": (lambda *_: (200, {"data": [{"odd": 1}], "status": 7}), "in a form that is not its own"),
    "deep": (lambda *_: (200, b"[" * 100_000), "something that is not JSON"),
}


@pytest.mark.sampled(every=5)
@pytest.mark.parametrize("kind", BAD)
def test_each_failing_backend_gets_one_sentence(tmp_path, kind):
    spoil, expected = BAD[kind]
    spoilt = {
        "prometheus": prometheus(SERIES, spoil=spoil), "loki": loki(entries(9), spoil=spoil),
        "tempo": tempo(trees(3), spoil=spoil),
    }  # fmt: skip
    done = run(tmp_path / "t", spoilt, "-c", "limits.timeout_s=1", "-c", "limits.retry_s=1.2")
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if " at http" in line]
    assert [line.split()[1] for line in lines] == ["prometheus", "loki", "tempo"], done.stderr
    assert all(expected in line and "goes on from here" in line for line in lines), done.stderr
    assert "Traceback" not in done.stderr
    assert Tree(tmp_path / "t").ids() == []


@pytest.mark.slow
def test_nobody_who_answers_is_a_sentence_too(tmp_path):
    store = loki([])
    store.url = "http://127.0.0.1:1"
    done = subprocess.run(
        command(tmp_path / "t", {"loki": store}, "-c", "limits.retry_s=0"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "loki at http://127.0.0.1:1 cannot be reached" in done.stderr


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-c", "limits.total_bytes=9000"], "limits.total_bytes"),
        (["--normal", "yesterday"], "is no window"),
        (["--abnormal", NORMAL], "overlap"),
        (["--root", "a:no_such"], "There is no fault kind 'no_such'"),
        (["-c", "redact.texts=['(']"], "is no regular expression"),
        (["-c", "redact.texts=['a(?!b)']"], "is no regular expression of Rust"),
        (["-c", "limits.speed=1"], "there is no such key"),
        (["--jaeger", "http://user:secret-word@127.0.0.1:1"], "put the token into the environment"),
        (["--jaeger", "http://127.0.0.1:1", "--tempo", "http://127.0.0.1:1"], "the same spans twice"),
        (["--postmortem", "/nowhere"], "/nowhere"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(tmp_path, words, said):
    done = run(tmp_path / "t", {"loki": loki([(n, s, "x" * 500, m) for n, s, _, m in entries(60)])}, *words)
    assert done.returncode in {1, 2}
    assert said in done.stderr
    assert "secret-word" not in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_requests_a_second_are_limited(tmp_path):
    store = loki(entries(40))
    began = time.monotonic()
    done = run(tmp_path / "t", {"loki": store}, "-c", "limits.requests_per_s=10", "-c", "limits.entries=2")
    assert done.returncode == 0, done.stderr
    assert len(store.asked) / (time.monotonic() - began) <= 10


STORES = {
    "prometheus": lambda **knobs: prometheus(SERIES, most_samples=40, **knobs),
    "loki": lambda **knobs: loki(entries(200), **knobs),
    "tempo": lambda **knobs: tempo(trees(60), **knobs),
    "jaeger": lambda **knobs: jaeger(trees(40), **knobs),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_a_killed_import_goes_on_and_asks_for_nothing_that_it_has(tmp_path, name, monkeypatch):
    words = ["-c", "limits.entries=5", "-c", "limits.traces=8", "-c", "limits.at_once=1"]
    whole = run(tmp_path / "whole", {name: STORES[name]()}, *words)
    assert whole.returncode == 0, whole.stderr
    store, out = STORES[name](delay_s=0.03), tmp_path / "cut"
    with serving(store):
        for pages in (3, 8):
            killed = subprocess.Popen(command(out, {name: store}, *words), stdout=-3, stderr=-3)
            while killed.poll() is None and len(list(out.rglob("*.json"))) < pages:
                time.sleep(0.01)
            killed.send_signal(signal.SIGKILL)
            killed.wait()
            assert Tree(out).ids() == []
        done = subprocess.run(command(out, {name: store}, *words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    own = sum(path == "/api/services" for path, _ in store.asked)
    batch = 60 if name == "tempo" else 1  # what a page that was not whole had asked for
    assert store.repeated <= 2 * batch + own
    trees_ = [Tree(folder) for folder in (tmp_path / "whole", out)]
    assert table_bytes(trees_[0]) == table_bytes(trees_[1])
    assert [path.name for path in out.iterdir() if path.name.startswith(".")] == []


def table_bytes(tree):
    (id_,) = tree.ids()
    return {path.name: path.read_bytes() for path in tree.incident_path(id_).glob("*.parquet")}


def needs_token(_number, _path, headers):
    """Refuse who has no token, and say the token of whoever has one, as careless programs do."""
    given = headers.get("Authorization", "")
    return None if given == f"Bearer {TOKEN}" else (401, f"no such token {given}".encode())


@pytest.mark.sampled
@pytest.mark.parametrize("right", [True, False])
def test_tokens_are_sent_and_stand_nowhere(tmp_path, right):
    told = [
        (START_NS + n * SECOND, {"service_name": "a", "secret": TOKEN}, f"GET /?key={TOKEN}", {"trace_id": TOKEN})
        for n in range(0, 120, 9)
    ]
    series = [*SERIES, ({"__name__": "told", "service": TOKEN, "pod": TOKEN, "x": TOKEN}, samples(0, 120))]
    spoil = needs_token if right else lambda *_: (401, f"no such token {TOKEN}".encode())
    stores = {
        "prometheus": prometheus(series, spoil=spoil),
        "loki": loki(told, spoil=spoil),
        "tempo": tempo(trees(3), spoil=spoil),
    }
    out = tmp_path / "t"
    variables = {f"OPSASSAY_{name.upper()}_TOKEN": TOKEN for name in stores}
    done = run(out, stores, "-c", "limits.retry_s=1", **variables)
    assert done.returncode == (0 if right else 1), done.stderr
    assert all(head.get("Authorization") == f"Bearer {TOKEN}" for store in stores.values() for head in store.heads)
    assert TOKEN not in done.stdout + done.stderr
    import polars as pl

    texts = [str(pl.read_parquet(path).to_dicts()) for path in out.rglob("*.parquet")]
    assert TOKEN not in "".join(texts)
    assert TOKEN.encode() not in everything_in(out)
    assert any("[redacted]" in text for text in texts) == right


@pytest.mark.slow
def test_what_the_rules_redact_is_in_no_file_also_of_a_killed_import(tmp_path):
    secrets = [
        "alice@example.org",
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM0.c2lnbmF0dXJl",
        "hunter22",
        "cookie-crumb",
        "4711-label",
    ]
    lines = [
        "mail alice@example.org",
        f"jwt {secrets[1]}",
        "db postgres://app:hunter22@db/app",
        "Cookie: id=cookie-crumb; x=1",
    ]
    told = [
        (START_NS + n * SECOND, {"service_name": "a", "pod": secrets[4]}, lines[n % 4], {"level": "info"})
        for n in range(120)
    ]
    held = trees(30)
    for one in held:
        one["service"] = f"{one['service']}"
        one["attributes"] = {"http.method": "GET alice@example.org", "http.request.header.cookie": "cookie-crumb"}
    series = [({"__name__": "m", "service": "a", "user": "alice@example.org", "pod": secrets[4]}, samples(0, 120))]
    file = tmp_path / "incident.yaml"
    file.write_text(
        "system: shop\nredact:\n  labels: [pod]\n  texts: ['[a-z]+@example\\.org', 'eyJ[\\w.-]+', ':[^:@/]+@']\n"
    )
    post = tmp_path / "post.md"
    post.write_text("# Outage\nalice@example.org restarted it.\n")
    stores = {"prometheus": prometheus(series), "loki": loki(told, delay_s=0.05), "tempo": tempo(held)}
    words = [str(file), "-c", "limits.entries=5", "--root", "s1:http_aborted", "--postmortem", str(post)]
    out = tmp_path / "t"
    import polars as pl

    def said():
        plain = [str(pl.read_parquet(path).to_dicts()) for path in out.rglob("*.parquet")]
        texts = [path.read_text() for path in out.rglob("*") if path.suffix in {".json", ".md"}]
        return "".join([*plain, *texts])

    with ExitStack() as stack:
        for store in stores.values():
            stack.enter_context(serving(store))
        killed = subprocess.Popen(command(out, stores, *words), stdout=-3, stderr=-3)
        while killed.poll() is None and len(list(out.rglob("loki*.parquet"))) < 6:
            time.sleep(0.01)
        killed.kill()
        killed.wait()
        found = said()
        assert "[redacted]" in found
        assert [secret for secret in secrets if secret in found] == []
        done = subprocess.run(command(out, stores, *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = said() + done.stderr + done.stdout
    assert [secret for secret in secrets if secret in found] == []
    assert "[redacted] restarted it." in found
    assert 'm{user=\\"[redacted]\\"}' in found or 'm{user="[redacted]"}' in found
