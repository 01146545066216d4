"""String literals in quotes, by the rule that PromQL, LogQL and TraceQL share.

All three unquote as Go does (``util/strutil/quote.go`` of Prometheus, which Loki's ``lex.go`` calls too, and
``strconv.Unquote`` in Tempo's ``lexer.go``): between backticks every character stands for itself; between double
quotes, in PromQL also single ones, a backslash begins an escape, and an unknown escape is an error.
"""

from __future__ import annotations

import re

DOUBLE = r'"(?:[^"\\\n]|\\.)*"'
SINGLE = r"'(?:[^'\\\n]|\\.)*'"
RAW = r"`[^`]*`"

_ESCAPE = re.compile(
    rb"""\\(?:(?P<one>[abfnrtv\\'"])|x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})
    |u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})|(?P<unknown>.?))""",
    re.VERBOSE | re.DOTALL,
)
_ONE = dict(zip(b"abfnrtv\\", (7, 8, 12, 10, 13, 9, 11, 92), strict=True))
_CODED = "·"
_LITERALS = re.compile(
    rf"#[^\n]*|(?P<unlike>!~(?:\s|#[^\n]*\n)*)?(?P<literal>{DOUBLE}|{SINGLE}|{RAW})|(?P<open>[\"'`])"
)


def unquoted(literal: str) -> str:
    """Return the text that the quoted *literal* stands for, invalid UTF-8 as U+FFFD; raises ValueError for a bad escape."""
    quote, inner = literal[0], literal[1:-1].encode()
    if quote == "`":
        return literal[1:-1]

    def meaning(found: re.Match[bytes]) -> bytes:
        escape = found.group()
        match found.lastgroup:
            case "one" if escape[1:] not in b"'\"":
                return bytes([_ONE[escape[1]]])
            case "one" if escape[1:] == quote.encode():
                return escape[1:]
            case "byte" | "octal":
                return bytes([int(found[found.lastgroup], 16 if found.lastgroup == "byte" else 8)])
            case "short" | "long" if (point := int(found[found.lastgroup], 16)) <= 0x10FFFF:
                if not 0xD800 <= point < 0xE000:
                    return chr(point).encode()
        raise ValueError(f"unknown escape sequence {escape.decode(errors='replace')} in {literal[:100]}")

    return _ESCAPE.sub(meaning, inner).decode(errors="replace")


def code_literals(query: str) -> str:
    """Return the PromQL *query* with each string literal as hexadecimal digits after a character not allowed in names.

    The parser then applies none of its own rules on escapes and regular expressions. An empty literal stays empty, and
    after ``!~`` the code matches "", since the parser requires a matcher that does not match "" and must refuse no valid
    query. Raises ValueError for an invalid literal.
    """

    def code(found: re.Match[str]) -> str:
        if found["open"]:
            raise ValueError(f"unterminated quoted string {query[found.start() :][:100]}")
        if found.group().startswith("#"):
            return found.group()
        unlike = found["unlike"] or ""
        meant = unquoted(found["literal"])
        return f'{unlike}"{_CODED}{meant.encode().hex()}{"|" if unlike else ""}"' if meant else f'{unlike}""'

    return _LITERALS.sub(code, query)


def decode_literals(text: str) -> str:
    """Return *text* with every literal decoded that `code_literals` encoded."""
    return re.sub(rf"{_CODED}((?:[0-9a-f]{{2}})*)\|?", lambda found: bytes.fromhex(found[1]).decode(), text)
