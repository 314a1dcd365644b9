"""The benchmark of the HTTP server runs as a whole, in short turns: every case, both servers, all figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.http.__main__ import main

ROOT = Path(__file__).parents[2]
CASES = ["nothing", "send", "claim-ack"]
FIGURES = {"cpu_us", "client_us", "per_second", "p50_ms", "p99_ms"}


@pytest.mark.verify
@pytest.mark.timeout(600)
def test_every_case_is_measured(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--seconds", "1", "--rounds", "1", "--streams", "20", "--rate", "500", "--json", str(figures)]

    run = subprocess.run(
        [sys.executable, "-m", "bench.http", *options], cwd=ROOT, capture_output=True, text=True
    )

    assert run.returncode == 0, run.stderr
    found = json.loads(figures.read_text())
    assert list(found["cases"]) == CASES
    assert all(list(servers) == ["Holdfast", "pgmq"] for servers in found["cases"].values())
    samples = [sample for servers in found["cases"].values() for (sample,) in servers.values()]
    assert all(set(sample) == FIGURES for sample in samples)
    assert all(sample["per_second"] > 0 for sample in samples)
    assert (found["pushed"]["sent"], found["pushed"]["lost"], found["pushed"]["repeated"]) == (400, 0, 0)
    assert len(found["expectations"]) == 5
    assert "sends a second over the peer's" in run.stdout


def test_the_cases_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [*CASES, "streams"]


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(SystemExit, match="no case is called nonsense; --list names them"):
        main(["--case", "nonsense"])


def test_a_missing_wrk_is_said_with_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="make debian/wrk brings it"):
        main([])
