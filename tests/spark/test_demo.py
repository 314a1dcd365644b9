"""The demo and the tutorial, as people run them, with fewer orders.

1. `make demo` ends with every order in the lake once, and with a report that needs no network.
2. The commands of the tutorial, one after the other, do the same.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from holdfast import Holdfast
from holdfast.database import URL_VARIABLE
from tests.docs.pages import DOCS, ROOT, blocks

pytestmark = [pytest.mark.verify, pytest.mark.timeout(900)]

ORDERS = 3_000
PATIENCE = 800.0  # seconds


def executed(words: Sequence[str], *, url: str, folder: Path) -> str:
    """What a program prints that must end well."""
    environment = {
        **os.environ,
        URL_VARIABLE: url,
        "ORDERS": str(ORDERS),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def ended(lake: Path) -> dict[str, list[dict[str, Any]]]:
    """The messages of a lake by their outcome."""
    found: dict[str, list[dict[str, Any]]] = {}
    files = pyarrow.dataset.dataset(lake, format="parquet", partitioning="hive", ignore_prefixes=["_", "."])
    for row in files.to_table(columns=["queue", "outcome", "payload"]).to_pylist():
        found.setdefault(row["outcome"], []).append(row)
    return found


def check_lake(lake: Path, queue: str) -> None:
    """Every order ended once: as done, but for those that go to no country."""
    found = ended(lake)
    numbers = Counter(
        int(re.findall(r'"order": ?(\d+)', row["payload"])[0]) for rows in found.values() for row in rows
    )
    assert numbers == Counter(range(ORDERS))
    assert {row["queue"] for row in found["done"]} == {queue}
    assert {row["queue"] for row in found.get("discarded", [])} <= {f"{queue}.dlq"}
    lost = {outcome: {'"country": null' in row["payload"] for row in rows} for outcome, rows in found.items()}
    assert lost in ({"done": {False}}, {"done": {False}, "discarded": {True}})


def check_report(report: Path, queue: str) -> None:
    """The report is whole in itself, and about this queue."""
    page = report.read_text()
    assert queue in page
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)


def test_the_demo_brings_every_order_to_the_lake_once(database_url: str, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "examples.demo", "--orders", str(ORDERS)]

    told = executed(words, url=database_url, folder=tmp_path)

    assert "report.html" in told
    check_lake(tmp_path / ".demo" / "lake", "demo.orders")
    check_report(tmp_path / ".demo" / "report.html", "demo.orders")
    with Holdfast(database_url) as holdfast:
        assert {run.state for run in holdfast.runs()} == {"done"}


def test_the_commands_of_the_tutorial_do_what_it_says(database_url: str, tmp_path: Path) -> None:
    # All but the first, which sets up what is here already, and the last, which cleans up.
    _, *steps, _ = [block for language, block in blocks(DOCS / "tutorial.md") if language == "sh"]
    script = "set -euo pipefail\n" + "\n".join(steps)

    executed(["bash", "-c", script], url=database_url, folder=tmp_path)

    check_lake(tmp_path / "tutorial" / "lake", "shop")
    check_report(tmp_path / "tutorial" / "report.html", "shop")
