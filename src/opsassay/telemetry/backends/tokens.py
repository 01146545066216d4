"""Splits a query into tokens and steps through them; errors name the unexpected token and its place."""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from opsassay.core.errors import UserError
from opsassay.telemetry.backends.literals import unquoted

MOST_CHARACTERS = 4096
MOST_DEEP = 16


class Token(NamedTuple):
    """One token: its *kind* (a group of the pattern), its text, and the offset of its first character."""

    kind: str
    text: str
    at: int


class TokenReader:
    """Steps through *text* token by token; *pattern* has a named group for each kind, and tokens of ``space`` are skipped.

    Errors are raised as *error*, their messages begin with *prefix*.
    """

    def __init__(self, text: str, pattern: re.Pattern[str], error: type[UserError], prefix: str) -> None:
        self._text, self._error, self._before = text, error, prefix
        if len(text) > MOST_CHARACTERS:
            self.fail(MOST_CHARACTERS, f"a query may have {MOST_CHARACTERS} characters here")
        self._next, self._tokens = 0, list[Token]()
        at = 0
        while at < len(text):
            found = pattern.match(text, at)
            if found is None:
                self.fail(at, f"unexpected {text[at]!r}")
            if (kind := str(found.lastgroup)) != "space":
                self._tokens.append(Token(kind, found.group(), at))
            at = found.end()

    def peek(self, ahead: int = 0) -> Token:
        """Return the next token, or the one *ahead* tokens later, without moving; a token of kind "" at the end."""
        at = self._next + ahead
        return self._tokens[at] if at < len(self._tokens) else Token("", "", len(self._text))

    def sees(self, *texts: str) -> bool:
        """Return whether the text of the next token is one of *texts*."""
        return self.peek().kind != "text" and self.peek().text in texts

    def step(self) -> Token:
        """Return the next token and move past it."""
        found = self.peek()
        self._next += 1
        return found

    def sign(self, sign: str) -> None:
        """Move past the token *sign*, such as "("; raises the reader's error when another token follows."""
        if not self.sees(sign):
            self.unexpected(sign)
        self._next += 1

    def take(self, kind: str, expected: str) -> Token:
        """Return the next token and move past it; raises the reader's error, "expected *expected*", for another *kind*."""
        if self.peek().kind != kind:
            self.unexpected(expected)
        return self.step()

    def unquoted(self, token: Token) -> str:
        """Return the text that the quoted *token* stands for."""
        try:
            return unquoted(token.text)
        except ValueError as error:
            self.fail(token.at, str(error))

    def unexpected(self, expected: str) -> NoReturn:
        """Raise the reader's error: the next token is not *expected* (in words)."""
        token = self.peek()
        self.fail(token.at, f"unexpected {token.text[:100] or 'end of the query'}, expecting {expected}")

    def fail(self, offset: int, problem: str) -> NoReturn:
        """Raise the reader's error with the message *problem* and the place of the character *offset*."""
        raise self._error(f"{self._before}parse error at {self.place(offset)}: syntax error: {problem}")

    def place(self, offset: int) -> str:
        """Return line and column of the character *offset* as text, both counted from 1."""
        before = self._text[:offset]
        return f"line {before.count(chr(10)) + 1}, col {offset - before.rfind(chr(10))}"
