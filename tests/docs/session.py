"""A reader who types a page's examples, from top to bottom, against one database."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg.pq import Escaping

# A statement ends with a semicolon or psql's \gset at the end of a line; "-- → x" behind it is its answer.
END = re.compile(r"(;|\\gset)[ \t]*(?:-- (?:→ (.*)|.*))?$", re.MULTILINE)

# What psql leaves as it is (quotes, comments, casts), and its variables: plain, as a literal, as a name.
WORD = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | --[^\n]* | /\*.*?\*/ | ::
      | :(?P<plain>\w+) | :'(?P<literal>\w+)' | :"(?P<name>\w+)" """,
    re.DOTALL | re.VERBOSE,
)


def statements(block: str) -> Iterator[tuple[str, bool, str | None]]:
    """The statements of a block: text, whether the answer is to be kept, and the answer that is promised."""
    start = 0
    for end in END.finditer(block):
        yield block[start : end.start()].strip(), end[1] != ";", end[2]
        start = end.end()
    left = block[start:].strip()
    assert not left, f"a statement without an end: {left}"


class Reader:
    """Runs SQL as psql does, variables too, and Python as the interpreter does.

    In Python `url` is the database, and `server` the address of an HTTP server.
    """

    def __init__(self, connection: psycopg.Connection[Any], url: str, server: str = "") -> None:
        self._connection = connection
        self._variables: dict[str, str] = {}
        self._names: dict[str, object] = {"url": url, "server": server, "print": lambda *words, **how: None}

    def run(self, language: str, block: str, where: str) -> None:
        """Run one block."""
        if language == "python":
            self._run_python(block, where)
        else:
            for statement, keep, answer in statements(block):
                self._run_statement(statement, keep, answer)

    def _run_statement(self, statement: str, keep: bool, answer: str | None) -> None:
        cursor = self._connection.execute(self._filled(statement).encode())
        result = cursor.pgresult
        assert result is not None
        if answer is not None:
            found = result.get_value(0, 0) if result.ntuples else None
            assert found is not None, f"no row, but {answer} is promised: {statement}"
            assert found.decode() == answer.strip(), statement
        if keep:
            assert result.ntuples == 1, f"\\gset needs one row: {statement}"
            for column in range(result.nfields):
                name, value = result.fname(column), result.get_value(0, column)
                assert name is not None
                if value is None:
                    self._variables.pop(name.decode(), None)
                else:
                    self._variables[name.decode()] = value.decode()

    def _filled(self, statement: str) -> str:
        return WORD.sub(self._value, statement)

    def _value(self, word: re.Match[str]) -> str:
        """What psql puts in the place of a word: a variable that is not set stays as it stands."""
        value = self._variables.get(word["plain"] or word["literal"] or word["name"] or "")
        if value is None:
            return word[0]
        escaping = Escaping(self._connection.pgconn)
        if word["literal"]:
            return bytes(escaping.escape_literal(value.encode())).decode()
        if word["name"]:
            return bytes(escaping.escape_identifier(value.encode())).decode()
        return value

    def _run_python(self, block: str, where: str) -> None:
        code = compile(block, where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, self._names))
        else:
            exec(code, self._names)
