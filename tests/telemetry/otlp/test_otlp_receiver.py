"""The receiver as its clients meet it: a real process, real sockets, and every way to be wrong."""

from __future__ import annotations

import gzip
import json
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from opsassay.core.errors import LostError, StartError, UserError
from opsassay.telemetry.otlp.client import ReceiverControl, start_receiver
from opsassay.telemetry.otlp.control import socket_address
from opsassay.telemetry.otlp.requests import parse_json
from opsassay.telemetry.otlp.seal import decode_spool

SIXTEEN_MIB = 16 * 1024 * 1024


def names(directory: Path) -> set[str]:
    return set(decode_spool(directory)["traces"]["span_name"])


def test_what_is_acknowledged_without_a_session_is_counted_and_not_kept(receiver, numbered_spans):
    assert receiver.post("traces", numbered_spans(0, 7))[0] == 200
    counts = receiver.control.stats().signals["traces"]
    assert (counts.received_items, counts.unrecorded_items, counts.kept_items, counts.rejected_items) == (7, 7, 0, 0)


def test_two_sessions_are_independent(receiver, numbered_spans, tmp_path):
    control = receiver.control
    control.open_session(tmp_path / "one", "one")
    receiver.post("traces", numbered_spans(0, 2))
    control.open_session(tmp_path / "two", "two")
    receiver.post("traces", numbered_spans(2, 3))
    one = control.close_session("one")
    receiver.post("traces", numbered_spans(5, 4))
    two = control.close_session("two")
    assert one.signals["traces"].kept_items == 5
    assert two.signals["traces"].kept_items == 7
    assert one.opened_ns < two.opened_ns < one.closed_ns < two.closed_ns
    assert names(tmp_path / "one") == {f"span {number}" for number in range(5)}
    assert names(tmp_path / "two") == {f"span {number}" for number in range(2, 9)}


def test_a_session_that_is_opened_again_goes_on_behind_a_torn_frame(receiver, numbered_spans, tmp_path):
    receiver.control.open_session(tmp_path / "r", "first")
    receiver.post("traces", numbered_spans(0, 1))
    receiver.control.close_session("first")
    with (tmp_path / "r" / "spool-traces.bin").open("ab") as spool:
        spool.write(b"\x40\x00\x00\x00torn")
    receiver.control.open_session(tmp_path / "r", "second")
    receiver.post("traces", numbered_spans(1, 1))
    receiver.control.close_session("second")
    assert names(tmp_path / "r") == {"span 0", "span 1"}


def test_sessions_refuse_a_taken_name_a_taken_folder_and_an_unknown_name(receiver, tmp_path):
    receiver.control.open_session(tmp_path / "r", "a")
    with pytest.raises(UserError, match="'a' is already open"):
        receiver.control.open_session(tmp_path / "other", "a")
    with pytest.raises(UserError, match="'a' already records into"):
        receiver.control.open_session(tmp_path / "r" / ".." / "r", "b")
    with pytest.raises(UserError, match="no open session 'b'; open: a"):
        receiver.control.close_session("b")


def test_gzip_is_kept_as_it_came(receiver, numbered_spans, tmp_path):
    receiver.control.open_session(tmp_path / "r", "a")
    body = gzip.compress(numbered_spans(0, 100))
    assert receiver.post("traces", body, Content_Encoding="gzip")[0] == 200
    assert receiver.control.close_session("a").signals["traces"].kept_bytes == len(body)
    assert len(names(tmp_path / "r")) == 100


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("status", "sentence", "body", "headers"),
    [
        (400, "not a protobuf ExportTraceServiceRequest", b"\xff garbage", {}),
        (400, "not gzip", b"plain", {"Content_Encoding": "gzip"}),
        (400, "ends too early", gzip.compress(b"x" * 1000, mtime=0)[:-9], {"Content_Encoding": "gzip"}),
        (
            413,
            "larger than 16777216 bytes",
            gzip.compress(bytes(SIXTEEN_MIB + 1), mtime=0),
            {"Content_Encoding": "gzip"},
        ),
        (415, "or application/json", b"{}", {"Content_Type": "text/plain"}),
        (400, "no OTLP JSON of traces", b"{", {"Content_Type": "application/json"}),
        (400, "no OTLP JSON of traces", b"[1]", {"Content_Type": "application/json"}),
        (
            400,
            "traceId",
            b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "xyz"}]}]}]}',
            {"Content_Type": "application/json"},
        ),
        (415, "Send application/x-protobuf", b"", {"Content_Encoding": "br"}),
    ],
)
def test_a_wrong_body_gets_one_sentence_and_is_counted(receiver, tmp_path, status, sentence, body, headers):
    receiver.control.open_session(tmp_path / "r", "a")
    got, answer, _ = receiver.post("traces", body, **headers)
    assert got == status
    assert sentence in answer.decode()
    counts = receiver.control.stats().signals["traces"]
    assert (counts.invalid_requests, counts.received_requests) == (1, 0)
    receiver.control.close_session("a")
    assert decode_spool(tmp_path / "r")["traces"].is_empty()


