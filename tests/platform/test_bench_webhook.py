"""The benchmark of deliveries runs as a whole, in short turns: every case, dispatcher and loop."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.webhook.__main__ import main

ROOT = Path(__file__).parents[2]
CASES = ["one-endpoint", "fifty-endpoints"]


@pytest.mark.verify
@pytest.mark.timeout(900)
def test_every_case_is_measured(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--seconds", "2", "--rounds", "1", "--json", str(figures)]

    run = subprocess.run(
        [sys.executable, "-m", "bench.webhook", *options], cwd=ROOT, capture_output=True, text=True
    )

    assert run.returncode == 0, run.stderr
    found = json.loads(figures.read_text())
    assert list(found["cases"]) == CASES
    assert all(list(turns) == ["Holdfast", "bare httpx"] for turns in found["cases"].values())
    samples = [sample for turns in found["cases"].values() for (sample,) in turns.values()]
    assert all(set(sample) == {"per_second", "client_us", "cpu_us"} for sample in samples)
    assert all(sample["per_second"] > 0 for sample in samples)
    assert [each["bound"] for each in found["expectations"]] == [0.6, 0.6]
    assert "deliveries a second over the bare loop's, 50 endpoints" in run.stdout


def test_the_cases_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == CASES


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(SystemExit, match="no case is called nonsense; --list names them"):
        main(["--case", "nonsense"])
