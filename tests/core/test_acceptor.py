"""Connections are served side by side by few threads, and nothing of them is left."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from opsassay.core.http.acceptor import Acceptor, listen_on_port


def asked(address: tuple[str, int]) -> bytes:
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(b"hi")
        return client.recv(100)


def echo(connection: socket.socket) -> None:
    connection.sendall(connection.recv(100).upper())


def test_one_after_another_is_served_without_a_thread_for_each() -> None:
    served = set()

    def serve(connection: socket.socket) -> None:
        served.add(threading.current_thread())
        echo(connection)

    listener, before = listen_on_port(), threading.active_count()
    with Acceptor(listener, serve):
        assert {asked(listener.getsockname()) for _ in range(100)} == {b"HI"}
        assert len(served) < 50
    assert threading.active_count() == before


def test_connections_that_last_do_not_keep_others_waiting() -> None:
    begun, end = threading.Semaphore(0), threading.Event()

    def serve(connection: socket.socket) -> None:
        if connection.recv(100) == b"long":
            begun.release()
            end.wait(20)
        connection.sendall(b"HI")

    listener, before = listen_on_port(), threading.active_count()
    with Acceptor(listener, serve):
        long = [socket.create_connection(listener.getsockname(), timeout=20) for _ in range(30)]
        for one in long:
            one.sendall(b"long")
        assert all(begun.acquire(timeout=20) for _ in long)
        assert asked(listener.getsockname()) == b"HI"
        end.set()
        assert [one.recv(100) for one in long] == [b"HI"] * 30
        with ThreadPoolExecutor(40) as many:
            assert set(many.map(asked, [listener.getsockname()] * 200)) == {b"HI"}
    for one in long:
        one.close()
    assert threading.active_count() == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_one_that_fails_takes_no_other_with_it() -> None:
    def serve(connection: socket.socket) -> None:
        if connection.recv(100) == b"no":
            raise RuntimeError
        connection.sendall(b"HI")

    listener = listen_on_port()
    with Acceptor(listener, serve):
        for _ in range(10):
            with socket.create_connection(listener.getsockname(), timeout=20) as client:
                client.sendall(b"no")
                assert client.recv(100) == b""
        assert asked(listener.getsockname()) == b"HI"