@pytest.mark.parametrize("packed", [False, True])
def test_json_gives_the_rows_that_protobuf_gives(receiver, tmp_path, packed):
    span = {
        "traceId": "0102030405060708090a0b0c0d0e0f10", "spanId": "a1a2a3a4a5a6a7a8", "name": "GET /items", "kind": 2,
        "startTimeUnixNano": "1700000000000000001", "endTimeUnixNano": 1700000000000000009,
        "attributes": [{"key": "http.response.status_code", "value": {"intValue": "503"}}], "status": {"code": 2},
    }  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]}
    body = {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}
    payload = json.dumps(body).encode()
    as_protobuf = parse_json("traces", payload).SerializeToString()
    tables = []
    for name, sent, headers in (
        ("json", gzip.compress(payload) if packed else payload, {"Content_Type": "application/json"}),
        ("protobuf", gzip.compress(as_protobuf) if packed else as_protobuf, {}),
    ):
        receiver.control.open_session(tmp_path / name, name)
        status, answer, _ = receiver.post("traces", sent, **headers, **({"Content_Encoding": "gzip"} if packed else {}))
        assert status == 200, answer
        receiver.control.close_session(name)
        tables.append(decode_spool(tmp_path / name)["traces"])
    assert tables[0].equals(tables[1])
    (row,) = tables[0].iter_rows(named=True)
    assert (row["service_name"], row["span_name"], row["attr.status_code"]) == ("shop", "GET /items", "Error")
    assert (row["trace_id"], row["span_id"]) == (span["traceId"], span["spanId"])


def test_a_body_over_the_limit_is_refused_before_it_is_sent(receiver):
    with socket.create_connection(("127.0.0.1", receiver.port), timeout=20) as connection:
        head = "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n"
        connection.sendall(f"{head}Content-Length: {SIXTEEN_MIB + 1}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413 ")


def test_the_data_port_offers_nothing_else(receiver):
    assert receiver.post("profiles", b"")[0] == 404
    assert receiver.post("../stats", b"")[0] == 404


@pytest.mark.slow
def test_a_kill_in_mid_stream_loses_nothing_that_was_acknowledged(receiver, numbered_spans, tmp_path):
    receiver.control.open_session(tmp_path / "r", "a")
    acknowledged: list[int] = []
    enough = threading.Event()

    def send() -> None:
        for first in range(0, 1_000_000, 100):
            try:
                if receiver.post("traces", numbered_spans(first, 100))[0] == 200:
                    acknowledged.append(first)
            except OSError:
                return
            if len(acknowledged) == 20:
                enough.set()

    sender = threading.Thread(target=send)
    sender.start()
    assert enough.wait(30)
    receiver.process.kill()
    sender.join(30)
    wanted = {f"span {number}" for first in acknowledged for number in range(first, first + 100)}
    assert len(wanted) >= 2000
    assert wanted <= names(tmp_path / "r")


