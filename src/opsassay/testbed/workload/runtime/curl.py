"""What an operator does inside a container: one HTTP request to a service of the system, over the container's own network.

The name is looked up at the system's name server and nowhere else; what is no service of the system is never connected to.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp

from opsassay.testbed.kernel.namespaces import inside
from opsassay.testbed.workload.runtime.clients import CallFailedError, Clients
from opsassay.testbed.workload.runtime.settings import SERVICE_PORT

BODY_LIMIT = 2_000


async def send_as_operator(clients: Clients, request: dict[str, Any], namespace: str | None = None) -> dict[str, Any]:
    """Send the HTTP *request* (service, port, method, path, limit_s); return status and body, or error, and seconds.

    It is sent from inside the network *namespace*, None: from this process's.
    """
    began = time.monotonic()
    try:
        async with asyncio.timeout(request["limit_s"]):
            answer = await _send_to_service(clients, request, namespace)
    except TimeoutError:
        answer = {"error": f"timed out after {request['limit_s']:g} s"}
    except (CallFailedError, aiohttp.ClientError, OSError) as error:
        answer = {"error": str(error) or type(error).__name__}
    return {**answer, "seconds": round(time.monotonic() - began, 3)}


async def _send_to_service(clients: Clients, request: dict[str, Any], namespace: str | None) -> dict[str, Any]:
    """Send *request* to a replica that *clients* look up, from inside *namespace* if given; return status and body."""
    clients.names.forget(request["service"])
    address, port = await clients.names.pick(request["service"])
    if request["port"] != SERVICE_PORT:
        if clients.settings.relayed:
            raise CallFailedError(f"connection to {request['service']}:{request['port']} refused")
        port = request["port"]
    url = f"http://{address}:{port}{request['path']}"
    if namespace is None:
        return await _fetch_url(url, request)
    return await asyncio.to_thread(inside, namespace, lambda: asyncio.run(_fetch_url(url, request)))


async def _fetch_url(url: str, request: dict[str, Any]) -> dict[str, Any]:
    """Send *request* to *url*; return status and the first BODY_LIMIT bytes of the body as text."""
    limit = aiohttp.ClientTimeout(request["limit_s"])
    async with (
        aiohttp.ClientSession(trust_env=False, timeout=limit) as session,
        session.request(request["method"], url, allow_redirects=False) as response,
    ):
        body = await response.content.read(BODY_LIMIT)
        return {"status": response.status, "body": body.decode(errors="replace")}
