"""Functions by name: found in the current folder, and refused with what was expected."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.spark.pipelines._call import called, found
from holdfast.spark.pipelines._pipeline import PipelineError


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder; its name."""
    name = f"shop_{tmp_path.name.replace('-', '_')}"
    lines = [
        "def raised(frame): return frame",
        "def of_two(frame, other): return frame",
        "class Prices:",
        "    @staticmethod",
        "    def raised(frame): return frame",
        "PRICE = 5",
    ]
    (tmp_path / f"{name}.py").write_text("\n".join(lines))
    (tmp_path / f"{name}_broken.py").write_text("import a_module_that_is_not_there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return name


def test_a_function_of_a_module_in_the_current_folder_is_found(shop: str) -> None:
    assert found(f"{shop}:raised").__name__ == "raised"
    assert found(f"{shop}:Prices.raised").__name__ == "raised"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("{}:", "expected package.module:function"),
        (":raised", "expected package.module:function"),
        ("nowhere_at_all:raised", "there is no module nowhere_at_all, neither in"),
        ("{}.more:raised", "there is no module {}.more"),
        ("{}_broken:raised", "needs a_module_that_is_not_there, which is not installed"),
        ("{}:lowered", "there is no lowered in {}"),
        ("{}:PRICE", "expected a function, got int"),
        ("{}:of_two", "expected a function of one DataFrame: missing a required argument: 'other'"),
    ],
)
def test_what_is_not_there_or_no_function_is_refused(shop: str, name: str, told: str) -> None:
    with pytest.raises(PipelineError) as refused:
        found(name.format(shop))

    assert told.format(shop) in str(refused.value)


def test_a_function_that_returns_no_frame_is_refused() -> None:
    with pytest.raises(PipelineError, match="shop:nothing: expected it to return a DataFrame, got NoneType"):
        called(lambda frame: None, None, "shop:nothing")  # type: ignore[arg-type, return-value]
