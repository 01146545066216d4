"""Sockets and ports of a seal lead to the servers that were named, and nowhere else."""

from __future__ import annotations

import os
import socket
import socketserver
import threading
from pathlib import Path

import pytest


class Shout(socketserver.StreamRequestHandler):
    def handle(self):
        self.wfile.write(self.rfile.read().upper())


@pytest.fixture
def shouting(tmp_path):
    folder = tmp_path / ("deep" * 20) / ("deeper" * 10)  # longer than the path of a socket may be
    folder.mkdir(parents=True)
    here = Path.cwd()
    os.chdir(folder)
    server = socketserver.ThreadingUnixStreamServer("s.sock", Shout)
    os.chdir(here)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield folder / "s.sock"
    server.shutdown()
    thread.join()
    server.server_close()


def test_sockets_and_ports_lead_to_the_servers_outside_and_nowhere_else(sealed, shouting):
    ended = sealed(
        "import socket\n"
        "def ask(family, address):\n"
        "    with socket.socket(family) as s:\n"
        "        s.connect(address); s.sendall(b'a' * 2_000_000); s.shutdown(1)\n"
        "        return sum(len(c) for c in iter(lambda: s.recv(65536), b'') if not c.strip(b'A'))\n"
        "print(ask(socket.AF_UNIX, '/run/opsassay/model.sock'), ask(socket.AF_INET, ('127.0.0.1', 8000)))\n"
        "try: ask(socket.AF_INET, ('127.0.0.1', 8001))\n"
        "except ConnectionRefusedError: print('refused')\n",
        sockets={"model": shouting},
        ports={8000: "model"},
    )
    assert ended.stdout_tail == "2000000 2000000\nrefused\n", ended


def test_a_hundred_connections_at_once_are_served_in_turn(sealed, shouting):
    ended = sealed(
        "import socket\n"
        "held = [socket.create_connection(('127.0.0.1', 8000)) for _ in range(100)]\n"
        "for s in held: s.sendall(b'x'); s.shutdown(1)\n"
        "print(sum(s.recv(9) == b'X' for s in held if [s.settimeout(30)]))",
        sockets={"model": shouting},
        ports={8000: "model"},
    )
    assert ended.stdout_tail == "100\n", ended


def test_nobody_outside_is_an_end_of_the_connection(sealed, tmp_path):
    ended = sealed(
        "import socket\ns = socket.create_connection(('127.0.0.1', 8000))\nprint(s.recv(9))",
        sockets={"model": tmp_path / "none.sock"},
        ports={8000: "model"},
    )
    assert ended.stdout_tail == "b''\n", ended


def test_addresses_of_the_seal_are_not_the_machines(sealed):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ended = sealed(f"import socket; socket.create_server(('127.0.0.1', {port})); print('mine')")
    assert ended.stdout_tail == "mine\n"
