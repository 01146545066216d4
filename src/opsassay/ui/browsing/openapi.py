"""The OpenAPI description of the JSON pages, made of the table of kinds."""

from __future__ import annotations

from typing import Any

from opsassay import __version__
from opsassay.ui.browsing.kinds import KINDS, TOP, PageKind

ADDRESS = "openapi.json"
_PAGE = {
    "type": "object",
    "required": ["schema_version", "title", "answer"],
    "properties": {
        "schema_version": {"const": 1},
        "title": {"type": "string"},
        "answer": {"type": "string", "description": "what the page says first, in a sentence"},
    },
}
_PROBLEM = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


def description() -> dict[str, Any]:
    """Return what `opsassay view` serves as JSON; the key of the printed address goes with every request."""
    paths = {f"/{name}{page}.json": _path(kind, page) for name, kind in TOP.items() for page in _pages(kind)}
    paths |= {f"/{name}/{{key}}{page}.json": _path(kind, page) for name, kind in KINDS.items() for page in _pages(kind)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "OpsAssay, pages over stores", "version": __version__},
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"key": {"type": "apiKey", "in": "query", "name": "key"}},
            "schemas": {"Page": _PAGE, "Problem": _PROBLEM},
        },
    }


def _pages(kind: PageKind) -> tuple[str, ...]:
    return ("", "~{page}") if kind.paged else ("",)


def _path(kind: PageKind, page: str) -> dict[str, Any]:
    parameters = [
        _parameter(name, "query", "reveals truth when 1" if name == "reveal" else "") for name in kind.filters
    ]
    if kind.key:
        parameters.insert(0, _parameter("key", "path", kind.key))
    if page:
        parameters.append(_parameter("page", "path", "number of the page, from 1", type_="integer"))
    answers = {
        "200": _response_schema("the page", "Page"),
        "404": _response_schema("there is no such page", "Problem"),
        "409": _response_schema("the page cannot be made now; the sentence says why", "Problem"),
    }
    return {"get": {"summary": kind.about, "parameters": parameters, "responses": answers}}


def _parameter(name: str, where: str, about: str, type_: str = "string") -> dict[str, Any]:
    shown = {"description": about} if about else {}
    return {"name": name, "in": where, "required": where == "path", "schema": {"type": type_}, **shown}


def _response_schema(about: str, schema: str) -> dict[str, Any]:
    return {
        "description": about,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }
