"""Loads for tests: files of lines, and the pipeline over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from holdfast.spark.pipelines._pipeline import Run
from holdfast.spark.pipelines.load import Load


def write_lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def numbers(count: int) -> list[dict[str, Any]]:
    return [{"id": n, "who": f"c{n % 3}", "p": n % 11} for n in range(count)]


def loaded(run: Run, path: Path | str, **parameters: Any) -> dict[str, Any]:
    pipeline = Load(to="q", paths=[str(path)], **parameters)
    pipeline.check()
    return dict(pipeline.run(run))
