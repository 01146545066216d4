"""The key of an agent endpoint: requests without it are refused, and an error is answered as a sentence."""

from __future__ import annotations

import hmac

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from opsassay.core.errors import OpsAssayError
from opsassay.testbed.substrates.kubernetes.endpoints.desired import KEY_HEADER


def requires_key(key: str) -> Middleware:
    """Return middleware that answers 404 to requests without *key*, 422 after a ValueError, 409 after other errors."""

    @web.middleware
    async def with_key(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Return the response of *handler* to *request*; a refusal as JSON without the key or after an exception."""
        if not key or not hmac.compare_digest(request.headers.get(KEY_HEADER, ""), key):
            return _refusal_response(404, "the key is missing or wrong")
        try:
            return await handler(request)
        except OpsAssayError as error:
            return _refusal_response(409, str(error))
        except (ValueError, KeyError) as error:
            return _refusal_response(422, f"this is no order: {error}")
        except Exception as error:  # noqa: BLE001 - who ordered it is informed, whatever it was
            return _refusal_response(409, f"{type(error).__name__}: {error}")

    return with_key


def _refusal_response(status: int, message: str) -> web.Response:
    """Return a JSON response with *status* and *message*."""
    return web.json_response({"message": message}, status=status)
