"""Runs the proxy in the foreground of a command, or in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress

import uvloop

from opsassay.core.errors import StartError
from opsassay.core.http.acceptor import listen_on_port
from opsassay.solvers.proxy.server import ProxySettings, serve


def run_proxy(settings: ProxySettings, port: int, ready: Callable[[int], None]) -> None:
    """Serve the proxy on *port* until interrupted, calling *ready* with the port; raises UserError for a taken port."""
    listener = listen_on_port(port)

    async def forever() -> None:
        await serve(settings, listener, ready, asyncio.Event())

    with closing(listener), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(forever())


@contextmanager
def running_proxy(settings: ProxySettings, port: int = 0) -> Iterator[str]:
    """Yield the base URL of a proxy that serves in a thread during the block; raises its error if it fails to start."""
    listener, started, found = listen_on_port(port), threading.Event(), _Found()

    async def main() -> None:
        """Serve until the event `found.until` is set; store event and loop in `found` first."""
        found.until = asyncio.Event()
        found.loop = asyncio.get_running_loop()
        await serve(settings, listener, found.make_ready_callback(started), found.until)

    def target() -> None:
        """Run the server in this thread; store an error in `found`, and set `started` at the end."""
        try:
            with closing(listener), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(main())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that waits
            found.error = error
        finally:
            started.set()

    thread = threading.Thread(target=target, name="opsassay-proxy", daemon=True)
    thread.start()
    started.wait(30)
    try:
        if found.error is not None:
            raise found.error
        if found.port is None:
            raise StartError("The proxy did not start within 30 s.")
        yield f"http://127.0.0.1:{found.port}"
    finally:
        if found.loop is not None and found.until is not None:
            with suppress(RuntimeError):  # its loop is closed: the thread has ended by itself, or is about to
                found.loop.call_soon_threadsafe(found.until.set)
        thread.join(10)


class _Found:
    port: int | None = None
    error: BaseException | None = None
    loop: asyncio.AbstractEventLoop | None = None
    until: asyncio.Event | None = None

    def make_ready_callback(self, started: threading.Event) -> Callable[[int], None]:
        """Return the function that stores the port it is called with and sets *started*."""

        def ready(port: int) -> None:
            self.port = port
            started.set()

        return ready
