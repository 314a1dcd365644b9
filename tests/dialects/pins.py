"""Claims of a page, and the tests that pin them."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from tests.docs.pages import DOCS, rows, sections

T = TypeVar("T", bound=Callable[..., object])

HERE = Path(__file__).parent


def pins(*claims: int) -> Callable[[T], T]:
    """This test pins these claims of the dialect's page."""
    return lambda test: test


def claimed(dialect: str) -> dict[int, str]:
    """The claims of the page of a dialect, by number, as docs/dialects has them."""
    return {number: claim for number, (claim, _) in _table(dialect).items()}


def verdicts(dialect: str) -> dict[int, str]:
    """What docs/dialects says of each claim."""
    return {number: verdict for number, (_, verdict) in _table(dialect).items()}


def _table(dialect: str) -> dict[int, tuple[str, str]]:
    text = (DOCS / "dialects" / f"{dialect}.md").read_text(encoding="utf-8")
    section = sections(text, 2)["The page, sentence by sentence"]
    return {int(row[0]): (row[1], row[2]) for row in rows(section) if row[0].isdigit()}


def listed(docstring: str) -> dict[int, str]:
    """The claims that a docstring opens with."""
    found = re.findall(r"^(\d+)\. (.*?)(?=^\d+\. |\Z)", docstring, re.DOTALL | re.MULTILINE)
    return {int(number): " ".join(text.split()) for number, text in found}


def pinned(dialect: str) -> set[int]:
    """The claims that tests of a dialect pin."""
    return {
        claim
        for path in HERE.glob(f"test_{dialect}*.py")
        for claim in _decorations(ast.parse(path.read_text(encoding="utf-8")))
    }


def _decorations(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pins":
                    yield from (ast.literal_eval(argument) for argument in decorator.args)
