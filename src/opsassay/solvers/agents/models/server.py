"""A scripted model behind HTTP: OpenAI chat completions and responses, Anthropic messages, Gemini, streamed or not.

``python -m opsassay.solvers.agents.models.server SCRIPT.yaml --port 8000`` serves a script; agents under test only need
its base URL. Equal requests get equal bytes.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from aiohttp import web

from opsassay.core.errors import OperationError, StartError
from opsassay.core.logs import Log, configure
from opsassay.core.schema.files import load_yaml
from opsassay.solvers.agents.models.base import Message, Reply
from opsassay.solvers.agents.models.scripted import Respond, Script, count_tokens
from opsassay.solvers.agents.models.wire import problem, response_body, stream
from opsassay.solvers.proxy.apis import ModelApi, api_of
from opsassay.solvers.proxy.exchanges import json_object, request_hash

_ROLES = {
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
    "tool": "tool",
    "function_call_output": "tool",
}


class ScriptedServer:
    """Answers HTTP requests of LLM APIs by the function *respond*."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request of an LLM API with the script's reply; 404 for an unknown path."""
        body = await request.content.read()
        api, asked = api_of(request.method, request.path_qs), json_object(body)
        if request.method == "GET" and request.path.endswith("/models"):
            return web.json_response({"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        if api is None or asked is None:
            return web.json_response(
                {"error": {"message": f"no such path: {request.method} {request.path}"}}, status=404
            )
        id_ = request_hash(request.method, request.path_qs, body)[:24]
        said = api.asked(request.path_qs, asked)
        messages = [Message(role=_ROLES.get(role, "user"), content=text) for role, text in said.messages]
        try:
            reply = count_tokens(self._respond(messages, ()), messages)
        except OperationError as error:
            return web.json_response(problem(api.name, 400, str(error)), status=400)
        if reply.error_status is not None:
            return web.json_response(
                problem(api.name, reply.error_status, "played by the script"), status=reply.error_status
            )
        model, streamed = said.model or "", said.stream
        if reply.broken is not None:
            return await self._send_broken_reply(request, api, reply, model, id_, streamed=streamed)
        return await self._send_reply(request, api, reply, model, id_, streamed=streamed)

    async def _send_reply(
        self, request: web.BaseRequest, api: ModelApi, reply: Reply, model: str, id_: str, *, streamed: bool
    ) -> web.StreamResponse:
        """Send *reply* in the form of *api* with *id_* as its id: as server-sent events if *streamed*, else as JSON."""
        if not streamed:
            return self._json_response(response_body(api.name, reply, model, id_))
        return await self._stream_reply(request, api, reply, model, id_)

    async def _send_broken_reply(
        self, request: web.BaseRequest, api: ModelApi, reply: Reply, model: str, id_: str, *, streamed: bool
    ) -> web.StreamResponse:
        """Send the invalid answer that `reply.broken` names: text that is no JSON, half a reply, or nothing for an hour."""
        if reply.broken == "garbage":
            return web.Response(body=b"<html>\xff\xfe it is not you, it is us", content_type="application/json")
        if reply.broken == "hang":
            await asyncio.sleep(3600)
        meant = reply.model_copy(update={"broken": None, "text": reply.text or "this is cut in the middle " * 20})
        events = b"".join(stream(api.name, meant, model, id_))
        whole_body = json.dumps(response_body(api.name, meant, model, id_)).encode()
        body, kind = (events, "text/event-stream") if streamed else (whole_body, "application/json")
        response = web.StreamResponse(headers={"Content-Type": kind, "Content-Length": str(len(body))})
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
        if request.transport is not None:
            request.transport.close()
        return response

    def _json_response(self, payload: dict[str, Any]) -> web.Response:
        """Return *payload* as a response of compact JSON."""
        return web.Response(body=json.dumps(payload, separators=(",", ":")).encode(), content_type="application/json")

    async def _stream_reply(
        self, request: web.BaseRequest, api: ModelApi, reply: Reply, model: str, id_: str
    ) -> web.StreamResponse:
        """Send *reply* as server-sent events in the form of *api*; *id_* is the id of the response."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
        await response.prepare(request)
        for event in stream(api.name, reply, model, id_):
            await response.write(event)
        await response.write_eof()
        return response


async def serve(server: ScriptedServer, port: int, ready: Callable[[int], None], until: asyncio.Event) -> None:
    """Serve on 127.0.0.1 until *until* is set; call *ready* with the port once it listens; *port* 0 takes a free one."""
    runner = web.ServerRunner(web.Server(server.handle, access_log=None), shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, backlog=4096).start()
        ready(int(runner.addresses[0][1]))
        await until.wait()
    finally:
        await runner.cleanup()


@contextmanager
def running_server(respond: Respond) -> Iterator[str]:
    """Yield the base URL of a server, in a thread during the block, that answers requests by *respond*."""
    loop, started, ports = asyncio.new_event_loop(), threading.Event(), list[int]()
    until = asyncio.Event()

    def ready(port: int) -> None:
        """Note the port and wake the thread that waits for it."""
        ports.append(port)
        started.set()

    thread = threading.Thread(
        target=loop.run_until_complete,
        args=(serve(ScriptedServer(respond), 0, ready, until),),
        name="opsassay-scripted-model",
        daemon=True,
    )
    thread.start()
    try:
        if not started.wait(30):
            raise StartError("The scripted model did not start within 30 s.")
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(until.set)
        thread.join(10)
        loop.close()


@click.command()
@click.argument("script", type=click.Path(path_type=Path))
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one.")
def main(script: Path, port: int) -> None:
    """Serve the scripted model in SCRIPT until interrupted; print its base URL."""
    configure("scripted-model", "")
    respond = load_yaml(script, Script).respond

    def ready(listening: int) -> None:
        """Log the port *listening* at which the server accepts requests, and print its URL."""
        Log(__name__).info("ready", port=listening, script=str(script))
        click.echo(f"http://127.0.0.1:{listening}/v1")

    async def forever() -> None:
        await serve(ScriptedServer(respond), port, ready, asyncio.Event())

    asyncio.run(forever())


if __name__ == "__main__":
    main()
