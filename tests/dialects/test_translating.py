"""Dialects only translate: their modules speak no SQL, and so know no table of the engine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.dialects

MODULES = sorted(Path(holdfast.dialects.__file__).parent.rglob("*.py"))
SQL = re.compile(
    r"\b(select|insert\s+into|update|delete\s+from|call|listen|notify)\s+\S|\bholdfast\.\w+\s*\(",
    re.IGNORECASE,
)


def texts(module: Path) -> Iterator[str]:
    """The constants of a module that are text, but for what documents it."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    said = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in said:
            if isinstance(node.value, bytes):
                yield node.value.decode()
            elif isinstance(node.value, str):
                yield node.value


@pytest.mark.parametrize("module", MODULES, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_no_module_of_a_dialect_speaks_sql(module: Path) -> None:
    assert [text for text in texts(module) if SQL.search(text)] == []


@pytest.mark.parametrize("text", ["select 1", "SELECT * from a", "Delete  from x", "holdfast.claim('a')"])
def test_what_is_sql_is_found(text: str) -> None:
    assert SQL.search(text)
