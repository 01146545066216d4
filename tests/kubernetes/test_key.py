"""An endpoint opens to its key alone, and says in a sentence what went wrong behind it."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from opsassay.core.errors import OperationError
from opsassay.testbed.substrates.kubernetes.endpoints.key import requires_key

FAILURES = {
    "fine": None,
    "refused": OperationError("the burner did not build up"),
    "no order": ValueError("until is missing"),
    "lacking": KeyError("size"),
    "broken": FileNotFoundError("no spool"),
}


async def behind(request):
    if (failure := FAILURES[request.query["what"]]) is not None:
        raise failure
    return web.json_response({})


def asked(what, key, given):
    async def ask():
        served = web.Application(middlewares=[requires_key(key)])
        served.add_routes([web.get("/", behind)])
        async with TestClient(TestServer(served)) as client:
            answer = await client.get(
                "/", params={"what": what}, headers={} if given is None else {"X-Endpoint-Key": given}
            )
            return answer.status, (await answer.json()).get("message", "")

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("what", "status", "words"),
    [
        ("fine", 200, ""),
        ("refused", 409, "the burner did not build up"),
        ("no order", 422, "this is no order: until is missing"),
        ("lacking", 422, "'size'"),
        ("broken", 409, "FileNotFoundError: no spool"),
    ],
)
def test_who_has_the_key_is_told_what_went_wrong(what, status, words):
    code, message = asked(what, "secret", "secret")
    assert code == status
    assert words in message


@pytest.mark.parametrize(
    ("key", "given"), [("secret", "guessed"), ("secret", None), ("", ""), ("", None), ("secret", "")]
)
def test_nobody_else_learns_that_there_is_anything_behind_it(key, given):
    assert asked("refused", key, given) == (404, "the key is missing or wrong")
