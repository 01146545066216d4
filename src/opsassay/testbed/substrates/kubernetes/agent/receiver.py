"""The receiver's pod: the OTLP receiver of `local` as a child, and an endpoint for its recording sessions."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from aiohttp import web

from opsassay.core.errors import LostError
from opsassay.telemetry.otlp.client import ReceiverControl, start_receiver
from opsassay.testbed.substrates.kubernetes.endpoints.desired import AGENT_PORT
from opsassay.testbed.substrates.kubernetes.endpoints.key import requires_key
from opsassay.testbed.substrates.kubernetes.manifests.system import RECEIVER_PORT

STATE, SPOOLS = Path("/tmp/receiver"), Path("/tmp/spools")  # noqa: S108 - a pod has a disk of its own
START_TIMEOUT_S, WATCH_EVERY_S = 90.0, 0.5


def main() -> None:
    """Run the OTLP receiver and the HTTP endpoint of its sessions; exit with the receiver's status when it ends."""
    process = start_receiver(STATE, "0.0.0.0", RECEIVER_PORT, timeout_s=START_TIMEOUT_S)  # noqa: S104 - a pod has its own

    async def serve() -> None:
        """Serve the sessions' endpoint until the receiver process ends."""
        runner = web.AppRunner(application(ReceiverControl(STATE), SPOOLS, os.environ["ENDPOINT_KEY"]))
        await runner.setup()
        await web.TCPSite(runner, None, AGENT_PORT).start()
        while process.poll() is None:  # noqa: ASYNC110 - another process's end
            await asyncio.sleep(WATCH_EVERY_S)

    asyncio.run(serve())
    raise SystemExit(process.returncode)


def application(control: ReceiverControl, spools: Path, key: str) -> web.Application:
    """Return the web app, protected by *key*, that opens, reads and closes sessions of *control*, kept in *spools*."""
    shutil.rmtree(spools, ignore_errors=True)

    async def open_session(request: web.Request) -> web.Response:
        """Start the recording session in the path, and answer."""
        name = _name(request)
        await asyncio.to_thread(control.open_session, spools / name, name)
        return web.json_response({})

    async def close_session(request: web.Request) -> web.Response:
        """Stop the recording session in the path, and answer with its counts."""
        stats = await asyncio.to_thread(control.close_session, _name(request))
        return web.json_response(stats.model_dump(mode="json"))

    async def list_files(request: web.Request) -> web.Response:
        """Answer with the session's spool files: size in bytes by name."""
        folder = spools / _name(request)
        if not folder.is_dir():
            raise LostError(f"there is no session {folder.name}; it ended with a receiver before this one")
        return web.json_response({path.name: path.stat().st_size for path in sorted(folder.iterdir())})

    async def piece(request: web.Request) -> web.Response:
        """Answer with the ``size`` bytes at ``offset`` (in the query) of a spool file."""
        folder = spools / _name(request)
        files = {path.name: path for path in folder.iterdir()}
        with files[request.match_info["file"]].open("rb") as spool:
            spool.seek(int(request.query["offset"]))
            return web.Response(body=spool.read(int(request.query["size"])))

    async def forget(request: web.Request) -> web.Response:
        """Delete the spool of the session in the path, and answer."""
        await asyncio.to_thread(shutil.rmtree, spools / _name(request))
        return web.json_response({})

    found = web.Application(middlewares=[requires_key(key)])
    one = "/sessions/{name}"
    found.add_routes([web.put(one, open_session), web.post(f"{one}/close", close_session), web.get(one, list_files)])
    found.add_routes([web.get(f"{one}/{{file}}", piece), web.delete(one, forget)])
    return found


def _name(request: web.Request) -> str:
    """Return the session name in the path of *request*; raises ValueError for other than letters, digits, - and _."""
    name = request.match_info["name"]
    if not name.removeprefix(".").replace("-", "").replace("_", "").isalnum():
        raise ValueError(f"{name!r} is no name of a session")
    return name
