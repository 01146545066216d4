"""The HTTP API of the platform: its operations, each with allowed roles, body and response.

The routes and the OpenAPI description are made from the same list of operations.
"""

from __future__ import annotations

import errno
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError
from sqlalchemy import Connection
from sqlalchemy.exc import DataError, OperationalError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from opsassay import __version__
from opsassay.core.errors import NotFoundError, OpsAssayError, UserError
from opsassay.core.schema.validation_errors import problem
from opsassay.server.access import ForbiddenError, User, user_of
from opsassay.server.artefacts import MOST_BYTES
from opsassay.server.benchmarks import Platform
from opsassay.server.states import TransitionError

SMALL_BYTES = 2**20
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True)
class Call:
    """One call of an operation: the user, path parameters, query, and the body in its declared form."""

    platform: Platform
    connection: Connection
    user: User
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None
    token: str = ""

    def number(self, name: str, default: int, minimum: int, maximum: int) -> int:
        """Return the query parameter *name* as an integer from *minimum* to *maximum*; raises UserError."""
        given = self.query.get(name, str(default))
        if not given.isascii() or not given.isdigit() or not minimum <= int(given[:9]) <= maximum:
            raise UserError(f"{name} is a whole number from {minimum} to {maximum}, not {given[:40]!r}.")
        return int(given)


@dataclass(frozen=True)
class ApiOperation:
    """One operation: *roles* may call it (() any token; None everybody), *form* is the model of its body.

    *raw* bodies are passed as bytes; a token that calls more often than *most_per_s* gets the last response again. *work*
    runs in a thread, in a transaction that is committed when it returns.
    """

    method: str
    path: str
    summary: str
    work: Callable[[Call], Any]
    roles: tuple[str, ...] | None = ()
    form: type[BaseModel] | None = None
    raw: bool = False
    status: int = 200
    query: Mapping[str, str] = field(default_factory=dict)
    most_per_s: int | None = None


class BodyError(Exception):
    """A request that is refused with the HTTP *status* before its operation runs."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class RecentAnswers:
    """The last response to each token and address, repeated to a token that asks more than *most* times a second."""

    def __init__(self, most: int) -> None:
        self._most, self._second = most, 0
        self._asked: Counter[tuple[str, str]] = Counter()
        self._kept: dict[tuple[str, str], tuple[float, bytes]] = {}

    def again(self, token: str, address: str) -> bytes | None:
        """Count a request; return the last answer, under a second old, when *token* asks too often, else None."""
        now = time.monotonic()
        if (second := int(now)) != self._second:
            self._second, self._asked = second, Counter()
            self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] < 1}
        self._asked[token, address] += 1
        if self._asked[token, address] <= self._most:
            return None
        at, content = self._kept.get((token, address), (0.0, b""))
        return content if now - at < 1 and content else None

    def keep(self, token: str, address: str, content: bytes) -> None:
        """Store *content* as the last answer to *token* at *address*."""
        self._kept[token, address] = time.monotonic(), content


def routes_of(operations: Sequence[ApiOperation], platform: Platform) -> list[Route]:
    """Return the web routes that carry out *operations* on *platform*."""
    by_path: dict[str, dict[str, ApiOperation]] = {}
    for operation in operations:
        by_path.setdefault(operation.path, {})[operation.method] = operation
    return [Route(path, _make_endpoint(of, platform), methods=list(of)) for path, of in by_path.items()]


def _make_endpoint(
    operations: Mapping[str, ApiOperation], platform: Platform
) -> Callable[[Request], Awaitable[Response]]:
    """Return the HTTP endpoint of one path; *operations* is HTTP method to the operation that it calls."""
    recent = {method: RecentAnswers(of.most_per_s) for method, of in operations.items() if of.most_per_s}

    async def endpoint(request: Request) -> Response:
        """Answer *request* by its method's operation; errors become JSON with a status."""
        operation = operations.get("GET" if request.method == "HEAD" else request.method)
        assert operation is not None
        answers, asked = recent.get(operation.method), (bearer(request), request.url.path)
        if answers is not None and (content := answers.again(*asked)) is not None:
            return Response(content, media_type="application/json")
        try:
            if operation.raw:  # nobody keeps fifty megabytes of somebody unknown
                await run_in_threadpool(_require_known, operation, platform, bearer(request))
            body = await _read_body(request, operation)
            found = await run_in_threadpool(_run_operation, operation, platform, request, body)
        except (BodyError, OpsAssayError, DataError, OSError, OperationalError, NoConnectionError) as error:
            return _refusal_of(error, platform)
        response = found if isinstance(found, Response) else JSONResponse(found, status_code=operation.status)
        if answers is not None:
            answers.keep(*asked, bytes(response.body))
        return response

    return endpoint


def _refusal_of(error: Exception, platform: Platform) -> JSONResponse:
    """Return the response for *error*, a fault of the request or a full disk; raises *error* for other faults."""
    match error:
        case BodyError():
            return refusal(error.status, str(error))
        case OpsAssayError():
            return refusal(status_of(error), platform.hide_folders(error))
        case DataError():
            return refusal(400, "A text holds a character that cannot be kept, such as NUL; leave it out.")
        case OperationalError() | NoConnectionError():
            return refusal(503, "The database does not answer now; try again.")
        case OSError() if error.errno in DISK_FULL:
            return refusal(507, "The disk of the platform is full; try again when there is room.")
    raise error