def test_a_full_disk_is_a_retryable_answer_that_is_counted(tmp_path, numbered_spans, client_of):
    """A file size limit stands for the full disk: the kernel refuses the write in the same place."""
    state = tmp_path / "state"
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20000, resource.RLIM_INFINITY));"
        "from pathlib import Path; from opsassay.telemetry.otlp.receiver import run;"
        "run(Path(sys.argv[1]), '127.0.0.1', 0, die_with_stdin=True)"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(state)], stdin=subprocess.PIPE)
    try:
        control = wait_for(state, process)
        control.open_session(tmp_path / "r", "a")
        receiver = client_of(process, control)
        small, large = numbered_spans(0, 50), numbered_spans(50, 500)
        assert len(small) < 10_000 < 20_000 < len(large)
        assert receiver.post("traces", small)[0] == 200
        status, sentence, headers = receiver.post("traces", large)
        assert (status, headers["Retry-After"]) == (503, "1")
        assert b"Cannot write to" in sentence
        assert receiver.post("traces", numbered_spans(550, 50))[0] == 200, "a refused frame leaves nothing behind"
        assert control.stats().drop_rate == 500 / 600
        stats = control.close_session("a")
    finally:
        process.communicate(timeout=20)
    counts = stats.signals["traces"]
    assert (counts.kept_items, counts.rejected_items, counts.rejected_requests) == (100, 500, 1)
    assert stats.drop_rate == 500 / 600
    assert names(tmp_path / "r") == {f"span {number}" for number in [*range(50), *range(550, 600)]}


def wait_for(state: Path, process: subprocess.Popen[bytes]) -> ReceiverControl:
    for _ in range(400):
        try:
            ReceiverControl(state).stats()
            return ReceiverControl(state)
        except LostError:
            assert process.poll() is None
            threading.Event().wait(0.05)
    raise AssertionError("the receiver did not start")


def test_an_occupied_port_is_one_sentence_that_names_it(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "opsassay.telemetry.otlp", "--state", tmp_path, "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"port {port}" in done.stderr
    assert not (tmp_path / "receiver.json").exists()


@pytest.mark.slow
def test_a_second_receiver_on_the_same_folder_is_refused(receiver):
    with pytest.raises(StartError, match="Another receiver already runs"):
        start_receiver(receiver.control.state_dir, timeout_s=20)
    assert receiver.control.stats().pid == receiver.process.pid


def test_the_state_file_says_who_and_where(receiver):
    told = json.loads((receiver.control.state_dir / "receiver.json").read_text())
    assert set(told) == {"pid", "port", "started_ns"}
    assert told["pid"] == receiver.process.pid


def test_the_control_socket_refuses_what_it_does_not_know_and_lives_on(receiver):
    path = receiver.control.state_dir / "control.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    refused = [b'{"command": "shutdown"}', b"garbage", b"[]", b'{"command": ["stats"]}', b'{"command": "open_session"}']
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        with socket_address(receiver.control.state_dir) as address:
            connection.connect(address)
        stream = connection.makefile("rwb")
        for line in refused:
            stream.write(line + b"\n")
            stream.flush()
            assert json.loads(stream.readline())["user_error"] is True, line
        stream.close()
    assert receiver.control.stats().sessions == {}


def test_a_long_state_path_works(tmp_path):
    state = tmp_path / ("d" * 100)
    process = start_receiver(state)
    assert ReceiverControl(state).stats().pid == process.pid
    process.communicate(timeout=20)


def test_the_end_of_standard_input_ends_it(receiver):
    receiver.process.stdin.close()
    assert receiver.process.wait(20) == 0
    with pytest.raises(LostError, match="No receiver answers"):
        receiver.control.stats()


@pytest.mark.slow
def test_sigterm_keeps_open_sessions_and_exits_cleanly(tmp_path, numbered_spans, client_of):
    process = start_receiver(tmp_path / "state", die_with_stdin=False)
    control = ReceiverControl(tmp_path / "state")
    control.open_session(tmp_path / "r", "a")
    client_of(process, control).post("traces", numbered_spans(0, 3))
    process.send_signal(signal.SIGTERM)
    try:
        assert process.wait(20) == 0
    finally:
        process.kill()
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == [
        "spool-logs.bin",
        "spool-metrics.bin",
        "spool-traces.bin",
    ]
    assert names(tmp_path / "r") == {"span 0", "span 1", "span 2"}
    assert not (tmp_path / "state" / "control.sock").exists()


@pytest.mark.slow
def test_a_receiver_starts_where_another_was_killed(receiver):
    receiver.process.kill()
    receiver.process.wait(20)
    again = start_receiver(receiver.control.state_dir)
    assert receiver.control.stats().pid == again.pid
    again.communicate(timeout=20)
