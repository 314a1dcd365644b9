"""Make the synchronous client from the asynchronous one: same text, without async and await.

    python tools/generate_sync.py            write src/holdfast/client/_sync
    python tools/generate_sync.py --check    write nothing; fail if it is out of date

The source is taken token by token. `async` and `await` go, names lose their Async or async_, and a few
names have twins of their own. Comments and docstrings follow the same rules. ruff then joins the lines
that became shorter and sorts the imports.
"""

from __future__ import annotations

import argparse
import difflib
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "holdfast" / "client"
SOURCE = PACKAGE / "_async"
TARGET = PACKAGE / "_sync"

# Else ruff takes a module that is not written yet for somebody else's.
OURS = 'lint.isort.known-first-party = ["holdfast"]'

HEADER = "# Made from ../_async/{name} by tools/generate_sync.py: change that file, then run make generate.\n"

TWINS = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "asynccontextmanager": "contextmanager",
    "aclose": "close",
    "aclosing": "closing",
    "aiter_bytes": "iter_bytes",
    "aread": "read",
    "asyncio": "time",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_async": "_sync",
}
DROPPED = ("async", "await")
WORDS = re.compile(r"\b(?:async |await )|\b\w+\b")
PROSE = {"asynchronous": "synchronous", "Asynchronous": "Synchronous"}


def rename(name: str) -> str:
    """The synchronous twin of a name."""
    if name in TWINS:
        return TWINS[name]
    if re.match(r"Async[A-Z]", name):
        return name.removeprefix("Async")
    return name.removeprefix("async_")


def rewrite_prose(text: str) -> str:
    """A comment or string under the same rules."""
    return WORDS.sub(lambda found: rewrite_word(found.group()), text)


def rewrite_word(word: str) -> str:
    """One word of a comment or string; `async ` and `await ` go with the space behind them."""
    if word.strip() in DROPPED and word.endswith(" "):
        return ""
    return PROSE.get(word, rename(word))


def edits(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int], str]]:
    """What to replace: start, end and new text, in order."""
    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == tokenize.NAME and token.string in DROPPED and following is not None:
            yield token.start, following.start, ""
        elif token.type == tokenize.NAME:
            yield token.start, token.end, rename(token.string)
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            yield token.start, token.end, rewrite_prose(token.string)


def without_async(source: str) -> str:
    """The synchronous twin of a module's text, not yet formatted."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    parts, place = [], 0
    for (from_line, from_column), (to_line, to_column), text in edits(source):
        parts += [source[place : starts[from_line - 1] + from_column], text]
        place = starts[to_line - 1] + to_column
    return "".join([*parts, source[place:]])


def ruff(text: str, *arguments: str) -> str:
    """Pass a module through ruff."""
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(TARGET / "module.py"), "-"]
    return subprocess.run(command, input=text, text=True, capture_output=True, check=True).stdout


def generate(path: Path) -> str:
    """The whole text of one generated module."""
    text = HEADER.format(name=path.name) + without_async(path.read_text())
    checked = ruff(text, "check", "--quiet", "--select", "I,SIM117", "--fix", "--config", OURS)
    return ruff(checked, "format", "--quiet")


def stale(wanted: dict[Path, str]) -> list[str]:
    """The differences between what is there and what should be, as lines of a diff."""
    lines: list[str] = []
    for path in sorted({*wanted, *TARGET.glob("*.py")}):
        there = path.read_text() if path.exists() else ""
        name = str(path.relative_to(PACKAGE))
        lines += difflib.unified_diff(
            there.splitlines(), wanted.get(path, "").splitlines(), name, f"{name} (generated)", lineterm=""
        )
    return lines


def write(wanted: dict[Path, str]) -> None:
    """Write every module, and remove those whose source is gone."""
    TARGET.mkdir(exist_ok=True)
    for path in {*TARGET.glob("*.py")} - {*wanted}:
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)


def main() -> int:
    """Write, or check."""
    parser = argparse.ArgumentParser(description="Make the synchronous client from the asynchronous one.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it is out of date")
    check = parser.parse_args().check
    wanted = {TARGET / path.name: generate(path) for path in sorted(SOURCE.glob("*.py"))}
    if not check:
        write(wanted)
        return 0
    difference = stale(wanted)
    if difference:
        print("\n".join(difference))
        print("The synchronous client is out of date. Run: make generate", file=sys.stderr)
    return 1 if difference else 0


if __name__ == "__main__":
    raise SystemExit(main())