def refusal(status: int, sentence: str) -> JSONResponse:
    """Return a JSON error response with *status* and the explanation *sentence*."""
    headers = {"Connection": "close"} if status in (401, 413) else {}  # what else comes of its body is not read
    return JSONResponse({"error": sentence}, status_code=status, headers=headers)


def bearer(request: Request) -> str:
    """Return the bearer token in the Authorization header of *request*, '' when it has none."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


async def _read_body(request: Request, operation: ApiOperation) -> Any:
    """Return the body as *operation* declares it: bytes, a validated form, or None; raises BodyError."""
    if operation.form is None and not operation.raw:
        return None
    content = await read_bounded(request, MOST_BYTES if operation.raw else SMALL_BYTES)
    if operation.raw:
        return content
    assert operation.form is not None
    try:
        return operation.form.model_validate_json(content or b"{}")
    except ValidationError as error:
        raise BodyError(422, f"{problem(error)}; see /openapi.json for what this takes.") from error


async def read_bounded(request: Request, most_bytes: int) -> bytes:
    """Return the body of *request*; raises BodyError as soon as it exceeds *most_bytes*.

    A request that states a larger size is refused unread; a client that sends `Expect` then sends nothing.
    """
    said = request.headers.get("content-length", "")
    larger = said.isascii() and said.isdigit() and int(said[:20]) > most_bytes
    refused = BodyError(413, f"This takes at most {most_bytes:,} bytes.")
    if larger and request.headers.get("expect", "").lower() == "100-continue":
        raise refused
    content, size = bytearray(), 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise refused
        content += b"" if larger else part
    return bytes(content)


def _run_operation(operation: ApiOperation, platform: Platform, request: Request, body: Any) -> Any:
    """Run *operation* as the token's user in one transaction; all but GET requests run one at a time."""
    reads = operation.method == "GET"
    with platform.engine.begin() if reads else platform.asking() as connection:
        token = bearer(request)
        user = _require_caller(operation, connection, token)
        call = Call(platform, connection, user, request.path_params, request.query_params, body, token)
        return operation.work(call)


def _require_known(operation: ApiOperation, platform: Platform, token: str) -> None:
    """Raise BodyError or ForbiddenError unless the user with *token* may call *operation*."""
    with platform.engine.connect() as connection:
        _require_caller(operation, connection, token)


def _require_caller(operation: ApiOperation, connection: Connection, token: str) -> User:
    """Return the user with *token*, an anonymous one for public operations; raises BodyError and ForbiddenError."""
    user = user_of(connection, token) if token else None
    if operation.roles is not None:
        if user is None:
            raise BodyError(401, "Give a token that is known and has not ended, as `Authorization: Bearer TOKEN`.")
        if operation.roles:
            user.require(*operation.roles)
    return user or User("", "", "")


def status_of(error: Exception) -> int:
    """Return the HTTP status for a request that failed with *error*."""
    kinds = ((ForbiddenError, 403), (NotFoundError, 404), (TransitionError, 409), (UserError, 400))
    return next((status for kind, status in kinds if isinstance(error, kind)), 500)


def openapi(operations: Sequence[ApiOperation]) -> dict[str, Any]:
    """Return the OpenAPI description of *operations*."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    for operation in operations:
        described: dict[str, Any] = {
            "summary": operation.summary,
            "operationId": operation.work.__name__.strip("_"),
            "parameters": _describe_parameters(operation),
            "responses": {str(operation.status): {"description": "Done."}, **_describe_refusals(operation)},
            "security": [] if operation.roles is None else [{"token": []}],
        }
        if operation.raw:
            binary = {"schema": {"type": "string", "format": "binary"}}
            described["requestBody"] = {"content": {"application/octet-stream": binary}, "required": True}
        elif operation.form is not None:
            schema = operation.form.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas |= schema.pop("$defs", {})
            schemas[operation.form.__name__] = schema
            where = {"$ref": f"#/components/schemas/{operation.form.__name__}"}
            described["requestBody"] = {"content": {"application/json": {"schema": where}}, "required": True}
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {"title": "OpsAssay platform", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _describe_parameters(operation: ApiOperation) -> list[dict[str, Any]]:
    """Return the OpenAPI parameters of *operation*, of path and query."""
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    inside = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    asked = [
        {"name": name, "in": "query", "required": False, "description": said, "schema": {"type": "string"}}
        for name, said in operation.query.items()
    ]
    return inside + asked


def _describe_refusals(operation: ApiOperation) -> dict[str, Any]:
    """Return the OpenAPI error responses of *operation* by status code."""
    codes = {"400": "What was given cannot be used; the error says why.", "503": "The database does not answer now."}
    if operation.roles is not None:
        codes |= {"401": "No token, or none that is known.", "403": "It is not for this token, or it is not there."}
    if "{" in operation.path:
        codes["404"] = "It is not there."
        codes["409"] = "It may not follow what is."
    if operation.form is not None or operation.raw:
        codes |= {"413": "The body is too large.", "422": "The body is not as described.", "507": "The disk is full."}
    schema = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    content = {"application/json": {"schema": schema}}
    return {code: {"description": said, "content": content} for code, said in codes.items()}


def as_json_line(value: Any) -> str:
    """Return *value* as one line of JSON."""
    return json.dumps(value, separators=(",", ":"), default=str)
