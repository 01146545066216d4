#!/usr/bin/env bash
# Package: mcp
# Version: 2.3.0
# Date: 2026-11-28
# Happens: A tool of MCPServer whose argument is `str | None` gets other text than was sent, where the text is JSON: "null"
#   arrives as None, and an object or a list is refused with "Input should be a valid string", although the schema that the
#   server itself advertises allows every string. "5" and "true" pass. For `str` all of them pass, and for `Any` a text
#   with an object arrives as a dict. So a default of None changes which texts a tool can be given.
# Guessed: The server checks an argument against the schema that it advertises; an optional text is a text.
# Matters: Agents hand in log lines, manifests and queries as text, and many of them are JSON. The model sees its valid call
#   refused and tries others, which a grader of its path counts against it. Annotate such arguments `str` with a default of
#   "", and try every tool with JSON in its texts.
set -euo pipefail

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$dir/venv"
timeout 300 "$dir/venv/bin/python" -m pip install -qq --disable-pip-version-check mcp==2.3.0 pydantic==2.14.3 jsonschema==4.26.0

cat >"$dir/see.py" <<'PY'
import asyncio
import logging
from typing import Any

import jsonschema
from mcp import Client
from mcp.server import MCPServer

server = MCPServer("texts")
logging.disable()


@server.tool(name="str")
def always(text: str) -> str:
    return f"{type(text).__name__} {text!r}"


@server.tool(name="str or None")
def optional(text: str | None = None) -> str:
    return f"{type(text).__name__} {text!r}"


@server.tool(name="Any")
def anything(text: Any) -> str:
    return f"{type(text).__name__} {text!r}"


async def main():
    seen = {}
    async with Client(server) as client:
        schemas = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        for tool in ("str", "str or None", "Any"):
            for text in ("null", '{"level": "error"}', "[1, 2]", "5", "true", "plain"):
                jsonschema.validate({"text": text}, schemas[tool])  # the server says that this may be sent
                result = await client.call_tool(tool, {"text": text})
                answer = "refused" if result.is_error else result.content[0].text
                seen[tool, text] = answer
                print(f"{tool:12} sent {text!r:22} got {answer}")
    assert all(seen["str", text] == f"str {text!r}" for tool, text in seen if tool == "str"), "str is parsed now"
    assert {text: seen["str or None", text] for tool, text in seen if tool == "str or None"} == {
        "null": "NoneType None",
        '{"level": "error"}': "refused",
        "[1, 2]": "refused",
        "5": "str '5'",
        "true": "str 'true'",
        "plain": "str 'plain'",
    }, "an optional text is treated otherwise now"
    assert seen["Any", '{"level": "error"}'] == "dict {'level': 'error'}", "Any is treated otherwise now"


asyncio.run(main())
PY
timeout 60 "$dir/venv/bin/python" "$dir/see.py"
echo "As described."
