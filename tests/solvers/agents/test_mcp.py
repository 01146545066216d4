"""The official client of the SDK, through the bridge, against the server on its Unix socket."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import anyio
import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from opsassay.core.errors import UserError
from opsassay.solvers.agents import mcp_bridge
from opsassay.solvers.agents.limits import Limits, Meter
from opsassay.solvers.agents.mcp_server import DiagnosisToolSession, serving
from opsassay.solvers.agents.record import AgentRecorder
from opsassay.solvers.agents.tools import TelemetryToolbox
from opsassay.telemetry.sql import LockedSql
from solvers.agents.exams import GOOD
from telemetry.packs import make_pack


@pytest.fixture(scope="module")
def sql(tmp_path_factory):
    pack = make_pack(tmp_path_factory.mktemp("pack") / "p", error_in="cart")
    with LockedSql(pack, max_rows=200) as worker:
        yield worker


@contextmanager
def desk(sql, folder, **limits):
    meter = Meter(Limits(**limits))
    made = DiagnosisToolSession(TelemetryToolbox(sql), meter, AgentRecorder(folder), sql.datapack.services())
    with serving(made, folder / "s.sock"):
        yield made, folder / "s.sock", meter


def talk(path, *said):
    """Return what a real client is told: the tools, then the result of each call."""

    async def session():
        server = StdioServerParameters(command=sys.executable, args=[mcp_bridge.__file__, str(path)])
        async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            tools = (await client.list_tools()).tools
            results = [await client.call_tool(name, arguments) for name, arguments in said]
        return tools, results

    return anyio.run(session)


def test_any_client_sees_the_four_tools_and_submit(sql, tmp_path):
    with desk(sql, tmp_path) as (made, path, _):
        tools, (listed, rows, taken) = talk(
            path, ("list_tables", {}), ("query_sql", {"sql": "SELECT 40 + 2 AS x"}), ("submit", GOOD)
        )
    assert [tool.name for tool in tools] == ["list_tables", "get_schema", "query_sql", "think", "submit"]
    assert "root_causes" in tools[-1].input_schema["properties"]
    assert "abnormal_traces: 240 rows" in listed.content[0].text
    assert "[42]" in rows.content[0].text
    assert (taken.is_error, taken.content[0].text) == (False, "Taken.")
    assert made.answer is not None
    assert made.answer.diagnosis.root_causes[0].service == "cart"
    actions = [json.loads(line) for line in (tmp_path / "actions.jsonl").read_text().splitlines()]
    assert [action["tool"] for action in actions] == ["list_tables", "query_sql", "submit"]


def test_what_is_wrong_is_told_to_the_client_and_the_session_goes_on(sql, tmp_path):
    wrong = json.loads(json.dumps(GOOD).replace("http_aborted", "gremlins"))
    with desk(sql, tmp_path) as (made, path, _):
        _, results = talk(
            path,
            ("query_sql", {"sequel": "x"}),
            ("query_sql", {"sql": "ATTACH 'x'"}),
            ("nothing", {}),
            ("submit", {}),
            ("submit", wrong),
            ("submit", GOOD),
        )
    assert [result.is_error for result in results] == [True] * 5 + [False]
    assert "not an answer by the contract: root_causes is missing" in results[3].content[0].text
    assert made.answer is not None


def test_a_later_answer_takes_the_place_of_an_earlier_one_and_a_wrong_one_of_none(sql, tmp_path):
    other = json.loads(json.dumps(GOOD).replace('"service": "cart"', '"service": "store"', 1))
    with desk(sql, tmp_path) as (made, path, _):
        talk(path, ("submit", GOOD), ("submit", other), ("submit", {"root_causes": 7}))
    assert made.answer is not None
    assert made.answer.diagnosis.root_causes[0].service == "store"


def test_the_cap_of_tool_calls_holds_over_all_clients(sql, tmp_path):
    with desk(sql, tmp_path, tool_calls=2) as (_, path, meter):
        _, first = talk(path, ("list_tables", {}))
        _, second = talk(path, ("list_tables", {}), ("list_tables", {}), ("submit", GOOD))
    assert [result.is_error for result in (*first, *second)] == [False, False, True, False]
    assert meter.hit == ["tool_calls"]


@pytest.mark.parametrize(
    "sent",
    [b"", b"\n\n", b"hello\n", b'{"jsonrpc": "2.0"', b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"x" * (9 * 2**20) + b"\n"],
    ids=["nothing", "blank", "text", "half", "bytes", "deep", "long"],
)
def test_a_client_that_breaks_the_protocol_ends_nobody_elses_session(sql, tmp_path, sent):
    with desk(sql, tmp_path) as (_, path, _), socket.socket(socket.AF_UNIX) as rude:
        rude.connect(str(path))
        try:
            rude.sendall(sent)
            rude.shutdown(socket.SHUT_WR)
        except BrokenPipeError:
            pass  # it was hung up on
        _, (result,) = talk(path, ("think", {"thought": "still here"}))
    assert result.content[0].text == "Noted."


def test_a_path_that_no_socket_can_have_is_said(sql, tmp_path):
    folder = tmp_path / ("d" * 100)
    folder.mkdir()
    with pytest.raises(UserError, match="too long a path for Unix sockets"), desk(sql, folder):
        pass
    assert not list(folder.glob("*.sock"))


def test_nothing_is_left_when_the_block_ends(sql, tmp_path):
    before = threading.active_count()
    with desk(sql, tmp_path) as (_, path, _):
        talk(path, ("list_tables", {}))
        bridge = subprocess.Popen(
            [sys.executable, mcp_bridge.__file__, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        bridge.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        bridge.stdin.flush()
        assert bridge.stdout.readline()  # it is through
    with bridge:
        assert bridge.wait(30) == 0
    assert not path.exists()
    deadline = time.monotonic() + 30  # a thread ends a moment after the block that it served
    while threading.active_count() > before + 1 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before + 1


def test_an_agent_that_never_stops_fills_neither_memory_nor_disk(sql, tmp_path):
    with desk(sql, tmp_path, tool_calls=2) as (made, _, _):
        for _ in range(300):
            made.call("submit", {"root_causes": "x" * 200_000})
    assert len(made.calls) == 52
    assert (tmp_path / "actions.jsonl").stat().st_size < 60 * 2**17
    assert "no more calls" in made.call("think", {"thought": "still here"}).output
