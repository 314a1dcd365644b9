"""docs/errors.md and the exceptions say the same: code, name, class and HTTP status of each, and no other."""

from __future__ import annotations

import re

import holdfast
from holdfast import ERRORS
from tests.docs.pages import ROOT, quoted, rows, text_of


def listed() -> dict[str, list[str]]:
    """The cells of each code's row."""
    return {row[0].strip("`"): row[1:] for row in rows(text_of("errors.md")) if row[0].startswith("`QH")}


def test_every_code_is_documented_and_no_other() -> None:
    assert sorted(listed()) == sorted(ERRORS)


def test_every_code_in_the_source_is_documented() -> None:
    named = {
        code
        for path in (ROOT / "src").rglob("*")
        if path.suffix in {".py", ".sql"}
        for code in re.findall(r"\bQH(?!000)\d{3}\b", path.read_text(encoding="utf-8"))
    }

    assert named == set(listed())


def test_name_class_and_status_are_those_of_the_exceptions() -> None:
    documented = {code: (cells[0], quoted(cells[1])[0], int(cells[2])) for code, cells in listed().items()}

    assert documented == {code: (kind.name, kind.__name__, kind.http_status) for code, kind in ERRORS.items()}


def test_every_code_has_a_meaning() -> None:
    assert [code for code, cells in listed().items() if len(cells) != 5 or not cells[3]] == []


def test_every_class_can_be_imported_from_the_package() -> None:
    assert {kind.__name__ for kind in ERRORS.values()} <= set(holdfast.__all__)
