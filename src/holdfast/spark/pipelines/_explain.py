"""What went wrong, in a line that helps: errors of Spark wrap those of Python and Java, many lines deep."""

from __future__ import annotations

import re
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from holdfast.client import HoldfastError

TRACEBACK = "Traceback (most recent call last):"
PYTHON_ERROR = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*): (?P<text>.*)$")
# The error itself, by way of py4j, and what lies below it.
JAVA_ERROR = re.compile(r"^(?:Caused by)?: (?P<kind>[\w.$]+)(?:: (?P<text>.+))?$", re.MULTILINE)
# Of these the text may be no more than a path or a host: the kind says what happened.
TELLING_KIND = re.compile(r"^(?:java\.(?:io|nio|net)|org\.apache\.hadoop)\.")
JAVA_KIND = re.compile(r"^(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error): ")
# Of the engine; or of PostgreSQL, for values and statements that are wrong.
CODE = re.compile(r" \[(?P<code>(?:QH|22|42)[0-9A-Z]{3})\]$")
SPARKS_CODE = re.compile(r"\.? SQLSTATE: [0-9A-Z]{5}$")
# Below a Python error that came by way of Java: where Java was at that moment.
JAVA_FRAME = re.compile(r"^\s*at [\w.$]+")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as people are told it."""

    message: str
    code: str | None = None
    detail: str | None = None
    hint: str | None = None

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]" if self.code else self.message


def explain(error: BaseException) -> Problem:
    """The one useful thing about an error."""
    if isinstance(error, HoldfastError):
        return Problem(error.message, error.code, error.detail, error.hint)
    if not isinstance(error, PySparkException | Py4JError):
        kind = f"{type(error).__module__}.{type(error).__qualname__}"
        return _worded(kind, *(str(error).splitlines() or [""]))
    text = str(error)
    found = _python(text)
    if found is not None:
        return found
    errors = list(JAVA_ERROR.finditer(text))
    return Problem(_java(errors[-1]) if errors else _first_line(text))


def _java(error: re.Match[str]) -> str:
    kind, text = error["kind"].rpartition(".")[2], error["text"]
    if not text:
        return kind
    return f"{kind}: {_first_line(text)}" if TELLING_KIND.match(error["kind"]) else _first_line(text)


def _python(text: str) -> Problem | None:
    """The error that ended the last traceback in a text: those before it were on its way."""
    _, found, behind = text.rpartition(TRACEBACK)
    if not found:
        return None
    lines = iter(behind.lstrip("\n").splitlines())
    for line in lines:
        if ended := PYTHON_ERROR.match(line):
            more = [each for each in _until_java(list(lines)) if each]
            return _worded(ended["kind"], SPARKS_CODE.sub("", ended["text"]), *more)
    return None


def _until_java(lines: list[str]) -> list[str]:
    for number, line in enumerate(lines):
        if JAVA_FRAME.match(line) or not line.strip():
            return lines[:number]
    return lines


def _worded(kind: str, message: str, *more: str) -> Problem:
    """An error of Python's: ours speak for themselves, of others the kind is a part of what they say."""
    if not kind.startswith("holdfast."):
        return Problem(f"{kind.removeprefix('builtins.')}: {message}".removesuffix(": "))
    said = {name: text for name, colon, text in (line.partition(": ") for line in more) if colon}
    found = CODE.search(message)
    return Problem(
        CODE.sub("", message), found["code"] if found else None, said.get("Detail"), said.get("Hint")
    )


def _first_line(text: str) -> str:
    line = next((line for line in text.splitlines() if line.strip()), text)
    return SPARKS_CODE.sub("", JAVA_KIND.sub("", line.strip()))
